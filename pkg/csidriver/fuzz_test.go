package csidriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"
	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// bytesCodec sends raw bytes as messages, so that an answer need not be valid protobuf.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (bytesCodec) Name() string                       { return "proto" }

var _ encoding.Codec = bytesCodec{}

// parrot is a driver that answers each call with given bytes, or with a given error.
type parrot struct {
	mu      sync.Mutex
	answers map[string][]byte // by method name
	fails   map[string]error
	heard   func()
}

func (p *parrot) set(answers map[string][]byte, fails map[string]error, heard func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers, p.fails, p.heard = answers, fails, heard
}

func (p *parrot) handle(_ any, stream grpc.ServerStream) error {
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	full, _ := grpc.MethodFromServerStream(stream)
	method := full[strings.LastIndex(full, "/")+1:]
	p.mu.Lock()
	answer, err, heard := p.answers[method], p.fails[method], p.heard
	p.mu.Unlock()
	heard()
	if err != nil {
		return err
	}
	return stream.SendMsg(&answer)
}

// serveParrot returns a parrot and its socket. It serves until the fuzz target ends.
func serveParrot(f *testing.F) (*parrot, string) {
	f.Helper()
	p, socket := &parrot{}, socketPath(f)
	p.set(nil, nil, func() {})
	listener, err := net.Listen("unix", socket)
	if err != nil {
		f.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(p.handle))
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	f.Cleanup(func() { server.Stop(); <-done })
	return p, socket
}

// wire returns the encoded message.
func wire(f *testing.F, m proto.Message) []byte {
	f.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	return data
}

// domainName matches the driver names that the CSI specification and Kubernetes' DNS labels allow.
var domainName = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*$`)

func FuzzCheckName(f *testing.F) {
	for _, name := range []string{"", "disk.csi.example.com", "A", "-", "a.", "a..b", "\u212Aelvin.example.com",
		"\u0130.example.com", "a\n", "\xff", strings.Repeat("a", 64)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := CheckName(name)
		if ok := len(name) <= 63 && domainName.MatchString(name); ok != (err == nil) {
			t.Errorf("CheckName(%q) = %v, want ok = %v", name, err, ok)
		}
		if err != nil && (!errors.Is(err, ErrDriverName) || len(err.Error()) > 4*maxHandle+200 ||
			strings.Contains(err.Error(), "\n")) {
			t.Errorf("CheckName(%q): %v", name, err)
		}
	})
}

// FuzzIntroduction connects to drivers with arbitrary answers. Connect must return a driver with a valid name, an
// error about the name, or, when its context ends, an error that names the missing answer.
func FuzzIntroduction(f *testing.F) {
	driver, socket := serveParrot(f)
	capability := wire(f, &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{
		Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{
			Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}}}})
	deletes := wire(f, &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{
		Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{
			Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}}}}})
	named := func(name string) []byte { return wire(f, &csi.GetPluginInfoResponse{Name: name}) }
	f.Add([]byte{}, named("disk.csi.example.com"), capability, deletes, uint8(0), uint32(0), "")
	f.Add([]byte{}, named("a\nb"), capability, deletes, uint8(0), uint32(0), "")
	f.Add([]byte{}, []byte("\x0a\x02\xff\xfe"), capability, deletes, uint8(0), uint32(0), "")
	f.Add([]byte{}, named(strings.Repeat("x", 100_000)), []byte("\x0a\x00"), deletes, uint8(0), uint32(0), "")
	f.Add([]byte{0x0a, 0x00}, named("a"), capability, []byte("\x0a\x04\x0a\x02\x08\x7f"), uint8(0), uint32(0), "")
	for method := range uint8(5) {
		f.Add([]byte{}, named("a"), capability, deletes, method, uint32(codes.Internal),
			"\xff\x00"+strings.Repeat("no ", 3000))
	}
	f.Fuzz(func(t *testing.T, probe, info, services, controller []byte, failing uint8, code uint32, message string) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		ctx = klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard),
			textlogger.Verbosity(10))))
		fails := map[string]error{}
		methods := []string{"", "Probe", "GetPluginInfo", "GetPluginCapabilities", "ControllerGetCapabilities"}
		if method := methods[int(failing)%len(methods)]; method != "" && code != 0 {
			fails[method] = status.Error(codes.Code(code), message)
		}
		calls := 0
		driver.set(map[string][]byte{"Probe": probe, "GetPluginInfo": info, "GetPluginCapabilities": services,
			"ControllerGetCapabilities": controller}, fails, func() {
			if calls++; calls > 8 { // Connect repeats the call forever
				cancel()
			}
		})
		d, err := Connect(ctx, socket, Config{Timeout: 10 * time.Second, ProbeEvery: time.Nanosecond, SayEvery: time.Minute})
		switch {
		case err == nil:
			defer d.Close()
			if len(d.Name()) > 63 || !domainName.MatchString(d.Name()) {
				t.Errorf("connected to a driver named %q", d.Name())
			}
			if len(fails) > 0 && fails["ControllerGetCapabilities"] == nil {
				t.Errorf("connected to a driver that fails: %v", fails)
			}
		case errors.Is(err, ErrDriverName):
		case errors.Is(err, context.Canceled) && strings.Contains(err.Error(), "wait for the CSI driver to"):
		default:
			t.Errorf("Connect: %v", err)
		}
	})
}

// classOf is the CSI specification's table for DeleteVolume ("DeleteVolume Errors", "Error Scheme"). For a code
// outside the table, the deletion may have happened.
func classOf(code codes.Code) errclass.Class {
	switch code {
	case codes.OK:
		return errclass.Done
	case codes.Aborted:
		return errclass.InProgress
	case codes.NotFound:
		return errclass.NotFound
	case codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated,
		codes.Unimplemented, codes.OutOfRange:
		return errclass.Refused
	default:
		return errclass.Uncertain
	}
}

// FuzzDeleteVolume lets the driver answer DeleteVolume arbitrarily, including with the secrets.
func FuzzDeleteVolume(f *testing.F) {
	driver, socket := serveParrot(f)
	driver.set(map[string][]byte{"GetPluginInfo": wire(f, &csi.GetPluginInfoResponse{Name: "a"})}, nil, func() {})
	rpcs := csimetrics.NewCSIMetricsManager("a")
	d, err := Connect(f.Context(), socket, Config{Metrics: rpcs})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(d.Close)
	for code := range uint32(18) {
		f.Add(code, "because", "vol-1", "secret", []byte{})
	}
	f.Add(uint32(1<<31), "\xff\xfe\x00\r\n", "\x00\n\U0001F4BE", "\xff", []byte("\x08"))
	f.Add(uint32(codes.Internal), strings.Repeat("\U0001F4BE", 10_000), strings.Repeat("\n", 100_000), "", []byte{})
	const canary = "CANARYcanaryCANARY"
	f.Fuzz(func(t *testing.T, code uint32, message, handle, secret string, answer []byte) {
		var log strings.Builder
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log),
			textlogger.Verbosity(10))))
		var fails map[string]error
		if code != 0 {
			s, err := status.New(codes.Code(code),
				message+canary+secret+message).WithDetails(&csi.DeleteVolumeRequest{VolumeId: canary})
			if err != nil {
				t.Skip(err)
			}
			fails = map[string]error{"DeleteVolume": s.Err()}
		}
		driver.set(map[string][]byte{"DeleteVolume": answer}, fails, func() {})
		err := d.DeleteVolume(ctx, handle, map[string]string{"key": secret, "token": canary + "\n"})
		readable := proto.Unmarshal(answer, &csi.DeleteVolumeResponse{}) == nil && utf8.ValidString(handle) &&
			utf8.ValidString(secret)
		if want := classOf(codes.Code(code)); readable && utf8.ValidString(message) && errclass.Of(err) != want {
			t.Errorf("code %d is %v, want %v: %v", code, errclass.Of(err), want, err)
		}
		if (err == nil) != (errclass.Of(err) == errclass.Done) || (err == nil && (code != 0 || !readable)) {
			t.Errorf("DeleteVolume = %v for code %d and answer %q", err, code, answer)
		}
		said := fmt.Sprint(err)
		if len(said) > maxWords+4*maxHandle+200 || !utf8.ValidString(said) {
			t.Errorf("an error of %d bytes: %q", len(said), said)
		}
		if strings.Contains(said+log.String()+fmt.Sprintf("%+v", err), canary) && !strings.Contains(handle, canary) {
			t.Errorf("a secret is shown: %v\n%s", err, log.String())
		}
		var deepest error
		for next := err; next != nil; next = errors.Unwrap(next) {
			deepest = next
		}
		if hidden := strings.TrimSpace(secret); len(hidden) >= minSecret && !strings.ContainsAny(hidden, "*…\uFFFD") &&
			strings.Contains(status.Convert(deepest).Message(), hidden) && !strings.Contains(canary, hidden) && readable &&
			code != 0 {
			t.Errorf("the secret %q is shown: %v", hidden, err)
		}
	})
}
