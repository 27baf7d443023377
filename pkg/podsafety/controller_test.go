package podsafety

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

// world is a cluster in memory: the state of the watches, and the objects that live reads and writes find.
type world struct {
	*testing.T
	*Controller
	clock *testclock.FakeClock
	// policy is the version of the policies that refuse force deletions.
	policy string

	podCache       map[string]*pod
	claimCache     map[string]podsafety.Claim
	namespaceCache map[string]namespace
	nodeCache      map[string]objects.WatchedNode

	mu     sync.Mutex
	live   map[string]*v1.Pod
	kept   map[string]*v1.PersistentVolumeClaim // by name
	nodes  map[string]objects.Node
	leases map[string]objects.Lease
	fences map[string]*v1alpha1.NodeFence
	pvs    map[string]bool // shared
	// namespaces has the namespaces of the claims of PVs, "ns" by default, and unbound the claims that name another's PV.
	namespaces map[string]string
	unbound    []string
	locked     map[string]volumeLock // by node
	onList     func()                // while locks are listed
	// onVolume is called before the read of a volume.
	onVolume func()
	// onSend is called before the write of a lock, and onFence before the read of a fence.
	onSend, onFence func()
	calls           []string
	fail            map[string]error
	events          *record.FakeRecorder
}

type cached[R any] map[string]R

func (c cached[R]) Get(name string) (R, bool) { r, found := c[name]; return r, found }

func (c cached[R]) Each(visit func(R)) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		visit(c[name])
	}
}

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	w := &world{T: t, clock: testclock.NewFakeClock(time.Unix(1_800_000_000, 0)),
		podCache: map[string]*pod{}, namespaceCache: map[string]namespace{"ns": {Name: "ns", Mode: podsafety.ModeEnforce}},
		nodeCache: map[string]objects.WatchedNode{"a": {Name: "a", Seen: objects.NodeReady}}, live: map[string]*v1.Pod{},
		nodes:  map[string]objects.Node{"a": {Found: true, Ready: objects.ReadyTrue}},
		leases: map[string]objects.Lease{}, fences: map[string]*v1alpha1.NodeFence{},
		claimCache: map[string]podsafety.Claim{}, kept: map[string]*v1.PersistentVolumeClaim{},
		pvs: map[string]bool{}, locked: map[string]volumeLock{}, fail: map[string]error{},
		events: record.NewFakeRecorder(100)}
	cfg.Clock, cfg.Events = w.clock, w.events
	var err error
	if w.Controller, err = newController(cfg, w, w); err != nil {
		t.Fatal(err)
	}
	o := w.observer
	o.pods, o.nodes = cached[*pod](w.podCache), cached[objects.WatchedNode](w.nodeCache)
	o.namespaces, o.claims = cached[namespace](w.namespaceCache), cached[podsafety.Claim](w.claimCache)
	o.enforcedSince["ns"] = w.clock.Now().Add(-time.Hour)
	w.volumeLocks.listed = true // none exist
	return w
}

// call records a call, and returns the error that is set for it.
func (w *world) call(format string, args ...any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	what := fmt.Sprintf(format, args...)
	w.calls = append(w.calls, what)
	return w.fail[what]
}

func (w *world) readPod(_ context.Context, ns, name string) (objects.Pod, bool, error) {
	if err := w.call("get pod"); err != nil {
		return objects.Pod{}, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o, found := w.live[ns+"/"+name]
	if !found {
		return objects.Pod{}, false, nil
	}
	return objects.PodOf(o), true, nil
}

func (w *world) readNode(_ context.Context, name string) (objects.Node, error) {
	return w.nodes[name], w.call("get node")
}

func (w *world) readLease(_ context.Context, node string) (objects.Lease, error) {
	return w.leases[node], w.call("get lease")
}

func (w *world) patchPod(_ context.Context, ask podsafety.Ask, add bool) error {
	if err := w.call("%s%s", map[bool]string{true: added, false: removed}[add], ask.ResourceVersion); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o, found := w.live[ask.Namespace+"/"+ask.Name]
	switch {
	case !found || o.UID != ask.UID:
		return kube.ErrGone
	case ask.ResourceVersion != "" && o.ResourceVersion != ask.ResourceVersion:
		return kube.ErrChanged
	}
	o.Finalizers = running(add)
	if o.DeletionTimestamp != nil && len(o.Finalizers) == 0 && *o.DeletionGracePeriodSeconds == 0 {
		delete(w.live, ask.Namespace+"/"+ask.Name)
	}
	return nil
}

// running returns the finalizers of an object that is held, or not.
func running(held bool) []string {
	if held {
		return []string{objects.RunningFinalizer}
	}
	return nil
}

func (w *world) forceDelete(_ context.Context, ask podsafety.Ask) error {
	if err := w.call("delete pod"); err != nil {
		return err
	}
	o, found := w.live[ask.Namespace+"/"+ask.Name]
	if !found || o.UID != ask.UID {
		return kube.ErrGone
	}
	now, zero := metav1.NewTime(w.clock.Now()), int64(0)
	o.DeletionTimestamp, o.DeletionGracePeriodSeconds, o.ResourceVersion = &now, &zero, o.ResourceVersion+"1"
	return nil
}

func (w *world) eachPod(_ context.Context, ns, node string, visit func(*v1.Pod)) error {
	if err := w.call("list pods"); err != nil {
		return err
	}
	w.mu.Lock()
	var all []*v1.Pod
	for _, key := range slices.Sorted(maps.Keys(w.live)) {
		if o := w.live[key]; (ns == "" || o.Namespace == ns) && (node == "" || o.Spec.NodeName == node) {
			all = append(all, o.DeepCopy())
		}
	}
	w.mu.Unlock()
	for _, o := range all {
		visit(o)
	}
	return nil
}

func (w *world) podsVersion(context.Context) (string, error) { return "7", w.call("list one pod") }

func (w *world) patchCondition(_ context.Context, ns string, p kube.ConditionPatch) error {
	if err := w.call("condition %s remove=%t", p.Name, p.Remove); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o, found := w.live[ns+"/"+p.Name]
	if !found || o.UID != p.UID {
		return kube.ErrGone
	}
	o.Status.Conditions = slices.DeleteFunc(o.Status.Conditions,
		func(c v1.PodCondition) bool { return c.Type == objects.NodeUnreachable })
	if !p.Remove {
		o.Status.Conditions = append(o.Status.Conditions, p.Condition)
	}
	return nil
}

func (w *world) refusesForce(context.Context) (string, error) {
	if err := w.call("get policy"); err != nil {
		return "", err
	}
	return "policy of " + w.policy, nil
}

func (w *world) readFence(_ context.Context, node string) (nodefence.Evidence, error) {
	if w.onFence != nil {
		w.onFence()
	}
	var f fencing.Fence
	if o := w.fences[node]; o != nil {
		f = fencing.FenceOf(o)
	}
	return func(pod types.UID) objects.Fence { return fencing.Evidence(f, pod) }, w.call("get fence")
}

// held is a held pod with a claim that runs on node a.
func held(change ...func(*v1.Pod)) *v1.Pod {
	o := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db", UID: "uid", ResourceVersion: "1",
			Finalizers: []string{objects.RunningFinalizer}},
		Spec: v1.PodSpec{NodeName: "a", Containers: []v1.Container{{Name: "c"}}, Volumes: []v1.Volume{{Name: "v",
			VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}},
	}
	for _, c := range change {
		c(o)
	}
	return o
}

func unheld(o *v1.Pod) { o.Finalizers = nil }

// terminating is a pod that was force-deleted long ago.
func terminating(o *v1.Pod) {
	then, zero := metav1.NewTime(time.Unix(1_700_000_000, 0)), int64(0)
	o.DeletionTimestamp, o.DeletionGracePeriodSeconds = &then, &zero
}

func confirmed(o *v1.Pod) {
	o.Annotations = map[string]string{objects.ConfirmAnnotation: string(o.UID)}
}

func marked(o *v1.Pod) {
	o.Status.Conditions = []v1.PodCondition{{Type: objects.NodeUnreachable, Status: v1.ConditionTrue}}
}

// show creates a pod, and makes the watch show it.
func (w *world) show(o *v1.Pod) {
	w.Helper()
	w.live[o.Namespace+"/"+o.Name] = o
	w.watch(o)
}

func (w *world) watch(o *v1.Pod) {
	w.Helper()
	key := o.Namespace + "/" + o.Name
	before, known := w.podCache[key]
	now, keep, err := recordPod(w.observer.modeOf)(o, known)
	switch {
	case err != nil:
		w.Fatal(err)
	case known:
		w.podCache[key] = now
		w.observer.podChanged(before, now)
	case keep:
		w.podCache[key] = now
		w.observer.podChanged(nil, now)
	default:
		w.observer.leftOutChanged(nil, now)
	}
}

// away makes node a unreachable.
func (w *world) away() {
	const name = "a"
	w.nodes[name] = objects.Node{Found: true, Ready: objects.ReadyUnknown, BootID: "boot"}
	w.nodeCache[name] = objects.WatchedNode{Name: name, Seen: objects.NodeNotReady, Unreachable: true}
}

func (w *world) expectCalls(want ...string) {
	w.Helper()
	if !slices.Equal(w.calls, want) {
		w.Errorf("calls %q, want %q", w.calls, want)
	}
	w.calls = nil
}

func (w *world) reconcilePod() controller.Result { return w.reconcile(w.Context(), "ns/db") }

const (
	added   = "add finalizer @"
	removed = "remove finalizer @"
)

func TestReleaseIsBoundToPodAsJudged(t *testing.T) {
	w := newWorld(t, Config{})
	w.show(held(terminating, confirmed))
	w.reconcilePod()
	w.expectCalls(removed + "1")
	w = newWorld(t, Config{})
	w.show(held(terminating, confirmed))
	w.live["ns/db"].ResourceVersion = "2" // the watch lags
	w.reconcilePod()
	w.expectCalls(removed+"1", "get pod", removed+"2")
	if len(w.live) != 0 {
		t.Error("the pod is there")
	}
	if got := kubetest.Count(t, w.metrics.released.WithLabelValues("Confirmed")); got != 1 {
		t.Errorf("%v releases are counted", got)
	}
	if waiting := w.recorder.Waiting(); len(waiting) != 0 {
		t.Errorf("a pod that was released waits: %v", waiting)
	}
}

func TestNoReleaseOfPodThatHasChanged(t *testing.T) {
	for sentence, live := range map[string]func(w *world){
		"the pod is not confirmed":             func(w *world) { w.live["ns/db"].Annotations = nil },
		"another pod has its name":             func(w *world) { w.live["ns/db"].UID = "other" },
		"the pod is gone":                      func(w *world) { delete(w.live, "ns/db") },
		"the pod cannot be read":               func(w *world) { w.fail["get pod"] = errors.New("refused") },
		"the pod changes before it is patched": func(w *world) { w.fail[removed+"2"] = kube.ErrChanged },
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.show(held(terminating, confirmed))
			w.live["ns/db"].ResourceVersion = "2"
			live(w)
			_, was := w.live["ns/db"]
			w.reconcilePod()
			// The fake deletes a released pod.
			if o := w.live["ns/db"]; was && (o == nil || !slices.Contains(o.Finalizers, objects.RunningFinalizer)) {
				t.Error("the pod was released")
			}
		})
	}
}

func TestPodWithGraceIsForceDeletedFirst(t *testing.T) {
	w := newWorld(t, Config{})
	w.show(held(terminating, confirmed, func(o *v1.Pod) { *o.DeletionGracePeriodSeconds = 30 }))
	w.reconcilePod()
	w.expectCalls("get pod", "delete pod", "get pod", removed+"11")
	if got := kubetest.Count(t, w.metrics.forceDeleted.WithLabelValues("Confirmed")); got != 1 {
		t.Errorf("%v force deletions are counted", got)
	}
}

func TestFailedCallsAreRetried(t *testing.T) {
	for _, c := range []struct {
		version, call, reason string
	}{{"2", "get pod", "APIReadFailed"}, {"1", removed + "1", "APIWriteFailed"}} {
		w := newWorld(t, Config{})
		w.show(held(terminating, confirmed))
		w.live["ns/db"].ResourceVersion = c.version
		w.fail[c.call] = errors.New("no answer")
		if got := w.reconcilePod(); got != controller.Retries(w.cfg.Settings).Retry() {
			t.Errorf("%s: due again %+v", c.call, got)
		}
		if got := w.recorder.Waiting()[podsafety.Reason(c.reason)]; got != 1 {
			t.Errorf("%s: waiting %v", c.call, w.recorder.Waiting())
		}
	}
}

func TestDryRunMakesNoWrites(t *testing.T) {
	w := newWorld(t, Config{VolumeLocks: true, NodeCondition: true, Settings: controllers.Settings{DryRun: true}})
	w.show(held(terminating, confirmed))
	if got := w.reconcilePod(); got != controller.Done() {
		t.Errorf("due again %+v, without a change of the held pod", got)
	}
	w.expectCalls()
	w.observer.candidates["ns/db"] = objects.PodOf(held(unheld))
	delete(w.podCache, "ns/db")
	w.reconcilePod()
	w.expectCalls()
}

// working calls do as if the Controller were working, although its queues have no workers.
func (w *world) working(do func()) {
	w.Helper()
	w.observer.wake.working = func() bool { return true }
	defer func() { w.observer.wake.working = w.Working }()
	do()
}

func TestCandidateStaysUntilWriteSucceeds(t *testing.T) {
	w := newWorld(t, Config{})
	w.working(func() { w.show(held(unheld)) })
	for err, want := range map[error]controller.Result{
		errors.New("no answer"): controller.Retries(w.cfg.Settings).Retry(), kube.ErrChanged: controller.Soon()} {
		w.fail[added] = err
		if got := w.reconcilePod(); got != want {
			t.Errorf("%v: due again %+v", err, got)
		}
		w.expectCalls(added)
	}
	w.fail = nil
	w.reconcilePod()
	w.expectCalls(added)
	w.reconcilePod()
	w.expectCalls()
	w.working(func() { w.show(held(unheld, func(o *v1.Pod) { o.UID = "next" })) })
	w.observer.leftOutChanged(podOf(w.live["ns/db"]), nil)
	w.reconcilePod()
	w.expectCalls()
}

func TestRecordPod(t *testing.T) {
	off := func(string) podsafety.Mode { return podsafety.ModeOff }
	for sentence, c := range map[string]struct {
		pod       *v1.Pod
		keep, all bool
	}{
		"held and started":              {held(started), true, false},
		"held and not started":          {held(), true, true},
		"held, started and terminating": {held(started, terminating), true, true},
		"started and marked":            {held(unheld, started, marked), true, true},
		"marked":                        {held(unheld, marked), true, true},
		"neither":                       {held(unheld), false, false},
		"of other conditions": {held(unheld, func(o *v1.Pod) {
			o.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady}}
		}), false, false},
	} {
		p, keep, err := recordPod(off)(c.pod, false)
		if err != nil || keep != c.keep || (p != nil && p.all != nil) != c.all {
			t.Errorf("%s: %+v, %t, %v", sentence, p, keep, err)
		}
	}
	if p, keep, err := recordPod(off)(held(unheld), true); err != nil || p == nil || keep {
		t.Errorf("one that was held: %v, %v", p, err)
	}
	if got := podOf(held()).facts(); got.UID != "uid" || !got.Held || got.Node != "a" || got.Terminating {
		t.Errorf("facts %+v", got)
	}
}

func finished(o *v1.Pod) {
	o.Status = v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{{Name: "c"}},
		Conditions: []v1.PodCondition{{Type: v1.ContainersReady, Reason: "PodFailed"}}}
}

// TestUnmountIsObservedInPassing makes the watch show a pod that has ended with grace, and then without.
func TestUnmountIsObservedInPassing(t *testing.T) {
	w := newWorld(t, Config{})
	w.show(held(terminating, finished))
	if got := w.reconcilePod(); got != controller.After(podsafety.DefaultUnmountGrace) {
		t.Errorf("a forced pod waits %+v", got)
	}
	inPassing := func(w *world) controller.Result {
		w.show(held(terminating, finished, func(o *v1.Pod) { *o.DeletionGracePeriodSeconds = 30 }))
		w.show(held(terminating, finished))
		return w.reconcilePod()
	}
	if got := inPassing(newWorld(t, Config{})); got != controller.After(podsafety.DefaultUnmountGrace) {
		t.Errorf("a pod that anybody may have forced waits %+v", got)
	}
	w = newWorld(t, Config{})
	w.observer.forceRefused("policy", w.clock.Now().Add(-forcePolicyDelay))
	inPassing(w)
	w.expectCalls(removed + "1")
	w.observer.podChanged(w.podCache["ns/db"], nil)
	if len(w.observer.tracker.Sights) != 0 {
		t.Error("a pod that is gone is remembered")
	}
}
