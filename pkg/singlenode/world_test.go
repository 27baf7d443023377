package singlenode

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// world is a cluster in memory. Live reads and writes see its objects, and the watches see them after sync.
type world struct {
	*testing.T
	*Controller
	clock  *testclock.FakeClock
	events *record.FakeRecorder

	mu         sync.Mutex
	namespaces map[string]*v1.Namespace
	pods       map[string]*v1.Pod
	claims     map[string]*v1.PersistentVolumeClaim
	classes    map[string]*storagev1.StorageClass
	volumes    map[string]*v1.PersistentVolume
	nodes      map[string]*v1.Node
	fences     map[string]*v1alpha1.NodeFence
	calls      []string
	// fail has the errors of calls, by their first words.
	fail map[string]error
	last int
	// hook, if set, is called with each call, before it is carried out.
	hook func(call string)

	namespaceCache *kubetest.Cache[namespace]
	podCache       *kubetest.Cache[*pod]
	claimCache     *kubetest.Cache[*claim]
	classCache     *kubetest.Cache[class]
	volumeCache    *kubetest.Cache[volume]
	nodeCache      *kubetest.Cache[objects.WatchedNode]
	fenceCache     *kubetest.Cache[nodefence.Fence]
	woken          *recording
}

// recording records the enqueued objects.
type recording struct {
	mu   sync.Mutex
	all  []string
	idle bool
}

// add returns a function that records an object of this kind once.
func (r *recording) add(kind string) func(key string) {
	return func(key string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if what := kind + " " + key; !slices.Contains(r.all, what) {
			r.all = append(r.all, what)
		}
	}
}

// take returns the objects enqueued since the last call, as "pod ns/name" and "claim ns/name".
func (r *recording) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	slices.Sort(all)
	return all
}

// newWorld returns a cluster with a namespace ns that asks for all locks, and a node a that is Ready.
func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	w := &world{T: t, clock: testclock.NewFakeClock(time.Unix(1_800_000_000, 0)), events: record.NewFakeRecorder(1000),
		namespaces: map[string]*v1.Namespace{}, pods: map[string]*v1.Pod{}, claims: map[string]*v1.PersistentVolumeClaim{},
		classes: map[string]*storagev1.StorageClass{}, volumes: map[string]*v1.PersistentVolume{},
		nodes: map[string]*v1.Node{}, fences: map[string]*v1alpha1.NodeFence{}, fail: map[string]error{},
		namespaceCache: kubetest.NewCache[namespace](), podCache: kubetest.NewCache[*pod](),
		claimCache: kubetest.NewCache[*claim](), classCache: kubetest.NewCache[class](),
		volumeCache: kubetest.NewCache[volume](), nodeCache: kubetest.NewCache[objects.WatchedNode](),
		fenceCache: kubetest.NewCache[nodefence.Fence]()}
	cfg.Clock, cfg.Events = w.clock, w.events
	var err error
	if w.Controller, err = newController(cfg, w); err != nil {
		t.Fatal(err)
	}
	o := w.observer
	w.woken = &recording{}
	o.wake.pod, o.wake.claim = w.woken.add("pod"), w.woken.add("claim")
	o.wake.working = func() bool { return !w.woken.idle }
	o.namespaces, o.pods, o.claims = w.namespaceCache, w.podCache, w.claimCache
	o.classes, o.volumes, o.nodes, o.fences = w.classCache, w.volumeCache, w.nodeCache, w.fenceCache
	w.label(singlenode.AllValue)
	w.node(v1.ConditionTrue)
	return w
}

// sync delivers the current state to the watches.
func (w *world) sync() {
	w.Helper()
	w.mu.Lock()
	namespaces, pods, claims := maps.Clone(w.namespaces), maps.Clone(w.pods), maps.Clone(w.claims)
	w.mu.Unlock()
	maps.DeleteFunc(namespaces, func(_ string, o *v1.Namespace) bool { return o.Labels[singlenode.Label] == "" })
	o := w.observer
	kubetest.Deliver(w.T, w.namespaceCache, namespaces, kube.RecordAll(namespaceOf),
		kube.Handler[namespace](kube.OnChange[namespace](o.namespaceChanged)))
	kubetest.Deliver(w.T, w.classCache, w.classes, kube.RecordAll(classOf),
		kube.Handler[class](kube.OnChange[class](o.classChanged)))
	kubetest.Deliver(w.T, w.volumeCache, w.volumes, recordVolume(true),
		kube.Handler[volume](kube.OnChange[volume](o.volumeChanged)))
	kubetest.Deliver(w.T, w.nodeCache, w.nodes, kube.RecordAll(objects.WatchedNodeOf),
		kube.Handler[objects.WatchedNode](kube.OnChange[objects.WatchedNode](o.nodeChanged)))
	var fences kube.Handler[nodefence.Fence] = nodefence.Changes(o.sawFence)
	kubetest.Deliver(w.T, w.fenceCache, w.fences, kube.RecordAll(nodefence.FenceOf), fences)
	kubetest.Deliver(w.T, w.claimCache, claims, recordClaim(o.modeOf),
		kube.Handler[*claim](kube.OnChange[*claim](o.claimChanged)))
	kubetest.Deliver(w.T, w.podCache, pods, recordPod(o), kube.Handler[*pod](o.podHandler()))
}

// settle works on all enqueued objects until none are left.
func (w *world) settle() {
	w.Helper()
	for range 100 {
		w.sync()
		woken := w.woken.take()
		if len(woken) == 0 {
			return
		}
		for _, what := range woken {
			if kind, key, _ := strings.Cut(what, " "); kind == "pod" {
				w.reconcile(w.Context(), key)
			} else {
				w.reconcileLock(w.Context(), key)
			}
		}
	}
	w.Fatalf("there is no end of work; calls %q", w.calls[len(w.calls)-10:])
}

// call records a call, and returns the error that is set for it.
func (w *world) call(format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if w.hook != nil {
		w.hook(what)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, what)
	for words, err := range w.fail {
		if strings.HasPrefix(what, words) {
			return err
		}
	}
	return nil
}

func (w *world) expectCalls(want ...string) {
	w.Helper()
	if !slices.Equal(w.calls, want) {
		w.Errorf("calls %q, want %q", w.calls, want)
	}
	w.calls = nil
}

// version returns the next resourceVersion.
func (w *world) version() string {
	w.last++
	return strconv.Itoa(w.last)
}

// label sets the label of namespace ns, "" to remove it.
func (w *world) label(mode string) {
	w.namespaces["ns"] = &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", ResourceVersion: w.version(),
		Labels: map[string]string{podsafety.NamespaceLabel: podsafety.EnforceValue, singlenode.Label: mode}}}
}

// node sets the Ready condition of node a, which is in its run boot-1.
func (w *world) node(ready v1.ConditionStatus) {
	w.nodes["a"] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: w.version()},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}}}}
	w.nodes["a"].Status.NodeInfo.BootID = "boot-1"
}

// pod creates or changes a pod of namespace ns that uses claim data. A new pod is held and has the gate.
func (w *world) pod(name string, alter ...func(*v1.Pod)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, found := w.pods["ns/"+name]
	if !found {
		o = &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
				CreationTimestamp: metav1.NewTime(w.clock.Now()), Finalizers: []string{objects.RunningFinalizer}},
			Spec: v1.PodSpec{SchedulingGates: []v1.PodSchedulingGate{{Name: objects.VolumeGate}},
				Containers: []v1.Container{{Name: "c"}}},
		}
		uses("data")(o)
	}
	o = o.DeepCopy()
	for _, change := range alter {
		change(o)
	}
	o.ResourceVersion = w.version()
	w.pods["ns/"+name] = o
}

func (w *world) endPod(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, "ns/"+name)
}

// uses sets the claims of a pod.
func uses(claims ...string) func(*v1.Pod) {
	return func(o *v1.Pod) {
		o.Spec.Volumes = nil
		for _, claim := range claims {
			o.Spec.Volumes = append(o.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		}
	}
}

func ungated(o *v1.Pod) { o.Spec.SchedulingGates = nil }

func onNode(o *v1.Pod) {
	o.Spec.SchedulingGates, o.Spec.NodeName, o.Status.Phase = nil, "a", v1.PodRunning
}

func terminating(o *v1.Pod) { o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)} }

// completed marks a pod as succeeded, as reported by its kubelet.
func completed(o *v1.Pod) {
	o.Status.Phase = v1.PodSucceeded
	o.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c",
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
}

// claim creates or changes a claim of namespace ns.
func (w *world) claim(name string, alter ...func(*v1.PersistentVolumeClaim)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, found := w.claims["ns/"+name]
	if !found {
		o = &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			UID: types.UID("claim-" + name)},
			Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}}}
	}
	o = o.DeepCopy()
	for _, change := range alter {
		change(o)
	}
	o.ResourceVersion = w.version()
	w.claims["ns/"+name] = o
}

// lock returns the name of the pod that has the lock of claim data, "" for none.
func (w *world) lock() string {
	return singlenode.ParseLock(w.claims["ns/data"].Annotations[singlenode.LockAnnotation]).Name
}

func (w *world) gated(pod string) bool { return objects.HasVolumeGate(w.pods["ns/"+pod]) }

// locked gives a claim the lock of a pod.
func locked(pod string) func(*v1.PersistentVolumeClaim) {
	return func(o *v1.PersistentVolumeClaim) {
		lock := singlenode.Lock{UID: types.UID("uid-" + pod), Name: pod}
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, singlenode.LockAnnotation, lock.String())
		o.Finalizers = []string{singlenode.Finalizer}
	}
}

// bound binds a claim to a PV named after it.
func bound(o *v1.PersistentVolumeClaim) { o.Spec.VolumeName = "pv-" + o.Name }

// volume creates the PV of a claim.
func (w *world) volume(claim string, labels map[string]string) {
	name := "pv-" + claim
	w.volumes[name] = &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels,
		ResourceVersion: w.version()}, Spec: v1.PersistentVolumeSpec{
		ClaimRef: &v1.ObjectReference{Namespace: "ns", Name: claim}, PersistentVolumeSource: v1.PersistentVolumeSource{
			CSI: &v1.CSIPersistentVolumeSource{Driver: "disk.csi.example.com",
				VolumeAttributes: map[string]string{"clusterID": "one", "image": claim}}}}}
}

// collected returns the metrics of a collector.
func collected(t *testing.T, from prometheus.Collector) (all []*dto.Metric) {
	t.Helper()
	to := make(chan prometheus.Metric, 100)
	from.Collect(to)
	close(to)
	for m := range to {
		var out dto.Metric
		must.OK(t, m.Write(&out))
		all = append(all, &out)
	}
	return all
}
