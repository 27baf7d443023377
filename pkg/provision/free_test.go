package provision

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/snapshottest"
)

// terminating makes a claim wait for the end of its protection.
func terminating(c *v1.PersistentVolumeClaim) {
	c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: time.Now()}, []string{request.CloningFinalizer}
}

func TestFreeSource(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    Config
		claims claimsOf
		frees  bool
	}{
		"a claim that is terminating": {Config{}, claimsOf{claimAt("1", terminating)}, true},
		"not a claim that stays": {
			Config{}, claimsOf{claimAt("1", func(c *v1.PersistentVolumeClaim) {
				c.Finalizers = []string{request.CloningFinalizer}
			})}, false,
		},
		"not one without it": {
			Config{}, claimsOf{claimAt("1", terminating, func(c *v1.PersistentVolumeClaim) { c.Finalizers = nil })}, false,
		},
		"not one of another node":  {onNode("n1"), claimsOf{claimAt("1", terminating, selecting("n2"))}, false},
		"not a claim that is gone": {Config{}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, log := observing(t, c.cfg, c.claims, nil)
			r.working = func() bool { return true }
			of := volume.SourceRef{Kind: volume.SourceClaim, Namespace: "ns", Name: "data"}
			if got := r.freeSource(t.Context(), of); got != controller.Done() {
				t.Errorf("comes back %+v", got)
			}
			if n := log.count("free source"); n > 1 || (n == 1) != c.frees {
				t.Errorf("%d writes", n)
			}
		})
	}
}

func TestOnlyTheDriverOfItsVolumeFreesAClaim(t *testing.T) {
	csi := func(driver string) v1.PersistentVolumeSource {
		return v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver}}
	}
	shows := func(driver string) pvsOf { return pvsOf{"pv-source": {Name: "pv-source", Driver: driver}} }
	for name, c := range map[string]struct {
		cached pvsOf
		live   *v1.PersistentVolumeSource
		frees  bool
	}{
		"of this driver":                {shows(driverName), nil, true},
		"of this driver, not shown yet": {nil, ptr.To(csi(driverName)), true},
		"of another driver":             {nil, ptr.To(csi("another.csi.example.com")), false},
		"of another driver, and shown":  {shows("another"), ptr.To(csi("another")), false},
		"of another driver, in-tree": {nil, &v1.PersistentVolumeSource{
			AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}, false},
		"its PV is gone": {nil, nil, true},
		"no CSI volume":  {nil, &v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}, true},
	} {
		bound := func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-source" }
		r, log := observing(t, Config{}, claimsOf{claimAt("1", terminating, bound)}, c.cached)
		r.working = func() bool { return true }
		if c.live != nil {
			must.OK(t, log.client.Tracker().Add(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-source"},
				Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: *c.live}}))
		}
		of := volume.SourceRef{Kind: volume.SourceClaim, Namespace: "ns", Name: "data"}
		if got := r.freeSource(t.Context(), of); got != controller.Done() || (log.count("free source") == 1) != c.frees {
			t.Errorf("%s: comes back %+v, %d writes", name, got, log.count("free source"))
		}
	}
}

// TestSourceIsKeptWhileItsPVCannotBeRead: no event follows when the API server answers again.
func TestSourceIsKeptWhileItsPVCannotBeRead(t *testing.T) {
	bound := func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-source" }
	r, log := observing(t, Config{}, claimsOf{claimAt("1", terminating, bound)}, nil)
	r.working = func() bool { return true }
	log.client.PrependReactor("get", "persistentvolumes", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errLost
	})
	of := volume.SourceRef{Kind: volume.SourceClaim, Namespace: "ns", Name: "data"}
	if got := r.freeSource(t.Context(), of); got != r.retries().Retry() || log.count("free source") > 0 {
		t.Errorf("comes back %+v, %d writes", got, log.count("free source"))
	}
}

func TestFreeSnapshotErrors(t *testing.T) {
	name := volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "ns", Name: "snap"}
	for what, c := range map[string]struct {
		fail  error
		again bool
	}{
		"removed":                  {nil, false},
		"it is gone":               {fmt.Errorf("patch: %w", kube.ErrGone), false},
		"it may not be written":    {forbidden(), false},
		"the API server is away":   {errors.New("timeout"), true},
		"it has changed meanwhile": {fmt.Errorf("patch: %w", kube.ErrChanged), true},
	} {
		t.Run(what, func(t *testing.T) {
			shop := snapshottest.New(fresh())
			r, _ := observing(t, Config{Snapshots: shop}, nil, nil)
			r.working = func() bool { return true }
			of := name
			of.UID = "u-snap"
			must.OK(t, r.protectSource(t.Context(), of))
			shop.Fail("remove", c.fail)
			want := controller.Done()
			if c.again {
				want = r.retries().Retry()
			}
			if got := r.freeSource(t.Context(), name); got != want {
				t.Errorf("comes back %+v, want %+v", got, want)
			}
			if _, known := r.protected.snapshot(name); known != c.again {
				t.Errorf("known %t", known)
			}
			r.freeSource(t.Context(), name)
			if n := shop.Count("remove"); (n == 2) != c.again {
				t.Errorf("%d tries", n)
			}
		})
	}
}

// TestSourceIsKeptWhileTheLogCannotBeRead: the part that cannot be read may have a clone of the claim or a restore of
// the snapshot. An Event names the problem, and the source is checked again until the log can be read.
func TestSourceIsKeptWhileTheLogCannotBeRead(t *testing.T) {
	claim := claimAt("1", terminating)
	for _, of := range []volume.SourceRef{{Kind: volume.SourceClaim, Namespace: "ns", Name: "data"},
		{Kind: volume.SourceSnapshot, Namespace: "ns", Name: "snap"}} {
		t.Run(string(of.Kind), func(t *testing.T) {
			shop, said := snapshottest.New(fresh()), &told{}
			r, log := observing(t, Config{Snapshots: shop, Events: said}, claimsOf{claim}, nil)
			r.working = func() bool { return true }
			frees := func() int { return log.count("free source") }
			if of.Kind == volume.SourceSnapshot {
				snap := of
				snap.UID = "u-snap"
				must.OK(t, r.protectSource(t.Context(), snap))
			}
			log.unreadable = "Lease driver/log-3: a copy"
			for range 2 {
				if got := r.freeSource(t.Context(), of); got != r.retries().Retry() || frees() > 0 {
					t.Errorf("comes back %+v, %d writes", got, frees())
				}
			}
			if len(said.events) != 1 || !said.on(string(of.Kind)+" ", "Warning InFlightLogUnreadable ", " "+log.unreadable) {
				t.Errorf("Events %q, want one that names the problem", said.events)
			}
			log.read = false
			if got := r.freeSource(t.Context(), of); got != r.retries().Retry() || frees() > 0 {
				t.Errorf("not taken over: comes back %+v, %d writes", got, frees())
			}
			log.read, log.unreadable = true, ""
			if got := r.freeSource(t.Context(), of); got != controller.Done() || frees() != 1 {
				t.Errorf("comes back %+v, %d writes", got, frees())
			}
		})
	}
}

// TestProtectionInDoubtIsAddedAgain: a sweep removes a finalizer that this process had added, or the answer to a
// removal is lost.
func TestProtectionInDoubtIsAddedAgain(t *testing.T) {
	shop := snapshottest.New(fresh())
	r, _ := observing(t, Config{Snapshots: shop}, nil, nil)
	r.working = func() bool { return true }
	of := volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "ns", Name: "snap", UID: "u-snap"}
	for _, answer := range []error{nil, errors.New("timeout")} {
		if err := r.protectSource(t.Context(), of); err != nil || !shop.Protected("snap") {
			t.Errorf("not protected: %v", err)
		}
		unused, err := r.IfUnused(t.Context(), of, func(ctx context.Context) error {
			return errors.Join(r.cluster.freeSource(ctx, of), answer)
		})
		if !unused || (err == nil) != (answer == nil) || shop.Protected("snap") {
			t.Errorf("unused %t, %v", unused, err)
		}
	}
	if err := r.protectSource(t.Context(), of); err != nil || !shop.Protected("snap") {
		t.Errorf("not protected: %v", err)
	}
	if err := r.protectSource(t.Context(), of); err != nil || shop.Count("add") != 3 {
		t.Errorf("%v, %q", err, shop.Calls())
	}
}

func TestInUseComparesTheWholeName(t *testing.T) {
	snap := volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "ns", Name: "snap"}
	for name, c := range map[string]struct {
		source volume.SourceRef
		used   bool
	}{
		"the same":               {volume.SourceRef{Kind: "VolumeSnapshot", Namespace: "ns", Name: "snap"}, true},
		"another kind":           {volume.SourceRef{Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "snap"}, false},
		"of another namespace":   {volume.SourceRef{Kind: "VolumeSnapshot", Namespace: "x", Name: "snap"}, false},
		"one of another name":    {volume.SourceRef{Kind: "VolumeSnapshot", Namespace: "ns", Name: "x"}, false},
		"nothing at all, by far": {volume.SourceRef{}, false},
	} {
		r, log := observing(t, Config{}, nil, nil)
		log.entries["pvc-u1"] = inflight.Entry{Volume: "pvc-u1", Requests: []inflight.Request{{Source: &c.source}}}
		if state, _ := r.inUse(snap); (state == volume.InFlightOpen) != c.used {
			t.Errorf("%s: %d", name, state)
		}
	}
	// Two claims name it: one of another provisioner, and one that is bound.
	others := snapshottest.ClaimFrom("theirs", "snap", "")
	others.Annotations = map[string]string{volume.AnnProvisioner: "another.csi.example.com"}
	bound := others.DeepCopy()
	bound.Name, bound.UID, bound.Spec.VolumeName = "bound", "u-bound", "pv"
	w := newWorld(t)
	w.must(w.client.Tracker().Add(others))
	w.must(w.client.Tracker().Add(bound))
	p := w.make(Config{})
	w.must(p.log.TakeOver(t.Context()))
	p.showClaims()
	if state, _ := p.provisioner.inUse(request.SourceOf(others)); state != volume.InFlightOpen {
		t.Error("a claim that is bound has another let the source go")
	}
}
