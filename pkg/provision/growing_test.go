package provision

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/snapshottest"
)

// TestDelayOfRefusedClaimGrows: a name may be handled between two tries, while the claim cannot be provisioned. The
// number of its failures is kept until the claim is gone.
func TestDelayOfRefusedClaimGrows(t *testing.T) {
	const name, first, most = "pvc-u1", 10 * time.Millisecond, time.Hour
	w := newWorld(t)
	w.deleteClass() // so that no claim is provisioned
	w.makeClaim()
	p := w.start(Config{}).provisioner
	w.wait("the claim is in the cache", func() bool { return p.working() && p.claims.WholeByUID("u1") != nil })
	past := p.cfg.Clock.Now().Add(-time.Minute)
	p.tracker.note(inflight.Entry{Volume: name, Claim: refTo("data", "u1")}, true)
	p.tracker.failed(name, ending{}, past, first, most)
	p.try(t.Context(), name)
	p.tracker.failed(name, ending{}, past, first, most)
	if delay := p.tracker.due(name, past); delay != 2*first {
		t.Errorf("the second delay is %v, want %v: the first failure is forgotten", delay, 2*first)
	}
	w.deleteClaim()
	w.wait("the name is forgotten with its claim", func() bool { return !p.tracker.knows(name) })
}

// showClaims fills the watch cache of claims of a process that does not run.
func (p *process) showClaims() {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan struct{})
	watch := p.provisioner.claims.Run // evaluated before a test replaces the cache
	go func() { defer close(ended); watch(ctx) }()
	p.t.Cleanup(func() { cancel(); <-ended })
	p.wait("the claims are shown", func() bool {
		select {
		case <-p.provisioner.claims.Sync().Done():
			return true
		default:
			return false
		}
	})
}

// visited is a cache of claims that counts the claims that it returns.
type visited struct {
	caches.ClaimCache
	n int
}

func (v *visited) Get(name string) (*v1.PersistentVolumeClaim, bool) {
	v.n++
	return v.ClaimCache.Get(name)
}

func (v *visited) Each(visit func(*v1.PersistentVolumeClaim)) {
	v.ClaimCache.Each(func(claim *v1.PersistentVolumeClaim) { v.n++; visit(claim) })
}

// A StorageClass concerns its own claims, and a source the claims that name it, however many claims the cluster has.
func TestEventsVisitOnlyTheClaimsThatTheyConcern(t *testing.T) {
	t.Parallel()
	for _, n := range []int{100, 1_000, 5_000} {
		w := newWorld(t)
		fast, slow := "fast", "slow"
		add := func(name string, class *string, snapshot string) {
			claim := snapshottest.ClaimFrom(name, snapshot, "")
			claim.Annotations = map[string]string{volume.AnnProvisioner: "another.csi.example.com"}
			claim.Spec.StorageClassName = class
			w.must(w.client.Tracker().Add(claim))
		}
		for i := range n {
			add(fmt.Sprint("other-", i), &slow, fmt.Sprint("snap-", i))
		}
		add("data", &fast, "snap")
		process := w.make(Config{})
		p := process.provisioner
		w.must(process.log.TakeOver(t.Context()))
		p.working = func() bool { return false }
		process.showClaims()
		p.working = func() bool { return true }
		count := &visited{ClaimCache: p.claims.ClaimCache}
		p.claims.ClaimCache = count
		for snapshot, want := range map[string]volume.InFlight{
			"snap": volume.InFlightOpen, "snap-7": volume.InFlightOpen, "unknown": volume.InFlightSettled,
		} {
			of := volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: "ns", Name: snapshot}
			if got, problem := p.inUse(of); got != want || problem != "" {
				t.Errorf("%d claims: %s is %v, %q, want %v", n, snapshot, got, problem, want)
			}
		}
		past := p.cfg.Clock.Now().Add(-time.Minute)
		for _, claim := range []types.UID{"u-data", "u-other-7"} {
			p.tracker.failed(p.nameOf(claim), ending{}, past, time.Hour, time.Hour)
		}
		p.classCame(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: fast}})
		if p.tracker.due(p.nameOf("u-data"), past) >= time.Hour {
			t.Errorf("%d claims: the class did not end the delay of its claim", n)
		}
		if p.tracker.due(p.nameOf("u-other-7"), past) < time.Hour {
			t.Errorf("%d claims: the class ended the delay of another's claim", n)
		}
		if count.n > 10 {
			t.Errorf("%d claims: visited %d of them", n, count.n)
		}
	}
}

// An entry that leaves the log concerns the names that it had no room for, however many names are in work.
func TestRoomConcernsOnlyRefusedNames(t *testing.T) {
	t.Parallel()
	now, full := time.Unix(1e9, 0), ending{full: true}
	for _, n := range []int{100, 1_000, 5_000} {
		tracker := newTracker()
		for i := range n {
			// Only a search of all names finds these.
			tracker.of[fmt.Sprint("other-", i)] = &track{retry: retry{ending: full}}
		}
		for name, c := range map[string]struct {
			change  func()
			refused int
		}{
			"it is tried again":        {func() { tracker.failed("pvc", ending{}, now, time.Hour, time.Hour) }, 0},
			"it fails in another way":  {func() { tracker.mark("pvc", ending{slow: true}) }, 0},
			"it finds no room again":   {func() { tracker.mark("pvc", full) }, 1},
			"its claim is gone":        {func() { tracker.forget("pvc") }, 0},
			"its claim is provisioned": {func() { tracker.leave("pvc", volume.ClaimRef{}, 0) }, 0},
		} {
			tracker.mark("pvc", full)
			c.change()
			if got := tracker.refused(n); len(got) != c.refused {
				t.Errorf("%d names: %s: found %d that were refused, want %d", n, name, len(got), c.refused)
			}
		}
	}
}
