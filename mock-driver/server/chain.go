package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/socket"
)

// call is the state of a call in progress, which lives in the call's context and is used by its goroutine only.
type call struct {
	ledger   *ledger.Writer
	received ledger.Entry
	changed  bool
}

type callKey struct{}

// handle is the interceptor of a node's sockets, which runs a call through the chain in the package comment.
func (n *node) handle(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any,
	error) {
	s := n.Server
	c := &call{ledger: s.ledger, received: describe(req)}
	c.received.Phase, c.received.Method = ledger.Received, path.Base(info.FullMethod)
	if strings.HasPrefix(info.FullMethod, "/csi.v1.Node/") {
		c.received.Node = n.id
	}
	c.received.PID = socket.Caller(ctx)
	c.received = s.ledger.Write(c.received)

	var did error
	var applied []string
	worked := false
	answer, err := s.limited(ctx, info, c, func(ctx context.Context) (answer any, err error) {
		answer, applied, err = s.faults.Do(ctx, s.faultCall(c, req), func(ctx context.Context) (any, error) {
			answer, err := s.work(context.WithValue(ctx, callKey{}, c), req, info, handler)
			did, worked = asStatus(err), true
			return answer, did
		})
		return answer, err
	})

	answered := c.received
	answered.Phase, answered.Call, answered.SecretKeys, answered.Request = ledger.Answered, c.received.Seq, nil, ""
	answered.Code, answered.Changed, answered.Faults = status.Code(err).String(), c.changed, applied
	if err != nil {
		answered.Error = status.Convert(err).Message()
	}
	if code := status.Code(did).String(); worked && code != answered.Code {
		answered.Did = code
	}
	answered.Duration = s.config.Now().Sub(c.received.Time)
	s.ledger.Write(answered)
	if s.ledger.Err() != nil {
		s.lose()
	}
	s.logCall(ctx, c, req, answered)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (s *Server) logCall(ctx context.Context, c *call, req any, answered ledger.Entry) {
	if !s.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	s.log.DebugContext(ctx, "call", "method", c.received.Method, "request", protosanitizer.StripSecrets(req).String(),
		"code", answered.Code, "error", answered.Error, "changed", answered.Changed, "duration",
		answered.Duration.Round(time.Microsecond))
}

// describe returns the ledger entry's values from a request.
func describe(req any) ledger.Entry {
	e := ledger.Entry{
		Volume: cmp.Or(field(req, "volume_id"), field(req, "source_volume_id")), Name: field(req, "name"),
		Snapshot: field(req, "snapshot_id"), Node: field(req, "node_id"),
		Path:       cmp.Or(field(req, "target_path"), field(req, "staging_target_path")),
		SecretKeys: slices.Sorted(maps.Keys(secretsOf(req))),
	}
	if r, ok := req.(*csi.CreateVolumeRequest); ok {
		e.Request = requestDigest(r)
	}
	return e
}

// requestDigest returns equal digests for requests that differ only in their secrets.
func requestDigest(r *csi.CreateVolumeRequest) string {
	r, _ = proto.Clone(r).(*csi.CreateVolumeRequest)
	r.Secrets = nil
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return "" // it has just been decoded
	}
	sum := sha256.Sum256(wire)
	return hex.EncodeToString(sum[:8])
}

// field returns the text in a field of a request, or "" if the request has no such field.
func field(req any, name protoreflect.Name) string {
	if m, ok := req.(proto.Message); ok {
		if f := m.ProtoReflect().Descriptor().Fields().ByName(name); f != nil {
			return m.ProtoReflect().Get(f).String()
		}
	}
	return ""
}

func secretsOf(req any) map[string]string {
	if r, ok := req.(interface{ GetSecrets() map[string]string }); ok {
		return r.GetSecrets()
	}
	return nil
}

// faultCall returns the call's properties for the fault plan. VolumeName is always the name at the volume's creation.
func (s *Server) faultCall(c *call, req any) faults.Call {
	f := faults.Call{Method: c.received.Method, Volume: c.received.Volume, Token: field(req, "starting_token")}
	if f.Volume != "" {
		f.VolumeName = s.backend.VolumeName(f.Volume)
	} else if f.Method == "CreateVolume" {
		f.VolumeName = c.received.Name
	}
	if r, ok := req.(interface {
		GetAccessibilityRequirements() *csi.TopologyRequirement
	}); ok {
		f.Place = firstPlace(r.GetAccessibilityRequirements())
	}
	return f
}

// limited does the work within the limit of calls and, if so configured, only if no other call is pending for its
// volume. Identity calls and capability queries bypass both, because a real driver answers them without its backend.
func (s *Server) limited(ctx context.Context, info *grpc.UnaryServerInfo, c *call, work faults.Work) (any, error) {
	if answeredAlone(info.FullMethod) {
		return work(ctx)
	}
	if s.slots != nil {
		select {
		case s.slots <- struct{}{}:
		default:
			if s.config.RefuseCalls {
				return nil, status.Errorf(codes.ResourceExhausted, "%d calls at once are the limit", s.config.MaxCalls)
			}
			select {
			case s.slots <- struct{}{}:
			case <-ctx.Done():
				return nil, status.FromContextError(ctx.Err()).Err()
			}
		}
		defer func() { <-s.slots }()
	}
	if key := pendingKey(c.received); s.config.AbortPending && key != "" {
		if _, pending := s.pending.LoadOrStore(key, true); pending {
			return nil, status.Errorf(codes.Aborted, "an operation for %s is pending", key)
		}
		defer s.pending.Delete(key)
	}
	return work(ctx)
}

func answeredAlone(fullMethod string) bool {
	return strings.HasPrefix(fullMethod, "/csi.v1.Identity/") || strings.HasSuffix(fullMethod, "GetCapabilities")
}

// work handles a call as the driver does without faults, after the checks of capability, readiness, secrets and volume.
func (s *Server) work(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any,
	error) {
	if !s.serves(info.FullMethod) {
		return nil, status.Errorf(codes.Unimplemented, "%s: this driver has no such capability", path.Base(info.FullMethod))
	}
	if !answeredAlone(info.FullMethod) && !s.ready() {
		return nil, status.Error(codes.Unavailable, "driver is not ready yet")
	}
	if _, carries := req.(interface{ GetSecrets() map[string]string }); carries {
		given := secretsOf(req)
		for _, key := range slices.Sorted(maps.Keys(s.config.Secrets)) {
			want := s.config.Secrets[key]
			if got, ok := given[key]; !ok || want != "" && got != want {
				return nil, status.Errorf(codes.Unauthenticated, "secret %q is missing or wrong", key)
			}
		}
	}
	if r, of := req.(interface{ GetVolumeId() string }); of && r.GetVolumeId() == "" {
		return nil, invalid("volume_id is required")
	}
	return handler(ctx, req)
}

// serves reports whether the driver's capabilities cover a method.
func (s *Server) serves(fullMethod string) bool {
	if strings.HasPrefix(fullMethod, "/csi.v1.Controller/") && !s.can(ControllerService) {
		return false
	}
	need, some := needed(path.Base(fullMethod))
	return !some || s.can(need)
}

// needed returns the capability that a method needs, and false for methods of every driver.
func needed(method string) (capability Capability, some bool) {
	capability, some = map[string]Capability{
		"CreateVolume":               CreateDeleteVolume,
		"DeleteVolume":               CreateDeleteVolume,
		"ControllerPublishVolume":    PublishUnpublish,
		"ControllerUnpublishVolume":  PublishUnpublish,
		"ListVolumes":                ListVolumes,
		"GetCapacity":                GetCapacity,
		"CreateSnapshot":             CreateDelSnapshot,
		"DeleteSnapshot":             CreateDelSnapshot,
		"ListSnapshots":              ListSnapshots,
		"GetSnapshot":                GetSnapshot,
		"ControllerExpandVolume":     ControllerExpand,
		"ControllerGetVolume":        GetVolume,
		"ControllerModifyVolume":     ModifyVolume,
		"ControllerGetVolumeHealth":  ControllerHealth,
		"ControllerListVolumeHealth": ListVolumeHealth,
		"NodeStageVolume":            NodeStage,
		"NodeUnstageVolume":          NodeStage,
		"NodeGetVolumeStats":         NodeStats,
		"NodeExpandVolume":           NodeExpand,
		"NodeGetVolumeHealth":        NodeHealth,
		"NodeGetStorageHealth":       NodeStorageHealth,
	}[method]
	return capability, some
}

// note adds ids to the call's entries, and if changed is set it also writes a Changed entry at once.
func note(ctx context.Context, changed bool, volume, snapshot string) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	if volume != "" {
		c.received.Volume = volume
	}
	if snapshot != "" {
		c.received.Snapshot = snapshot
	}
	if !changed {
		return
	}
	c.changed = true
	e := c.received
	e.Phase, e.Call, e.Changed, e.SecretKeys, e.Request = ledger.Changed, c.received.Seq, true, nil, ""
	c.ledger.Write(e)
}

// noted returns the answer to a call, and notes whether the call changed anything.
func noted[R any](ctx context.Context, answer *R, changed bool, err error) (*R, error) {
	if err != nil {
		return nil, err
	}
	note(ctx, changed, "", "")
	return answer, nil
}

// pendingKey identifies the object that a call modifies; empty for read-only calls.
func pendingKey(e ledger.Entry) string {
	switch {
	case strings.Contains(e.Method, "Get"), strings.HasPrefix(e.Method, "List"), strings.HasPrefix(e.Method, "Validate"):
		return ""
	case e.Snapshot != "":
		return "snapshot " + e.Snapshot
	case e.Name != "":
		return "name " + e.Name
	case e.Volume != "":
		return "volume " + e.Volume
	}
	return ""
}
