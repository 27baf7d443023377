package provision

import (
	"context"
	"errors"
	"slices"
	"testing"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/sources"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/snapshottest"
)

func fromSnapshot() func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) {
		c.Spec.DataSource = snapshottest.ClaimFrom("", "snap", "").Spec.DataSource
	}
}

// fresh returns a snapshot without protection.
func fresh() *request.Snapshot {
	return snapshottest.Of(driverName, "snap", func(s *request.Snapshot) { s.Protected = false })
}

func TestSnapshotIsProtectedDuringRestore(t *testing.T) {
	w := newWorld(t)
	w.failing(true, class(errclass.Uncertain))
	shop := snapshottest.New(fresh())
	p := w.start(Config{Snapshots: shop})
	w.makeClaim(fromSnapshot())
	w.waitUnseen()
	if want := []string{"add snap"}; !slices.Equal(shop.Calls(), want) {
		t.Fatalf("%q, want %q", shop.Calls(), want)
	}
	shop.Delete("snap")
	sweeper, err := sources.NewSweeper(&rest.Config{}, driverName, shop, sources.SweeperConfig{Uses: p.provisioner})
	w.must(err)
	n := w.count("create volume")
	w.wait("the driver was asked again", func() bool { return w.count("create volume") > n+1 })
	w.must(sweeper.Sweep(t.Context()))
	if !shop.Protected("snap") {
		t.Fatal("the snapshot was freed while it is restored")
	}
	w.failing(false, nil)
	w.wait("the claim is provisioned", w.provisioned)
	w.wait("the snapshot is free", func() bool { return !shop.Protected("snap") })
	if want := []string{"add snap", "remove snap"}; !slices.Equal(shop.Calls(), want) {
		t.Errorf("%q, want %q", shop.Calls(), want)
	}
}

// The last of several claims that are restored from one snapshot frees it.
func TestSnapshotIsProtectedUntilTheLastRestore(t *testing.T) {
	w := newWorld(t)
	w.failing(true, class(errclass.Uncertain))
	shop := snapshottest.New(fresh())
	w.start(Config{Snapshots: shop})
	w.makeClaim(fromSnapshot())
	w.makeClaim(fromSnapshot(), named("second", "u2"))
	w.wait("both volumes are made unseen", func() bool { return len(w.onDisk()) == 2 })
	w.failing(false, nil)
	w.wait("the snapshot is free", func() bool { return !shop.Protected("snap") })
	if shop.Count("add") != shop.Count("remove") {
		t.Errorf("%q", shop.Calls())
	}
	if !w.knownVolumes() { // entries may still be on their way out of the log
		t.Errorf("the snapshot is free while volumes are in flight: %v", w.inFlight())
	}
}

// A claim that is refused or deleted leaves the snapshot without protection.
func TestSnapshotOfARefusedClaimIsFreed(t *testing.T) {
	w := newWorld(t)
	w.failing(false, class(errclass.Refused))
	shop := snapshottest.New(fresh())
	w.start(Config{Snapshots: shop})
	w.makeClaim(fromSnapshot())
	w.wait("the driver has refused, and the snapshot is free", func() bool {
		return w.count("create volume") > 0 && shop.Count("remove") > 0
	})
	w.deleteClaim()
	w.wait("the snapshot is free", func() bool { return !shop.Protected("snap") })
}

// The end of a claim comes while a try has reserved its source, and the try opens no entry, whose end would free it.
func TestSnapshotOfClaimDeletedDuringTryIsFreed(t *testing.T) {
	w, snap := newWorld(t), fresh()
	shop := snapshottest.New(snap)
	p := w.start(Config{Snapshots: shop}).provisioner
	source := volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: snap.Namespace, Name: snap.Name, UID: snap.UID}
	try := &run{Controller: p, claimKey: refTo("data", "gone"),
		reserved: map[volume.SourceRef]func(){source: p.protected.reserve(source)}}
	w.wait("it works", p.working)
	w.must(p.protectSource(t.Context(), source))
	p.freeSource(t.Context(), source) // as the end of the claim has it
	if !shop.Protected("snap") {
		t.Fatal("the snapshot lost its protection during the try")
	}
	try.end()
	w.wait("the snapshot is free", func() bool { return !shop.Protected("snap") })
}

// TestSourceFreedBetweenTwoTriesIsProtectedAgain: the first try protects the snapshot, but gets no entry. The end of
// another restore frees the snapshot before the second try.
func TestSourceFreedBetweenTwoTriesIsProtectedAgain(t *testing.T) {
	w := newWorld(t)
	shop := snapshottest.New(fresh())
	var calls []string
	w.call = func(volume string) error {
		if calls = append(calls, volume); !shop.Protected("snap") {
			t.Errorf("CreateVolume of %s from a snapshot that can be deleted meanwhile", volume)
		}
		return nil
	}
	w.refuse(inflight.ErrShare)
	p := w.make(Config{Snapshots: shop}).waitsLong().start().provisioner
	w.makeClaim(fromSnapshot())
	w.wait("the log has no room", func() bool { return p.tracker.retryOf("pvc-u1").count > 0 })
	w.refuse(nil)
	w.makeClaim(fromSnapshot(), named("second", "u2"))
	w.wait("the second restore frees it", func() bool { return !shop.Protected("snap") })
	w.update(func(c *v1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, "example.com/team", "x") // ends the delay of the first
	})
	w.wait("the first is restored, and the snapshot free", func() bool {
		return w.pv() != nil && !shop.Protected("snap")
	})
	if len(calls) != 2 {
		t.Errorf("calls for %q", calls)
	}
}

// TestReservationEndsWithTheRun: a request for the next node may be followed by a call of the first one.
func TestReservationEndsWithTheRun(t *testing.T) {
	r, _ := observing(t, Config{}, claimsOf{claimAt("1")}, nil)
	of := volume.SourceRef{Kind: volume.SourceClaim, Namespace: "ns", Name: "source"}
	r.claim, r.wanted = claimAt("1"), &storagev1.StorageClass{}
	r.prepared, r.reserved[of] = map[string]string{}, r.protected.reserve(of)
	if err := r.buildRequest(t.Context()); err != nil || r.prepared != nil || !r.protected.isReserved(of) {
		t.Errorf("%v, reserved %t", err, r.protected.isReserved(of))
	}
	if err := r.holdSource(t.Context(), inflight.Request{}); err != nil || len(r.reserved) > 1 {
		t.Errorf("%v; a request without a source reserves one: %d", err, len(r.reserved))
	}
	if r.end(); r.protected.isReserved(of) {
		t.Error("reserved after the run")
	}
}

func TestUnwritableSnapshotIsRestored(t *testing.T) {
	w := newWorld(t)
	shop := snapshottest.New(fresh())
	shop.Fail("add", forbidden())
	w.start(Config{Snapshots: shop})
	w.makeClaim(fromSnapshot())
	w.wait("the claim is provisioned", w.provisioned)
	if n := shop.Count("remove"); n != 0 {
		t.Errorf("%q", shop.Calls())
	}
}

// A source that cannot be protected is not used before the first call. A request that may have been sent is finished.
func TestUnprotectableSource(t *testing.T) {
	w := newWorld(t)
	shop := snapshottest.New(fresh())
	shop.Fail("add", errors.New("etcd is away"))
	p := w.start(Config{Snapshots: shop})
	w.makeClaim(fromSnapshot())
	w.wait("it was tried", func() bool { return shop.Count("add") > 1 })
	if n := w.count("create volume"); n != 0 {
		t.Errorf("%d CreateVolume calls from a snapshot that can be deleted meanwhile", n)
	}
	w.failing(true, class(errclass.Uncertain))
	shop.Fail("add", nil)
	w.waitUnseen()
	p.stop()
	shop.Lose("snap")
	n := w.count("create volume")
	w.failing(false, nil)
	w.start(Config{Snapshots: shop})
	w.wait("the claim is provisioned", w.provisioned)
	if w.count("create volume") == n {
		t.Error("the driver was not asked again")
	}
}

// The API server adds no finalizer to a terminating object, so no volume is begun from it.
func TestTerminatingSnapshotIsNotRestored(t *testing.T) {
	w := newWorld(t)
	shop := snapshottest.New(
		snapshottest.Of(driverName, "snap", func(s *request.Snapshot) { s.Protected, s.Deleting = false, true }),
	)
	w.start(Config{Snapshots: shop})
	w.makeClaim(fromSnapshot())
	w.wait("it was tried", func() bool { return shop.Count("add") > 1 })
	if n := w.count("create volume"); n != 0 {
		t.Errorf("%d CreateVolume calls", n)
	}
}

// The source's turn keeps one worker from removing a protection that another worker relies on. It covers additions,
// removals and checks for use.
func TestProtectionIsAddedAndRemovedInTurns(t *testing.T) {
	w := newWorld(t)
	shop := snapshottest.New(fresh())
	p := w.make(Config{Snapshots: shop}).provisioner
	w.must(p.log.TakeOver(t.Context()))
	p.working = func() bool { return true }
	of := volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "ns", Name: "snap", UID: "u-snap"}
	name := of
	name.UID = ""
	var alone []string
	shop.Before = func(what string) {
		if turn := p.protected.turnOf(of); turn.TryLock() {
			turn.Unlock()
			alone = append(alone, what)
		}
	}
	for range 2 {
		w.must(p.protectSource(t.Context(), of))
		if _, known := p.protected.snapshot(name); !known || !shop.Protected("snap") {
			t.Errorf("known %v, protected %v", known, shop.Protected("snap"))
		}
		w.must(p.freeSnapshot(t.Context(), name))
		if _, known := p.protected.snapshot(name); known || shop.Protected("snap") {
			t.Errorf("known %v, protected %v", known, shop.Protected("snap"))
		}
	}
	if len(alone) > 0 {
		t.Errorf("%q without the source's turn", alone)
	}
	if want := []string{"add snap", "remove snap", "add snap", "remove snap"}; !slices.Equal(shop.Calls(), want) {
		t.Errorf("%q, want %q", shop.Calls(), want)
	}
}

// A source is kept until it is known to be unused.
func TestIfUnused(t *testing.T) {
	bound := func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }
	others := func(c *v1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{volume.AnnProvisioner: "another.csi.example.com"}
	}
	afar := func(c *v1.PersistentVolumeClaim) { *c = *snapshottest.ClaimFrom("afar", "snap", "ns") }
	elsewhere := func(c *v1.PersistentVolumeClaim) { *c = *snapshottest.ClaimFrom("afar", "snap", "another") }
	for name, c := range map[string]struct {
		claim    []func(*v1.PersistentVolumeClaim)
		asleep   bool
		inFlight bool
		cfg      Config
		wantUsed bool
	}{
		"one of ours that is in flight":           {nil, false, true, Config{}, true},
		"in flight, beside another provisioner":   {nil, false, true, Config{FinishOnly: true}, true},
		"one of ours that is not begun":           {nil, false, false, Config{}, false},
		"possibly begun by another node":          {nil, false, false, onNode("n1"), true},
		"one of ours that is bound":               {[]func(*v1.PersistentVolumeClaim){bound}, false, false, Config{}, false},
		"one of ours that is bound and in flight": {[]func(*v1.PersistentVolumeClaim){bound}, false, true, Config{}, true},
		"another's without a volume":              {[]func(*v1.PersistentVolumeClaim){others}, false, false, Config{}, true},
		"another's that is bound": {[]func(*v1.PersistentVolumeClaim){others, bound}, false, false,
			Config{}, false},
		"another's of another namespace": {[]func(*v1.PersistentVolumeClaim){afar, others}, false, false, Config{},
			false},
		"of another namespace, begun by another node": {[]func(*v1.PersistentVolumeClaim){afar}, false, false,
			onNode("n1"), true},
		"a claim that names another of the name": {[]func(*v1.PersistentVolumeClaim){elsewhere, others}, false, false,
			Config{}, false},
		"not observed yet": {nil, true, false, Config{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			process := w.make(c.cfg)
			p := process.provisioner
			p.working = func() bool { return !c.asleep }
			w.must(process.log.TakeOver(t.Context()))
			if c.inFlight {
				w.entries[process.node+"pvc-u1"] = inflight.Entry{Volume: "pvc-u1", Requests: []inflight.Request{
					{Source: &volume.SourceRef{Kind: "VolumeSnapshot", Namespace: "ns", Name: "snap", UID: "u-snap"}}}}
			}
			claim := snapshottest.ClaimFrom("data", "snap", "")
			claim.Annotations = map[string]string{volume.AnnProvisioner: driverName}
			for _, change := range c.claim {
				change(claim)
			}
			w.must(w.client.Tracker().Add(claim))
			process.showClaims()
			called := false
			unused, err := p.IfUnused(t.Context(), volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "ns",
				Name: "snap", UID: "u"}, func(context.Context) error {
				called = true
				return nil
			})
			if err != nil || unused == c.wantUsed || called != unused {
				t.Errorf("unused %v, called %v, %v", unused, called, err)
			}
		})
	}
}

// forbidden returns the API server's error for a missing permission.
func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshots"},
		"s", nil)
}

// makeSource creates a bound claim of driverName that is protected while it is cloned.
func (w *world) makeSource() {
	w.makeClaim(func(c *v1.PersistentVolumeClaim) {
		c.Name, c.UID, c.Spec.VolumeName = "source", "u-source", "pv-source"
		c.Finalizers = []string{request.CloningFinalizer}
	})
	w.makePV("pv-source", driverName, "vol-source", refTo("source", "u-source"))
}

// looking is a cluster that reports each read of a PV.
type looking struct {
	cluster
	looked chan string
}

func (l looking) readPV(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	pv, err := l.cluster.readPV(ctx, name)
	l.looked <- name
	return pv, err
}

// TestAnotherDriversControllerLeavesTheSource runs the controllers of two drivers. Only the controller of the source's
// driver knows that a clone is in flight.
func TestAnotherDriversControllerLeavesTheSource(t *testing.T) {
	w := newWorld(t)
	w.failing(true, class(errclass.Uncertain))
	other := w.makeOf("another.csi.example.com", Config{})
	looked := make(chan string, 100)
	other.provisioner.cluster = looking{other, looked}
	own := w.make(Config{})
	other.start()
	own.start()
	w.makeSource()
	w.makeClaim(cloning)
	w.wait("the clone is made unseen", func() bool { return len(w.onDisk()) == 1 })
	for _, step := range []func(){
		func() { w.deleteNamed("source") },
		w.deleteClaim, // now only the log of its driver names the source
	} {
		step()
		select {
		case <-looked:
		case <-w.ctx().Done():
			t.Fatal("the other driver's controller does not look whose the source is")
		}
	}
	other.stop()
	if w.sourceGone() || w.settled() {
		t.Fatal("another driver's controller has freed the source while a clone of it is in flight")
	}
	w.failing(false, nil)
	w.wait("the clone is settled, and its source free", func() bool { return w.settled() && w.sourceGone() })
}

// TestCloneSourceIsProtectedInTurns checks that no worker frees a claim while another volume begins from it.
func TestCloneSourceIsProtectedInTurns(t *testing.T) {
	w := newWorld(t)
	w.makeSource()
	p := w.make(Config{}).provisioner
	w.must(p.log.TakeOver(t.Context()))
	p.working = func() bool { return true }
	of := volume.SourceRef{Kind: volume.SourceClaim, Namespace: "ns", Name: "source", UID: "u-source"}
	var alone []string
	p.cluster = turned{p.cluster, func(what string) {
		if turn := p.protected.turnOf(of); turn.TryLock() {
			turn.Unlock()
			alone = append(alone, what)
		}
	}}
	w.must(p.protectSource(t.Context(), of))
	p.claims.ClaimCache = claimsOf{claimAt("1", terminating, func(c *v1.PersistentVolumeClaim) {
		c.Name, c.UID, c.Spec.VolumeName = "source", "u-source", "pv-source"
	})}
	w.must(p.freeClaim(t.Context(), of))
	if want := []string{"hold", "free"}; len(alone) > 0 || w.count("hold source") != 1 || w.count("free source") != 1 {
		t.Errorf("%q without the source's turn; recorded %q, want %q", alone, w.recorded(), want)
	}
}

// turned is a cluster that calls during while a source is held or freed.
type turned struct {
	cluster
	during func(what string)
}

func (c turned) holdSource(ctx context.Context, source volume.SourceRef) error {
	c.during("hold")
	return c.cluster.holdSource(ctx, source)
}

func (c turned) freeSource(ctx context.Context, source volume.SourceRef) error {
	c.during("free")
	return c.cluster.freeSource(ctx, source)
}
