package provision

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/snapshottest"
)

// expiring is a cluster whose reads outlast the lease.
type expiring struct {
	cluster
	lease *renewed
}

func (e expiring) readSecret(ctx context.Context, ref v1.SecretReference) (map[string]string, error) {
	e.lease.Store(0)
	return e.cluster.readSecret(ctx, ref)
}

func (e expiring) readPV(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	e.lease.Store(0)
	return e.cluster.readPV(ctx, name)
}

func (e expiring) readClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	e.lease.Store(0)
	return e.cluster.readClaim(ctx, namespace, name)
}

// leading returns a run of a process that holds its lease until it reads from the API server.
func leading(t *testing.T, cfg Config, claims claimsOf) (*run, *processLog, *renewed) {
	t.Helper()
	left := &renewed{}
	left.Store(int64(time.Minute))
	cfg.Lease = left
	r, log := observing(t, cfg, claims, pvsOf{})
	r.cluster = expiring{r.cluster, left}
	r.working = func() bool { return true }
	return r, log, left
}

// TestNoCallAfterLease: the lease ends while the Secret of a call is read.
func TestNoCallAfterLease(t *testing.T) {
	source := &volume.SourceRef{Kind: volume.SourceClaim, Namespace: "ns", Name: "source", UID: "u-source"}
	for action, of := range map[provision.Action]*volume.SourceRef{
		provision.Prepare: source, provision.CreateVolume: nil, provision.DeleteVolume: nil,
	} {
		t.Run(action.String(), func(t *testing.T) {
			r, log, _ := leading(t, Config{}, claimsOf{claimAt("1")})
			r.built = mustBuild(t)
			r.built.Source = of
			r.track.entry.Requests = []inflight.Request{*r.built}
			r.facts.Log, r.facts.Record = provision.LogOpen, provision.Opened("u1", provision.Request{})
			r.facts.Record.Handle = "vol-1"
			err := r.act(t.Context(), provision.Decision{Action: action})
			if !errors.Is(err, leadership.ErrExpired) || reasonOf(err) != provision.ReasonNotLeading {
				t.Errorf("%v, with the reason %s", err, reasonOf(err))
			}
			if calls := log.recorded(); len(calls) > 0 || r.facts.Record.Begun() {
				t.Errorf("it called %q, begun %t", calls, r.facts.Record.Begun())
			}
		})
	}
}

// TestRepeatedRequestWaitsForLease: a request that was begun is repeated without the protection of its source, but not
// without the lease, and the next try protects the source.
func TestRepeatedRequestWaitsForLease(t *testing.T) {
	r, log, left := leading(t, Config{}, nil)
	asked := *mustBuild(t)
	asked.Source = &volume.SourceRef{Kind: volume.SourceClaim, Namespace: "ns", Name: "source", UID: "u-source"}
	r.facts.Log, r.facts.Record = provision.LogOpen, provision.Opened("u1", provision.Request{})
	r.facts.Record.Sending()
	left.Store(0)
	if err := r.holdSource(t.Context(), asked); reasonOf(err) != provision.ReasonNotLeading || r.track.holds != "" {
		t.Errorf("%v, with the reason %s, holds %q", err, reasonOf(err), r.track.holds)
	}
	left.Store(1)
	if err := r.holdSource(t.Context(), asked); err != nil || log.count("hold source") != 1 {
		t.Errorf("%v, records %q", err, log.recorded())
	}
}

// TestSourceIsKeptWithoutLease covers a lease that ends while the PV of a cloned claim is read, and before a snapshot
// is freed.
func TestSourceIsKeptWithoutLease(t *testing.T) {
	shop := snapshottest.New(fresh())
	bound := func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-source" }
	r, log, left := leading(t, Config{Snapshots: shop}, claimsOf{claimAt("1", terminating, bound)})
	snap := volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "ns", Name: "snap", UID: "u-snap"}
	must.OK(t, r.protectSource(t.Context(), snap))
	snap.UID = "" // as in the queue
	claim := volume.SourceRef{Kind: volume.SourceClaim, Namespace: "ns", Name: "data"}
	for _, of := range []volume.SourceRef{claim, snap} {
		if got := r.freeSource(t.Context(), of); got != r.retries().Retry() {
			t.Errorf("%s comes back %+v", of.Kind, got)
		}
	}
	if log.count("free source") > 0 || !shop.Protected("snap") {
		t.Errorf("records %q, %q", log.recorded(), shop.Calls())
	}
	left.Store(1)
	if got := r.freeSource(t.Context(), snap); got != controller.Done() || shop.Protected("snap") {
		t.Errorf("with the lease, it comes back %+v", got)
	}
}

// TestNoNodeIsSelectedAfterLease covers a lease that ends while a changed claim is read, and while the driver is asked
// for its room.
func TestNoNodeIsSelectedAfterLease(t *testing.T) {
	r, log, _ := leading(t, Config{}, nil)
	log.makeClaim(selecting("n1"))
	r.claim, log.conflicts = log.claim().DeepCopy(), true
	if err := r.deselect(t.Context()); !errors.Is(err, leadership.ErrExpired) || log.count("select ") != 1 {
		t.Errorf("%v, records %q", err, log.recorded())
	}

	w := newWorld(t)
	p, clock, turn := w.still("n2")
	left := &renewed{}
	left.Store(1)
	p.provisioner.cfg.Lease = left
	w.room = func(string, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
		left.Store(0)
		return &csi.GetCapacityResponse{AvailableCapacity: 10}, nil
	}
	w.makeClaim(asking)
	p.shown()
	turn()
	clock.Step(time.Second)
	if got := turn(); got != p.provisioner.retries().Retry() || w.count("select n2") > 0 {
		t.Errorf("%+v, records %q", got, w.recorded())
	}
}
