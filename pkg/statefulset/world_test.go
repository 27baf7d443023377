package statefulset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

// world is a cluster in memory. Live reads and writes see its objects, and the watches see them after sync.
type world struct {
	*testing.T
	*Controller
	clock  *testclock.FakeClock
	events *record.FakeRecorder

	mu    sync.Mutex
	sets  map[string]*appsv1.StatefulSet
	pods  map[string]*v1.Pod
	live  map[string]*v1.PersistentVolumeClaim
	calls []string
	// fail has the errors of calls, by their first words.
	fail map[string]error
	last int
	// hook, if set, is called with each call, before it is carried out.
	hook func()

	setCache   *kubetest.Cache[*statefulset.Set]
	podCache   *kubetest.Cache[*statefulset.Pod]
	claimCache *kubetest.Cache[*claim]
	woken      *recording
}

// recording records the enqueued objects.
type recording struct {
	wake
	mu           sync.Mutex
	claims, sets []string
	idle         bool
}

func (r *recording) working() bool { return !r.idle }

func (r *recording) claim(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.claims, key) {
		r.claims = append(r.claims, key)
	}
}

func (r *recording) set(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.sets, key) {
		r.sets = append(r.sets, key)
	}
}

func (r *recording) forget() { r.claims, r.sets = nil, nil }

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	w := &world{T: t, clock: testclock.NewFakeClock(time.Unix(1_800_000_000, 0)), events: record.NewFakeRecorder(1000),
		sets: map[string]*appsv1.StatefulSet{}, pods: map[string]*v1.Pod{}, live: map[string]*v1.PersistentVolumeClaim{},
		fail: map[string]error{}, setCache: kubetest.NewCache[*statefulset.Set](),
		podCache: kubetest.NewCache[*statefulset.Pod](), claimCache: kubetest.NewCache[*claim]()}
	cfg.Clock, cfg.Events = w.clock, w.events
	var err error
	if w.Controller, err = newController(cfg, w); err != nil {
		t.Fatal(err)
	}
	w.woken = &recording{wake: w.observer.wake}
	w.observer.wake = w.woken
	w.observer.sets, w.observer.pods, w.observer.claims = w.setCache, w.podCache, w.claimCache
	return w
}

// sync delivers the current state to the watches, claims first, so that they come before their sets.
func (w *world) sync() {
	w.Helper()
	w.mu.Lock()
	claims, pods, sets := maps.Clone(w.live), maps.Clone(w.pods), maps.Clone(w.sets)
	w.mu.Unlock()
	kubetest.Deliver(w.T, w.claimCache, claims, recordClaim, kube.Handler[*claim](claimChanges{w.observer}))
	kubetest.Deliver(w.T, w.podCache, pods, recordPod,
		kube.Handler[*statefulset.Pod](kube.OnChange[*statefulset.Pod](w.observer.podChanged)))
	kubetest.Deliver(w.T, w.setCache, sets, kube.RecordAll(setOf), kube.Handler[*statefulset.Set](setChanges{w.observer}))
}

// settle works on all enqueued objects until none are left.
func (w *world) settle() {
	w.Helper()
	for range 100 {
		w.sync()
		claims, sets := w.woken.claims, w.woken.sets
		if len(claims)+len(sets) == 0 {
			return
		}
		w.woken.claims, w.woken.sets = nil, nil
		for _, key := range claims {
			w.reconcile(w.Context(), key)
		}
		for _, key := range sets {
			w.reconcileSet(w.Context(), key)
		}
	}
	w.Fatalf("there is no end of work; calls %q", w.calls[len(w.calls)-10:])
}

// call records a call, and returns the error that is set for it.
func (w *world) call(format string, args ...any) error {
	if w.hook != nil {
		w.hook()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	what := fmt.Sprintf(format, args...)
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

func (w *world) readClaim(_ context.Context, ns, name string) (statefulset.Claim, bool, error) {
	return read(w, "claim", w.live, ns+"/"+name, statefulset.ClaimOf)
}

func (w *world) readPod(_ context.Context, ns, name string) (statefulset.Pod, bool, error) {
	return read(w, "pod", w.pods, ns+"/"+name, statefulset.PodOf)
}

func (w *world) readSet(_ context.Context, ns, name string) (statefulset.Set, bool, error) {
	return read(w, "set", w.sets, ns+"/"+name, statefulset.SetOf)
}

// read answers a GET for an object of a kind.
func read[O, R any](w *world, kind string, of map[string]O, key string, record func(O) R) (r R, found bool, err error) {
	if err := w.call("get %s", kind); err != nil {
		return r, false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o, found := of[key]
	if found {
		r = record(o)
	}
	return r, found, nil
}

// bound returns the claim of an Ask, if the preconditions of the Ask hold.
func (w *world) bound(ask statefulset.Ask) (*v1.PersistentVolumeClaim, error) {
	o, found := w.live[ask.Namespace+"/"+ask.Name]
	switch {
	case !found || o.UID != ask.UID:
		return nil, kube.ErrGone
	case o.ResourceVersion != ask.ResourceVersion:
		return nil, kube.ErrChanged
	}
	return o.DeepCopy(), nil
}

func (w *world) patchClaim(_ context.Context, ask statefulset.Ask) error {
	var owners []string
	for _, ref := range ask.Owners {
		owners = append(owners, ref.Kind+"/"+ref.Name)
	}
	if err := w.call("patch claim %s %s %v", ask.Name, ask.Mark, owners); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o, err := w.bound(ask)
	if err != nil {
		return err
	}
	o.Annotations = maps.Clone(o.Annotations)
	delete(o.Annotations, statefulset.MarkAnnotation)
	if mark := ask.Mark.String(); mark != "" {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, statefulset.MarkAnnotation, mark)
	}
	o.OwnerReferences, o.ResourceVersion = ask.Owners, w.version()
	w.live[ask.Namespace+"/"+ask.Name] = o
	return nil
}

func (w *world) deleteClaim(_ context.Context, ask statefulset.Ask) error {
	if err := w.call("delete claim %s", ask.Name); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o, err := w.bound(ask)
	switch {
	case err != nil:
		return err
	case len(o.Finalizers) == 0:
		delete(w.live, ask.Namespace+"/"+ask.Name)
		return nil
	}
	o.DeletionTimestamp, o.ResourceVersion = ptr.To(metav1.NewTime(w.clock.Now())), w.version()
	w.live[ask.Namespace+"/"+ask.Name] = o
	return nil
}

func (w *world) deletePod(_ context.Context, ask statefulset.Ask) error {
	if err := w.call("delete pod %s", ask.Name); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o, found := w.pods[ask.Namespace+"/"+ask.Name]
	if !found || o.UID != ask.UID {
		return kube.ErrGone
	}
	delete(w.pods, ask.Namespace+"/"+ask.Name)
	return nil
}

func (w *world) patchWoken(_ context.Context, s statefulset.Set, value *string) error {
	if err := w.call("patch set %s woken=%t", s.Name, value != nil); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o, found := w.sets[s.Namespace+"/"+s.Name]
	if !found || o.UID != s.UID {
		return kube.ErrGone
	}
	o = o.DeepCopy()
	delete(o.Annotations, statefulset.WokenAnnotation)
	if value != nil {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, statefulset.WokenAnnotation, *value)
	}
	o.ResourceVersion = w.version()
	w.sets[s.Namespace+"/"+s.Name] = o
	return nil
}

func (w *world) eachClaim(_ context.Context, visit func(statefulset.Claim)) error {
	return each(w, "claims", w.live, func(o *v1.PersistentVolumeClaim) { visit(statefulset.ClaimOf(o)) })
}

func (w *world) eachSet(_ context.Context, visit func(statefulset.Set)) error {
	return each(w, "sets", w.sets, func(o *appsv1.StatefulSet) { visit(statefulset.SetOf(o)) })
}

// each answers a list of the objects of a kind.
func each[O any](w *world, kind string, of map[string]O, visit func(O)) error {
	if err := w.call("list %s", kind); err != nil {
		return err
	}
	w.mu.Lock()
	all := maps.Clone(of)
	w.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		visit(all[key])
	}
	return nil
}

// mark returns the mark of a claim, empty for none.
func (w *world) mark(name string) string {
	return w.live["ns/"+name].Annotations[statefulset.MarkAnnotation]
}

// deleted reports whether a claim is gone or terminating.
func (w *world) deleted(name string) bool {
	o, found := w.live["ns/"+name]
	return !found || o.DeletionTimestamp != nil
}

// condemned returns a world in which claim data-db-1 is condemned, its pod is gone, and the grace period has passed.
func condemned(t *testing.T, cfg Config) *world {
	t.Helper()
	w := newWorld(t, cfg)
	w.set("db", replicas(2))
	for n := range 2 {
		w.pod("db", n)
		w.claim(fmt.Sprintf("data-db-%d", n))
	}
	w.settle()
	w.endPod("db-1")
	w.set("db", replicas(1))
	w.settle()
	kubetest.EventReasons(w.events)
	w.clock.Step(statefulset.DefaultGrace)
	w.calls = nil
	return w
}

func (w *world) reconcileClaim() controller.Result { return w.reconcile(w.Context(), "ns/data-db-1") }
