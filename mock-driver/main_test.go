package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func shortDir(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "csi-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestInvalidFlags(t *testing.T) {
	dir := shortDir(t)
	plan := filepath.Join(dir, "plan.json")
	must.OK(t, os.WriteFile(plan, []byte(`{"rules":[{"method":"*","action":"fail","code":"Oops"}]}`), 0o600))
	file := filepath.Join(dir, "file")
	must.OK(t, os.WriteFile(file, nil, 0o600))
	endpoint := "--endpoint=unix://" + dir + "/csi.sock"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no endpoint":                 {nil, "--endpoint is required"},
		"an endpoint of another sort": {[]string{"--endpoint=tcp://127.0.0.1:1"}, `scheme "tcp" is not served`},
		"a relative endpoint":         {[]string{"--endpoint=csi.sock"}, "want unix:///absolute/path"},
		"a long endpoint":             {[]string{"--endpoint=unix:///" + strings.Repeat("x", 200)}, "at most 107"},
		"an endpoint in no folder":    {[]string{"--endpoint=unix://" + dir + "/none/csi.sock"}, "is not a directory"},
		"an endpoint that is a file":  {[]string{"--endpoint=unix://" + file}, "is no socket"},
		"an argument":                 {[]string{endpoint, "serve"}, `unexpected argument "serve"`},
		"an unknown flag":             {[]string{endpoint, "--frobnicate"}, "unknown flag: --frobnicate"},
		"an unknown profile":          {[]string{endpoint, "--profile=x"}, `unknown profile "x": want one of full, minimal`},
		"an unknown capability":       {[]string{endpoint, "--capabilities=x"}, `--capabilities: unknown capability "x"`},
		"an impossible capability": {[]string{endpoint, "--profile=minimal",
			"--capabilities=LIST_VOLUMES_PUBLISHED_NODES"}, "needs controller/PUBLISH_UNPUBLISH_VOLUME"},
		"an impossible capability, with others taken away": {
			[]string{endpoint, "--profile=minimal", "--capabilities=CLONE_VOLUME,LIST_VOLUME_HEALTH",
				"--disable-capabilities=GET_CAPACITY"},
			"needs controller/GET_VOLUME_HEALTH"},
		"a driver name that is none": {[]string{endpoint, "--name=a_b"}, `driver name "a_b"`},
		"no node":                    {[]string{endpoint, "--node-id="}, "node id"},
		"a capacity that is none":    {[]string{endpoint, "--capacity=lots"}, `--capacity "lots"`},
		"a negative capacity":        {[]string{endpoint, "--capacity=-1Gi"}, `--capacity "-1Gi"`},
		"a negative limit":           {[]string{endpoint, "--max-volumes=-1"}, "max volumes -1"},
		"a static volume elsewhere":  {[]string{endpoint, "--static-volume=../x"}, `--static-volume "../x"`},
		"a place that is none":       {[]string{endpoint, "--place=zone"}, `--place "zone": want KEY=VALUE`},
		"a place without its size":   {[]string{endpoint, "--place=zone=a@"}, `--place "zone=a@": want KEY=VALUE`},
		"a place of no size":         {[]string{endpoint, "--place=zone=a@lots"}, `--place "lots": want a size`},
		"a place that is there twice": {[]string{endpoint, "--place=zone=a", "--place=zone=a@1Gi"},
			"place zone=a: is there twice"},
		"a latency of no method":      {[]string{endpoint, "--latency=Delete=1s"}, `"Delete" matches no RPC`},
		"a latency that is none":      {[]string{endpoint, "--latency=soon"}, `--latency "soon"`},
		"a negative latency":          {[]string{endpoint, "--latency=-1s"}, `--latency "-1s"`},
		"a negative grace":            {[]string{endpoint, "--grace=-1s"}, "--grace -1s"},
		"a fault plan that is wrong":  {[]string{endpoint, "--fault-plan=" + plan}, "rules[0].code"},
		"a fault plan that is absent": {[]string{endpoint, "--fault-plan=" + dir + "/none"}, "no such file"},
		"a public fault address":      {[]string{endpoint, "--fault-address=0.0.0.0:0"}, "must be a loopback address"},
		"a file for no fault address": {[]string{endpoint, "--fault-address-file=x"}, "goes with --fault-address"},
		"a kubelet without a directory": {[]string{endpoint, "--state-dir=" + dir, "--kubelet=node"},
			`--kubelet "node": want NODE=DIRECTORY`},
		"a kubelet in a relative directory": {[]string{endpoint, "--state-dir=" + dir, "--kubelet=node=kubelet"},
			"is not an absolute path"},
		"a kubelet, and no volumes on disk": {[]string{endpoint, "--kubelet=node=/k"}, "--kubelet goes with --state-dir"},
		"a log level that is none":          {[]string{endpoint, "--log-level=loud"}, `--log-level "loud"`},
		"a state dir that is a file":        {[]string{endpoint, "--state-dir=" + file}, file},
		"a ledger in no folder":             {[]string{endpoint, "--ledger=" + dir + "/none/ledger"}, "open ledger"},
	} {
		t.Run(name, func(t *testing.T) {
			// A driver that accepts the flags would serve; the timeout ends it and the test fails.
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := run(ctx, c.args, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q in one line", err, c.want)
			}
		})
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("file at the endpoint: %v", err)
	}
}

func TestHelp(t *testing.T) {
	var help bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, &help, io.Discard); !errors.Is(err, pflag.ErrHelp) {
		t.Fatal(err)
	}
	for _, want := range []string{"Usage:", "Examples:", "Kind of driver:", "--fault-plan", "no-attach",
		"controller/CREATE_DELETE_VOLUME", "plugin/"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("help does not mention %q", want)
		}
	}
}

// The version needs no required flags.
func TestVersion(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--version"}, &out, io.Discard); !errors.Is(err, errVersion) {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "mock-driver ") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("the version is %q", out.String())
	}
}

// started runs the program in this process and returns once it serves.
func started(t *testing.T, dir string, args ...string) (stop func() error, line string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"--endpoint=unix://" + dir + "/csi.sock"}, args...), in, io.Discard)
		_ = in.CloseWithError(io.EOF)
		ended <- err
	}()
	announced := make([]byte, 4096)
	n, err := out.Read(announced)
	if err != nil {
		cancel()
		t.Fatalf("not served: %v", <-ended)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return func() error { cancel(); return <-ended }, string(announced[:n])
}

// dial connects to the driver that started serves.
func dial(t *testing.T, dir string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+dir+"/csi.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestServe(t *testing.T) {
	dir := shortDir(t)
	address := filepath.Join(dir, "address")
	stop, line := started(t, dir, "--state-dir="+dir+"/state", "--fault-address=127.0.0.1:0",
		"--fault-address-file="+address, "--static-volume=vol-1=5Gi",
		"--profile=static", "--volume-context=tier=gold")
	if strings.Count(line, "\n") != 1 ||
		!strings.Contains(line, "serving mock.csi-reclaimer.io (profile static) on unix://"+dir+"/csi.sock") {
		t.Errorf("announced %q", line)
	}
	conn := dial(t, dir)
	list, err := csi.NewControllerClient(conn).ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil || len(list.GetEntries()) != 1 {
		t.Fatalf("list: got %v, %v", list, err)
	}
	if v := list.GetEntries()[0].GetVolume(); v.GetVolumeId() != "vol-1" || v.GetCapacityBytes() != 5<<30 ||
		v.GetVolumeContext()["tier"] != "gold" {
		t.Errorf("static volume: got %v", v)
	}
	written := must.Get(os.ReadFile(address))(t)
	client := faults.Client{Address: strings.TrimSpace(string(written))}
	if _, err := client.Status(t.Context()); err != nil {
		t.Error(err)
	}
	for name, args := range map[string][]string{
		"listens there":     {"--endpoint=unix://" + dir + "/csi.sock"},
		"in use by another": {"--endpoint=unix://" + dir + "/other.sock", "--state-dir=" + dir + "/state"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a second driver: got %v, want %q", err, name)
		}
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := os.Stat(dir + "/csi.sock"); !os.IsNotExist(err) {
		t.Errorf("socket after stop: %v", err)
	}
	entries, err := ledger.Read(dir + "/state/ledger.jsonl")
	if err != nil || entries[0].Phase != ledger.Started || entries[len(entries)-1].Phase != ledger.Stopped {
		t.Errorf("ledger: got %+v, %v", entries, err)
	}
}

func TestLatency(t *testing.T) {
	dir := shortDir(t)
	stop, _ := started(t, dir, "--latency=Probe=30ms", "--latency=1ms")
	conn := dial(t, dir)
	begin := time.Now()
	if _, err := csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 31*time.Millisecond {
		t.Errorf("Probe took %s, want at least 31ms", took)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
