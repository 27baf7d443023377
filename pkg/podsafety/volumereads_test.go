package podsafety

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func (w *world) readVolume(_ context.Context, _, claim string) (volume, error) {
	if w.onVolume != nil {
		w.onVolume()
	}
	shared, found := w.pvs["pv-"+claim]
	if err := w.call("get volume"); err != nil || !found {
		return volume{}, err
	}
	return volume{name: "pv-" + claim, shared: shared, Volume: objects.Volume{Driver: "disk.csi.example.com",
		Attributes: map[string]string{"clusterID": "one", "pool": claim}}}, nil
}

func (w *world) readClaimOf(_ context.Context, pv string) (types.NamespacedName, error) {
	claim := types.NamespacedName{Namespace: cmp.Or(w.namespaces[pv], "ns"), Name: strings.TrimPrefix(pv, "pv-")}
	return claim, w.call("get PV")
}

func (w *world) claimsNamingPVs(context.Context, string) (map[string]bool, error) {
	naming := map[string]bool{}
	for pv := range w.pvs {
		naming[strings.TrimPrefix(pv, "pv-")] = true
	}
	for _, claim := range w.unbound {
		naming[claim] = true
	}
	return naming, w.call("list claims")
}

// claimNames returns n names with a prefix, in order.
func claimNames(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%04d", prefix, i))
	}
	return names
}

func podNamed(namespace, name string) func(*v1.Pod) {
	return func(o *v1.Pod) { o.Namespace, o.Name, o.UID = namespace, name, types.UID(name) }
}

func TestFairOrderOfPods(t *testing.T) {
	t.Parallel()
	var pods []*pod
	for _, p := range []struct {
		namespace, name string
		claims          int
	}{{"many", "a", 3}, {"many", "b", 3}, {"many", "c", 3}, {"big", "d", 100}, {"big", "e", 1}, {"small", "f", 5}} {
		pods = append(pods, podOf(held(terminating, podNamed(p.namespace, p.name), uses(claimNames("c", p.claims)...))))
	}
	var got []string
	for _, p := range fairly(pods) {
		got = append(got, p.name)
	}
	if want := []string{"e", "a", "f", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The names of claims cost a user nothing, so reads must not grow with them.
func TestClaimsThatDoNotExistAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-data"], w.pvs["pv-zz"] = false, false
	w.away()
	w.show(held(terminating))
	for _, name := range []string{"second", "third"} {
		w.show(held(terminating, podNamed("ns", name), uses(append(claimNames("none", 1000), "zz")...)))
	}
	if got := w.lock(t.Context(), "a"); got != controller.Done() {
		t.Errorf("%v", got)
	}
	if reads := len(w.calls) - len([]string{"create lock", "list claims", "update lock"}); reads != maxGets+1 {
		t.Errorf("%d claims were read one by one", reads)
	}
	w.calls = slices.Compact(w.calls)
	w.expectCalls("get volume", "create lock", "get volume", "list claims", "get volume", "update lock")
	if got := w.lockedVolumes(); !slices.Equal(got, []string{"pv-data", "pv-zz"}) {
		t.Errorf("locked %q", got)
	}
	w.fail["list claims"] = errNoAnswer
	if got := w.lock(t.Context(), "a"); got == controller.Done() {
		t.Error("claims that are unknown count as read")
	}
}

// The volume of a claim that was not read stays in the lock.
func TestReadsOfOnePassAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-zz"] = false
	claims := claimNames("c", 2*maxReads)
	for _, claim := range claims {
		w.pvs["pv-"+claim] = false
	}
	w.away()
	w.show(held(terminating, uses("zz")))
	w.lock(t.Context(), "a")
	w.unwatch("ns/db")
	delete(w.live, "ns/db")
	w.show(held(terminating, podNamed("ns", "second"), uses(append(claims, "zz")...)))
	w.show(held(terminating, podNamed("ns", "third"), uses(append(claims, "zz")...)))
	if got := w.lock(t.Context(), "a"); got == controller.Done() || len(w.lockedVolumes()) < maxReads+1 ||
		w.locked["a"].volumes["pv-zz"].name != "db" {
		t.Errorf("%v, %d locked, pv-zz by %v", got, len(w.lockedVolumes()), w.locked["a"].volumes["pv-zz"])
	}
	if got := w.lock(t.Context(), "a"); got != controller.Done() || len(w.lockedVolumes()) != 2*maxReads+1 ||
		w.locked["a"].volumes["pv-zz"].name != "second" {
		t.Errorf("at last: %v, %d locked, pv-zz by %v", got, len(w.lockedVolumes()), w.locked["a"].volumes["pv-zz"])
	}
}

// After a change of leaders nothing is known about the claims, and a pod may name thousands.
func TestEndOfLockWaitsForNoClaimsOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{VolumeLocks: true, Fences: true})
	w.pvs["pv-a"], w.pvs["pv-data"], w.namespaces = false, false, map[string]string{"pv-a": "other"}
	w.away()
	w.show(held(terminating))
	w.show(held(terminating, podNamed("other", "many"), uses("a")))
	w.lock(t.Context(), "a")
	if got := w.lockedVolumes(); !slices.Equal(got, []string{"pv-a", "pv-data"}) {
		t.Fatalf("locked %q", got)
	}
	w.unbound = claimNames("c", 2*maxReads)
	w.show(held(terminating, podNamed("other", "many"), uses(append(w.unbound, "a")...)))
	w.showFence(ofPool("data"))
	clear(w.volumeLocks.volumes)
	w.lock(t.Context(), "a")
	if got := w.lockedVolumes(); !slices.Equal(got, []string{"pv-a"}) {
		t.Errorf("locked %q", got)
	}
}

// A node under a fence of volumes may be Ready, and then no claims are read for new locks.
func TestLockStaysWhileItsPVCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{VolumeLocks: true, Fences: true})
	w.pvs["pv-data"] = false
	w.away()
	w.show(held(terminating))
	w.lock(t.Context(), "a")
	w.nodeCache["a"] = objects.WatchedNode{Name: "a", Seen: objects.NodeReady}
	w.showFence(ofPool("data"))
	for _, call := range []string{"get PV", "get volume"} {
		clear(w.volumeLocks.volumes)
		w.fail[call] = errNoAnswer
		if got := w.lock(t.Context(), "a"); got == controller.Done() || len(w.lockedVolumes()) != 1 {
			t.Errorf("no %s: %v, locked %q", call, got, w.lockedVolumes())
		}
		delete(w.fail, call)
	}
	if got := w.lock(t.Context(), "a"); got != controller.Done() || len(w.lockedVolumes()) != 0 {
		t.Errorf("at last: %v, locked %q", got, w.lockedVolumes())
	}
}

// A pod in another namespace cannot use the volume of a claim, so its unknown claims keep no volume in the lock.
func TestVolumeLeavesDespiteUnknownPodOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	for namespace, locked := range map[string]int{"ns": 1, "other": 0} {
		w := newWorld(t, Config{VolumeLocks: true})
		w.pvs["pv-data"] = false
		w.away()
		w.show(held(terminating))
		w.lock(t.Context(), "a")
		w.unwatch("ns/db")
		delete(w.live, "ns/db")
		w.show(held(terminating, podNamed(namespace, "second"), uses("unread")))
		w.fail["get volume"] = errNoAnswer
		if got := w.lock(t.Context(), "a"); got == controller.Done() || len(w.lockedVolumes()) != locked {
			t.Errorf("in namespace %s: %v, locked %q", namespace, got, w.lockedVolumes())
		}
	}
}

// A pod whose volumes are known does not wait for slow reads of others.
func TestLockIsWrittenDuringSlowReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-data"], w.pvs["pv-logs"] = false, false
	w.onVolume = func() { w.clock.Step(writeEvery) }
	w.away()
	w.show(held(terminating))
	w.show(held(terminating, podNamed("ns", "second"), uses("logs")))
	w.lock(t.Context(), "a")
	w.expectCalls("get volume", "create lock", "get volume", "update lock")
}

// A pod of which some claims cannot be read has the volumes of the others locked.
func TestReadPartOfPodIsLocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-data"], w.pvs["pv-logs"] = false, false
	w.onVolume = func() {
		if slices.Contains(w.calls, "get volume") {
			w.fail["get volume"] = errors.New("refused")
		}
	}
	w.away()
	w.show(held(terminating, uses("data", "logs")))
	if got := w.lock(t.Context(), "a"); got == controller.Done() {
		t.Errorf("%v", got)
	}
	if got := w.lockedVolumes(); !slices.Equal(got, []string{"pv-data"}) {
		t.Errorf("locked %q", got)
	}
}

func TestClaimsNamingPVs(t *testing.T) {
	t.Parallel()
	s := kubetest.NewServer(t, map[string]string{"/namespaces/ns/persistentvolumeclaims": `{"apiVersion":"v1",
		"kind":"PersistentVolumeClaimList","metadata":{},"items":[
			{"metadata":{"name":"a"},"spec":{"volumeName":"pv"}},{"metadata":{"name":"b"}}]}`})
	got := must.Get(api(t, s.Config()).claimsNamingPVs(t.Context(), "ns"))(t)
	if !maps.Equal(got, map[string]bool{"a": true}) {
		t.Errorf("%v", got)
	}
}
