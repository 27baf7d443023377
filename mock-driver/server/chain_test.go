package server_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/server"
)

// blockDeletes makes each DeleteVolume wait until the call's own deadline, or until the driver stops.
func (d driver) blockDeletes(t *testing.T) {
	t.Helper()
	d.setFaults(t, faults.Rule{Name: "block", Method: "DeleteVolume", Action: faults.Hang})
}

func wantCanceled(t *testing.T, err error) {
	t.Helper()
	wantCode(t, "the deletion that was given up", err, codes.Canceled)
}

// startDelete begins a deletion that hangs, and returns when the fault is applied.
func (d driver) startDelete(t *testing.T, id string) (cancel func(), answer <-chan error) {
	t.Helper()
	before := d.faults.Status().Counters[0].Applied
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.deleted(ctx, id) }()
	for deadline := time.After(time.Minute); d.faults.Status().Counters[0].Applied == before; {
		select {
		case err := <-done:
			stop()
			t.Fatalf("DeleteVolume is answered: %v", err)
		case <-deadline:
			stop()
			t.Fatal("DeleteVolume does not arrive")
		case <-time.After(time.Millisecond):
		}
	}
	return stop, done
}

func TestMaxCalls(t *testing.T) {
	for name, refuse := range map[string]bool{"further calls wait": false, "further calls are refused": true} {
		t.Run(name, func(t *testing.T) {
			d := serve(t, "full", func(c *server.Config, _ *backend.Config) { c.MaxCalls, c.RefuseCalls = 1, refuse })
			d.blockDeletes(t)
			cancel, answer := d.startDelete(t, "v1")
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			further := make(chan error, 1)
			go func() { further <- d.capacity(ctx) }()
			_, err := ledger.Wait(t.Context(), d.ledger,
				func(calls []ledger.Call) bool { return len(ledger.Select(calls, "GetCapacity")) == 1 })
			check(t, err)
			if _, err := d.identity.Probe(t.Context(), &csi.ProbeRequest{}); err != nil {
				t.Errorf("Probe is kept out: %v", err)
			}
			want := codes.ResourceExhausted
			if !refuse {
				// A call that is let through is answered about when the Probe is.
				want = codes.Canceled
				giveUp()
			}
			wantCode(t, "beyond the limit", <-further, want)
			cancel()
			wantCanceled(t, <-answer)
			if err := d.capacity(t.Context()); !refuse && err != nil {
				t.Errorf("once there is room: %v", err)
			}
		})
	}
}

func TestPendingOperation(t *testing.T) {
	d := serve(t, "full", func(c *server.Config, _ *backend.Config) { c.AbortPending = true })
	d.blockDeletes(t)
	cancel, answer := d.startDelete(t, "v1")
	wantCode(t, "the same volume", d.deleted(t.Context(), "v1"), codes.Aborted)
	_, err := d.controller.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: "v1"})
	wantCode(t, "only looking at it", err, codes.NotFound)
	cancelOther, otherAnswer := d.startDelete(t, "v2") // It arrives, so it was let through.
	cancelOther()
	wantCanceled(t, <-otherAnswer)
	cancel()
	wantCanceled(t, <-answer)
}

func TestStopReleasesSilentCalls(t *testing.T) {
	d := serve(t, "full", nil)
	d.setFaults(t, faults.Rule{Method: "DeleteVolume", Action: faults.Silence})
	cancel, answer := d.startDelete(t, "v1")
	defer cancel()
	d.stop()
	wantCode(t, "stopped", <-answer, codes.Unavailable)
}

func TestReadyAfter(t *testing.T) {
	begin := time.Now()
	var passed atomic.Int64
	d := serve(t, "full", func(c *server.Config, _ *backend.Config) {
		c.ReadyAfter = time.Minute
		c.Now = func() time.Time { return begin.Add(time.Duration(passed.Load())) }
	})
	for _, want := range []codes.Code{codes.Unavailable, codes.OK} {
		ready := want == codes.OK
		probe, err := d.identity.Probe(t.Context(), &csi.ProbeRequest{})
		if err != nil || probe.GetReady().GetValue() != ready {
			t.Errorf("Probe: got %v, %v, want %v", probe.GetReady(), err, ready)
		}
		wantCode(t, "GetCapacity", d.capacity(t.Context()), want)
		passed.Store(int64(time.Minute))
	}
}

func TestRequiredSecrets(t *testing.T) {
	d := serve(t, "full", func(c *server.Config, _ *backend.Config) {
		c.Secrets = map[string]string{"user": "", "password": "hunter2"}
	})
	for name, c := range map[string]struct {
		secrets map[string]string
		want    codes.Code
	}{
		"all":     {secrets: map[string]string{"user": "anyone", "password": "hunter2"}},
		"missing": {secrets: map[string]string{"password": "hunter2"}, want: codes.Unauthenticated},
		"wrong":   {secrets: map[string]string{"user": "anyone", "password": "guess"}, want: codes.Unauthenticated},
		"none":    {want: codes.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.controller.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "v", Secrets: c.secrets})
			wantCode(t, name, err, c.want)
			if strings.Contains(status.Convert(err).Message(), "hunter2") {
				t.Errorf("the answer contains the secret: %v", err)
			}
		})
	}
	wantCode(t, "a call that carries no secrets", d.capacity(t.Context()), codes.OK)
}

// empty returns the error of a call with an empty request.
func empty[Q, A any](t *testing.T, call func(context.Context, *Q, ...grpc.CallOption) (*A, error)) error {
	t.Helper()
	_, err := call(t.Context(), new(Q))
	return err
}

func TestUnadvertisedCallsAreUnimplemented(t *testing.T) {
	d := serve(t, "minimal", nil)
	c, n := d.controller, d.node
	for name, err := range map[string]error{
		"ListVolumes":             empty(t, c.ListVolumes),
		"GetCapacity":             empty(t, c.GetCapacity),
		"ControllerPublishVolume": empty(t, c.ControllerPublishVolume),
		"CreateSnapshot":          empty(t, c.CreateSnapshot),
		"ListSnapshots":           empty(t, c.ListSnapshots),
		"GetSnapshot":             empty(t, c.GetSnapshot),
		"ControllerExpandVolume":  empty(t, c.ControllerExpandVolume),
		"ControllerGetVolume":     empty(t, c.ControllerGetVolume),
		"ControllerModifyVolume":  empty(t, c.ControllerModifyVolume),
		"NodeStageVolume":         empty(t, n.NodeStageVolume),
		"NodeGetVolumeStats":      empty(t, n.NodeGetVolumeStats),
		"NodeExpandVolume":        empty(t, n.NodeExpandVolume),
		"NodeGetVolumeHealth":     empty(t, n.NodeGetVolumeHealth),
	} {
		wantCode(t, name, err, codes.Unimplemented)
	}
	d = serve(t, "node-only", nil)
	wantCode(t, "controller service of a node-only driver", empty(t, d.controller.ControllerGetCapabilities),
		codes.Unimplemented)
	d = serve(t, "static", nil)
	wantCode(t, "DeleteVolume of a static driver", empty(t, d.controller.DeleteVolume), codes.Unimplemented)
}

func TestLedgerEntries(t *testing.T) {
	d := serve(t, "full", nil)
	id := d.create(t, "pvc-1")
	d.create(t, "pvc-1")
	d.setFaults(t, faults.Rule{Name: "lie", Method: "DeleteVolume", Action: faults.Fail, Code: "Internal",
		AfterWork: true, First: 2})
	for range 3 {
		_, _ = d.controller.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id,
			Secrets: map[string]string{"b": "canary", "a": "canary"}})
	}
	created := d.calls(t, "CreateVolume", 2)
	for i, changed := range []bool{true, false} {
		if c := created[i]; c.Changed != changed || c.Volume != id || c.Name != "pvc-1" || c.Code != "OK" {
			t.Errorf("creation %d: got %+v", i, c)
		}
	}
	deleted := d.calls(t, "DeleteVolume", 3)
	for i, want := range []ledger.Call{
		{Changed: true, Code: "Internal", Did: "OK", Faults: []string{"lie"}, Error: "injected fault lie"},
		{Code: "Internal", Did: "OK", Faults: []string{"lie"}, Error: "injected fault lie"},
		{Code: "OK"},
	} {
		c := deleted[i]
		if c.Changed != want.Changed || c.Code != want.Code || c.Did != want.Did || c.Error != want.Error ||
			!slices.Equal(c.Faults, want.Faults) || c.Volume != id {
			t.Errorf("deletion %d: got %+v, want %+v", i, c, want)
		}
		if !slices.Equal(c.SecretKeys, []string{"a", "b"}) {
			t.Errorf("deletion %d: got secret keys %q", i, c.SecretKeys)
		}
		if c.Changed && (c.Done.Before(c.Received) || c.Answered.Before(c.Done)) {
			t.Errorf("deletion %d: times are out of order: %+v", i, c)
		}
	}
}

func TestLedgerRequestDigest(t *testing.T) {
	d := serve(t, "full", nil)
	for _, r := range []struct{ secret, filesystem string }{{"canary", "ext4"}, {"another", "ext4"}, {"canary", "xfs"}} {
		capability := writer()
		capability.GetMount().FsType = r.filesystem
		_, _ = d.controller.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "pvc-1",
			Secrets: map[string]string{"key": r.secret}, VolumeCapabilities: []*csi.VolumeCapability{capability}})
	}
	calls := d.calls(t, "CreateVolume", 3)
	if a, b, c := calls[0].Request, calls[1].Request, calls[2].Request; a == "" || a != b || a == c {
		t.Errorf("the digests are %q, with another secret %q, of another request %q", a, b, c)
	}
}

func TestFaultByVolumeName(t *testing.T) {
	d := serve(t, "full", nil)
	bad, good := d.create(t, "pvc-bad"), d.create(t, "pvc-good")
	d.setFaults(t, faults.Rule{Method: "DeleteVolume", VolumeName: "*-bad", Action: faults.Fail, Code: "Unavailable"})
	for id, want := range map[string]codes.Code{bad: codes.Unavailable, good: codes.OK} {
		wantCode(t, id, d.deleted(t.Context(), id), want)
	}
}
