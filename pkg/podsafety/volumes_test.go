package podsafety

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

// uses makes a pod use these claims.
func uses(claims ...string) func(*v1.Pod) {
	return func(o *v1.Pod) {
		o.Spec.Volumes = nil
		for _, claim := range claims {
			o.Spec.Volumes = append(o.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		}
	}
}

// ofPool is a fence of the volumes of one pool, which is named as the claim.
func ofPool(pool string) *v1alpha1.NodeFence {
	return fenced(v1alpha1.CoversVolumes, func(o *v1alpha1.NodeFence) {
		o.Status.Proof.Volumes[0].VolumeAttributes = map[string]v1alpha1.AttributeValue{"pool": v1alpha1.AttributeValue(pool)}
	})
}

// lockedVolumes returns the names of the locked volumes of node a.
func (w *world) lockedVolumes() (names []string) {
	for name := range w.locked["a"].volumes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A fence of one storage system lifts no lock of a volume in another one.
func TestFenceLiftsLocksOfItsVolumesOnly(t *testing.T) {
	t.Parallel()
	for pool, want := range map[string][]string{
		"data": {"pv-logs"}, "logs": {"pv-data"}, "other": {"pv-data", "pv-logs"},
	} {
		w := newWorld(t, Config{VolumeLocks: true, Fences: true})
		w.pvs["pv-data"], w.pvs["pv-logs"] = false, false
		w.away()
		w.show(held(terminating, uses("data", "logs")))
		w.lock(t.Context(), "a")
		w.showFence(ofPool(pool))
		w.lock(t.Context(), "a")
		if got := w.lockedVolumes(); !slices.Equal(got, want) {
			t.Errorf("pool %s is fenced: locked %q, want %q", pool, got, want)
		}
	}
}

// send records a write that the context permits, after onSend.
func (w *world) send(ctx context.Context, what string) error {
	if w.onSend != nil {
		w.onSend()
	}
	return cmp.Or(kube.Check(ctx), w.call("%s", what))
}

// A fence may end between its read and the write. The end of a pod stays.
func TestFenceIsReadAgainBeforeLocksAreLifted(t *testing.T) {
	t.Parallel()
	two, all := []string{"pv-data", "pv-logs"}, []string{"pv-data", "pv-gone", "pv-logs"}
	for sentence, c := range map[string]struct {
		// during happens during a read after that of the fence, and late before the write.
		during, late func(w *world)
		want         []string
		done         bool
	}{
		"it is in force":        {nil, nil, []string{"pv-logs"}, true},
		"other reads take long": {func(w *world) { w.clock.Step(session.LiveFor + 1) }, nil, []string{"pv-logs"}, true},
		"it ends":               {func(w *world) { w.fences["a"] = ofPool("other") }, nil, two, true},
		"it cannot be read":     {func(w *world) { w.fail["get fence"] = errNoAnswer }, nil, two, false},
		"its node cannot be":    {func(w *world) { w.fail["get node"] = errNoAnswer }, nil, two, false},
		"the write is queued":   {nil, func(w *world) { w.clock.Step(session.LiveFor + 1) }, all, false},
	} {
		w := newWorld(t, Config{VolumeLocks: true, Fences: true})
		w.pvs["pv-data"], w.pvs["pv-logs"], w.pvs["pv-gone"] = false, false, false
		w.away()
		w.show(held(terminating, uses("data", "logs")))
		w.show(held(terminating, uses("gone"), func(o *v1.Pod) { o.Name, o.UID = "gone", "uid-1" }))
		w.lock(t.Context(), "a")
		delete(w.live, "ns/gone")
		w.unwatch("ns/gone")
		w.show(held(terminating, uses("unbound"), func(o *v1.Pod) { o.Name, o.UID = "web", "uid-2" }))
		w.showFence(ofPool("data"))
		w.onVolume = func() {
			if c.during != nil && slices.Contains(w.calls, "get fence") {
				c.during(w)
			}
		}
		if c.late != nil {
			w.onSend = func() { c.late(w) }
		}
		done := w.lock(t.Context(), "a") == controller.Done()
		if got := w.lockedVolumes(); !slices.Equal(got, c.want) || done != c.done {
			t.Errorf("%s: done %t, locked %q, want %q", sentence, done, got, c.want)
		}
		w.onVolume, w.onSend, w.fail = nil, nil, map[string]error{}
		w.showFence(ofPool("data"))
		if w.lock(t.Context(), "a"); len(w.lockedVolumes()) != 1 {
			t.Errorf("%s: the next try leaves %q locked", sentence, w.lockedVolumes())
		}
	}
}

// Without reads that are new enough it is not known whether a volume needs a lock.
func TestSlowReadsOfFenceAreRepeated(t *testing.T) {
	t.Parallel()
	for _, locked := range []bool{false, true} {
		w := newWorld(t, Config{VolumeLocks: true, Fences: true})
		w.pvs["pv-data"] = false
		w.away()
		w.show(held(terminating))
		if locked {
			w.lock(t.Context(), "a")
		}
		w.showFence(ofPool("data"))
		w.onFence = func() { w.clock.Step(session.LiveFor + 1) }
		if got := w.lock(t.Context(), "a"); got == controller.Done() || len(w.lockedVolumes()) > 0 != locked {
			t.Errorf("locked before %t: %v, locked %q", locked, got, w.lockedVolumes())
		}
		w.onFence = nil
		if got := w.lock(t.Context(), "a"); got != controller.Done() || len(w.lockedVolumes()) > 0 {
			t.Errorf("locked before %t: the next try: %v, locked %q", locked, got, w.lockedVolumes())
		}
	}
}

// A pass longer than a read is live reads the fence more than once.
func TestLongPassReadsFenceAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{VolumeLocks: true, Fences: true})
	w.pvs["pv-data"], w.pvs["pv-logs"] = false, false
	w.away()
	w.show(held(terminating, uses("data")))
	w.show(held(terminating, uses("logs"), func(o *v1.Pod) { o.Name, o.UID = "web", "uid-2" }))
	w.showFence(ofPool("data"))
	w.onVolume = func() { w.clock.Step(session.LiveFor) }
	if got := w.lock(t.Context(), "a"); got != controller.Done() || !slices.Equal(w.lockedVolumes(), []string{"pv-logs"}) {
		t.Errorf("%v, locked %q", got, w.lockedVolumes())
	}
}

// The fence covers the volumes of a pod that is gone, and of another one that uses the same volumes.
func TestFenceIsReadAgainForOtherPodsOfVolume(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		w := newWorld(t, Config{VolumeLocks: true, Fences: true})
		w.pvs["pv-data"], w.pvs["pv-logs"] = false, false
		w.away()
		w.show(held(terminating, uses("data", "logs")))
		w.lock(t.Context(), "a")
		w.show(held(terminating, uses("data", "logs", "unbound"), func(o *v1.Pod) { o.Name, o.UID = "web", "uid-2" }))
		delete(w.live, "ns/db")
		w.unwatch("ns/db")
		w.showFence(fenced(v1alpha1.CoversVolumes))
		reads := 0
		w.onFence = func() {
			if reads++; ends && reads == 2 {
				delete(w.fences, "a")
			}
		}
		w.lock(t.Context(), "a")
		if got := len(w.lockedVolumes()) == 2; got != ends || reads != 2 {
			t.Errorf("the fence ends %t: %d reads of it, locked %q", ends, reads, w.lockedVolumes())
		}
	}
}

// While a fence, a node or a volume cannot be read, no lock is lifted or missed, and the work is tried again.
func TestUnreadableFactsKeepLocks(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"get fence", "get node", "get volume"} {
		for _, locked := range []bool{true, false} {
			w := newWorld(t, Config{VolumeLocks: true, Fences: true})
			w.pvs["pv-data"] = false
			w.away()
			w.show(held(terminating))
			if locked {
				w.lock(t.Context(), "a")
				clear(w.volumeLocks.volumes) // as in another process
			}
			w.showFence(ofPool("other"))
			w.fail[call] = errNoAnswer
			if got := w.lock(t.Context(), "a"); got == controller.Done() || len(w.lockedVolumes()) > 0 != locked {
				t.Errorf("no %s, locked before %t: %v, locked %q", call, locked, got, w.lockedVolumes())
			}
			delete(w.fail, call)
			if got := w.lock(t.Context(), "a"); got != controller.Done() || len(w.lockedVolumes()) != 1 {
				t.Errorf("after no %s: %v, locked %q", call, got, w.lockedVolumes())
			}
		}
	}
}

// A claim that is not bound yet is read again, whatever the others are.
func TestVolumesAreReadUntilAllAreBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-logs"] = false
	w.away()
	w.show(held(terminating, uses("data", "logs")))
	w.lock(t.Context(), "a")
	w.pvs["pv-data"] = false
	w.lock(t.Context(), "a")
	if got := w.lockedVolumes(); !slices.Equal(got, []string{"pv-data", "pv-logs"}) {
		t.Errorf("locked %q", got)
	}
	_, pods := w.observer.waitingAll()
	w.volumeLocks.keep(pods)
	if _, known := w.volumeLocks.known("uid", "data"); !known {
		t.Error("the volumes of a pod that waits are forgotten")
	}
}

// A person, or the namespace of a test, may delete the object of the lock.
func TestDeletedLockIsCreatedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-data"], w.pvs["pv-logs"] = false, false
	w.away()
	w.show(held(terminating))
	w.lock(t.Context(), "a")
	delete(w.locked, "a")
	w.show(held(terminating, uses("logs"), func(o *v1.Pod) { o.Name, o.UID = "later", "later" }))
	if got := w.lock(t.Context(), "a"); got == controller.Done() {
		t.Errorf("the lock is gone: %v", got)
	}
	w.lock(t.Context(), "a")
	if got := w.lockedVolumes(); !slices.Equal(got, []string{"pv-data", "pv-logs"}) {
		t.Errorf("locked %q", got)
	}
}

// play runs the Controller until it has no work, with changes while it works.
func (w *world) play(t *testing.T, during ...func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Controller.Run(ctx) }()
	synctest.Wait()
	for _, change := range during {
		change()
		synctest.Wait()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A new leader works on everything that is left.
func TestLeaderBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{VolumeLocks: true, NodeCondition: true})
		w.pvs["pv-data"] = false
		w.away()
		w.show(held(terminating))
		w.live["ns/new"] = held(unheld, func(o *v1.Pod) { o.Name, o.UID = "new", "new" })
		w.showClaim(claimOfPod())
		left := claimOfPod(heldTerminating, func(o *v1.PersistentVolumeClaim) { o.Namespace, o.Name = "off", "left" })
		w.kept["left"], w.claimCache["off/left"] = left, podsafety.ClaimOf(left)
		w.volumeLocks.note("gone", "data", volume{name: "pv-gone"})
		w.play(t)
		if !slices.Equal(w.live["ns/new"].Finalizers, []string{objects.RunningFinalizer}) {
			t.Error("the pods of the namespace are not held")
		}
		if got := w.kept["db-data"].Finalizers; !slices.Equal(got, []string{objects.RunningFinalizer}) {
			t.Errorf("the claim has %q", got)
		}
		if _, kept := w.kept["left"]; kept {
			t.Error("the claim of a pod that is gone is kept")
		}
		if !isMarked(w.live["ns/db"]) || !slices.Equal(w.lockedVolumes(), []string{"pv-data"}) {
			t.Errorf("marked %t, locked %q", isMarked(w.live["ns/db"]), w.lockedVolumes())
		}
		_, known := w.volumeLocks.known("gone", "data")
		if known || w.recorder.Waiting()[podsafety.ReasonNodeUnreachable] != 1 {
			t.Errorf("a pod that is gone is remembered: %t; %v waits", known, w.recorder.Waiting())
		}
	})
}

// The events of the watches lead to the same work.
func TestLeaderFollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{VolumeLocks: true})
		w.pvs["pv-data"] = false
		w.away()
		w.namespaceCache["ns"] = namespace{Name: "ns"}
		w.show(held())
		w.showClaim(claimOfPod())
		w.play(t, func() {
			w.namespaceCache["ns"] = namespace{Name: "ns", Mode: podsafety.ModeEnforce}
			w.observer.namespaceChanged(namespace{Name: "ns"}, w.namespaceCache["ns"])
		}, func() {
			if got := w.kept["db-data"].Finalizers; !slices.Equal(got, []string{objects.RunningFinalizer}) {
				t.Errorf("the namespace enforces: the claim has %q", got)
			}
			w.show(held(terminating))
		}, func() {
			if got := w.lockedVolumes(); !slices.Equal(got, []string{"pv-data"}) {
				t.Errorf("the pod is terminating: locked %q", got)
			}
			delete(w.live, "ns/db")
			w.unwatch("ns/db")
		})
		if got := w.lockedVolumes(); len(got) > 0 {
			t.Errorf("the pod is gone: locked %q", got)
		}
	})
}

// A replica that ends, or loses leadership, reports no failures.
func TestCanceledWorkMakesNoReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{VolumeLocks: true})
	w.nodeCache["a"] = objects.WatchedNode{Name: "a", Seen: objects.NodeTainted}
	w.show(held(terminating))
	ctx, cancel := context.WithCancel(t.Context())
	w.cluster = ending{w, cancel}
	w.fail["get pod"], w.fail["list locks"] = context.Canceled, context.Canceled
	if got := w.reconcile(ctx, "ns/db"); got != controller.Done() || len(w.recorder.Waiting()) > 0 {
		t.Errorf("%v, %v waits", got, w.recorder.Waiting())
	}
	if w.sweepLocks(ctx); kubetest.Count(t, w.metrics.lockErrors) != 0 {
		t.Errorf("%v errors", kubetest.Count(t, w.metrics.lockErrors))
	}
	w.observer.forceRefused("policy", w.clock.Now())
	w.fail["get policy"] = context.Canceled
	w.watchForcePolicy(ctx)
	if f, _ := w.observer.observe("ns/db"); f.ForceRefusedSince.IsZero() {
		t.Error("the policy counts as gone")
	}
}

func TestCallReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.show(held())
	w.leases["a"] = objects.Lease{Found: true, ResourceVersion: "7"}
	w.fences["a"] = fenced(v1alpha1.CoversUntilUnfenced)
	ask := podsafety.Ask{Namespace: "ns", Name: "db", UID: "uid", Node: "a"}
	for action, shows := range map[podsafety.Action]func(podsafety.Reply) bool{
		podsafety.ReadPod:   func(r podsafety.Reply) bool { return r.Found && r.Pod.UID == "uid" },
		podsafety.ReadNode:  func(r podsafety.Reply) bool { return r.Node.Found },
		podsafety.ReadLease: func(r podsafety.Reply) bool { return r.Lease.ResourceVersion == "7" },
		podsafety.ReadFence: func(r podsafety.Reply) bool { return r.Fence.InForce && r.Fence.SinceTerminating },
	} {
		ask.Action = action
		if reply, err := w.Controller.call(t.Context(), ask); err != nil || !shows(reply) {
			t.Errorf("%v: %+v, %v", action, reply, err)
		}
	}
}

// An orphan is reported with its deletion, because it is gone when the session ends.
func TestDeletedOrphanIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	var s podsafety.Session
	s.Facts.Pod = objects.PodOf(held())
	for why, want := range map[podsafety.Reason]int{podsafety.ReasonOrphaned: 1, "Confirmed": 0} {
		w.wrote(t.Context(), &s, podsafety.Ask{Action: podsafety.ForceDelete}, string(why))
		if got := len(w.events.Events); got != want {
			t.Errorf("%s: %d Events", why, got)
		}
		for range want {
			<-w.events.Events
		}
	}
	w.wrote(t.Context(), &s, podsafety.Ask{Action: podsafety.AddFinalizer}, "")
	if got := kubetest.Count(t, w.metrics.added); got != 1 {
		t.Errorf("%v pods are counted as held", got)
	}
	if o := eventOn(s.Facts.Pod); o.UID != "uid" || o.ResourceVersion != "1" {
		t.Errorf("reported on %+v", o)
	}
}
