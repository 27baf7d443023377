package intree

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// notes is what a process remembers besides what the watch shows. Nothing depends on it but what is
// repeated without: a write, a delay, a twin for a volume that is gone. It is safe for concurrent
// use.
type notes struct {
	sources sources

	mu sync.Mutex
	// done and failed are by the UID of the PV; failed counts the tries.
	done   map[types.UID]Done
	failed map[types.UID]failed
	// leftSince is, by the UID of the PV, since when it has been left to another program.
	leftSince map[types.UID]time.Time
	// managedTwin holds the UIDs of PVs whose twin another program has put its finalizer on: as it is armed, and
	// as soon as it is not, that goes again.
	managedTwin map[types.UID]struct{}
	// goes holds the UIDs of twins whose deletion was accepted.
	goes map[types.UID]struct{}
	// wrote holds, by name, what writes of ours have made of a PV.
	wrote map[string]PV
	// others names the PVs whose finalizer another program put on.
	others map[string]struct{}
}

type failed struct {
	Failure
	tries int
}

func newNotes() *notes {
	return &notes{
		sources: sources{pvs: map[Source]map[string]struct{}{}},
		done:    map[types.UID]Done{}, failed: map[types.UID]failed{}, leftSince: map[types.UID]time.Time{}, managedTwin: map[types.UID]struct{}{}, goes: map[types.UID]struct{}{},
		wrote: map[string]PV{}, others: map[string]struct{}{},
	}
}

// managed notes whether a PV shows that another program manages the finalizer, and returns whether
// that changes the answer of manages.
func (n *notes) managed(name string, shows bool) (turned bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := len(n.others) > 0
	if shows {
		n.others[name] = struct{}{}
	} else {
		delete(n.others, name)
	}
	return before != (len(n.others) > 0)
}

func (n *notes) manages() Manages {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.others) > 0 {
		return ManagesOther
	}
	return ManagesNobody
}

// managesTwin notes that another program has put its finalizer on the twin of a PV.
func (n *notes) managesTwin(of types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.managedTwin[of] = struct{}{}
}

// managesFor is manages for one PV: what was seen on its twin counts for as long as the PV is there. Without
// that a twin would be armed and disarmed in turn, as fast as the API server takes it.
func (n *notes) managesFor(uid types.UID) Manages {
	n.mu.Lock()
	_, seen := n.managedTwin[uid]
	n.mu.Unlock()
	if seen {
		return ManagesOther
	}
	return n.manages()
}

// evidence returns the name of a PV that shows that another program manages the finalizer, the same
// as long as it does, empty for none.
func (n *notes) evidence() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.others) == 0 {
		return ""
	}
	return slices.Min(slices.Collect(maps.Keys(n.others)))
}

// of returns what became of a PV's volume.
func (n *notes) of(uid types.UID) (Done, Failure) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.done[uid], n.failed[uid].Failure
}

// left notes whether a PV is left to another program, and returns since when it has been.
func (n *notes) left(pv PV, is bool, now time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	since, was := n.leftSince[pv.UID]
	switch {
	case !is:
		delete(n.leftSince, pv.UID)
		return time.Time{}
	case !was:
		since = now
		n.leftSince[pv.UID] = since
	}
	return since
}

func (n *notes) volumeDeleted(uid types.UID, claim volume.ClaimRef) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done[uid] = Done{VolumeDeleted: true, Claim: claim}
}

// fail notes that the PV controller could not delete a volume. Each further try waits twice as long,
// up to most.
func (n *notes) fail(uid types.UID, twin PV, now time.Time, first, most time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.failed[uid]
	rest := first
	for range f.tries {
		rest = min(2*rest, most)
	}
	f.tries++
	f.Failure = Failure{Until: now.Add(rest), Message: twin.Message, PluginGone: twin.PluginGone}
	n.failed[uid] = f
}

// accepted notes that the API server took the deletion of a PV.
func (n *notes) accepted(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.goes[uid] = struct{}{}
}

func (n *notes) going(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, going := n.goes[uid]
	return going
}

// write notes what a write of ours has made of a PV, unless the watch has got that far already.
func (n *notes) write(pv PV, reached func(version string) bool) {
	if reached(pv.ResourceVersion) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if before, found := n.wrote[pv.Name]; !found || before.UID != pv.UID || kube.Newer(pv.ResourceVersion, before.ResourceVersion) {
		n.wrote[pv.Name] = pv
	}
}

// written returns what a write of ours has made of a PV, until the watch has got that far.
func (n *notes) written(name string, reached func(version string) bool) (PV, bool) {
	n.mu.Lock()
	pv, found := n.wrote[name]
	n.mu.Unlock()
	if !found {
		return PV{}, false
	}
	if !reached(pv.ResourceVersion) {
		return pv, true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wrote[name] == pv {
		delete(n.wrote, name)
	}
	return PV{}, false
}

// forget ends what is known of a PV that is gone.
func (n *notes) forget(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.done, uid)
	delete(n.failed, uid)
	delete(n.leftSince, uid)
	delete(n.managedTwin, uid)
	delete(n.goes, uid)
	for name, pv := range n.wrote {
		if pv.UID == uid {
			delete(n.wrote, name)
		}
	}
}

// sources tells which PVs name one volume. It is safe for concurrent use.
type sources struct {
	mu  sync.Mutex
	pvs map[Source]map[string]struct{}
}

func (s *sources) add(source Source, pv string) {
	if !source.Known() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pvs[source] == nil {
		s.pvs[source] = map[string]struct{}{}
	}
	s.pvs[source][pv] = struct{}{}
}

func (s *sources) remove(source Source, pv string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pvs[source], pv)
	if len(s.pvs[source]) == 0 {
		delete(s.pvs, source)
	}
}

// names returns the PVs of a volume.
func (s *sources) names(source Source) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.pvs[source]))
}
