//go:build unix

package singlenode

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// history has every version of the objects that take part in the locks of claims. The resourceVersions of all kinds
// come from one counter, so that they show the order of the writes even if a watch is late.
type history struct {
	mu      sync.Mutex
	changes []change
	// live has the last version of each object that exists.
	live map[types.UID]uint64
}

// change is one version of an object, or its end.
type change struct {
	number  uint64
	object  metav1.Object
	deleted bool
}

// record begins a history. Where the API server is away for a time, versions can be missing: see stored.
func record(ctx context.Context, client kubernetes.Interface, stop func(func() error)) (*history, error) {
	h := &history{live: map[types.UID]uint64{}}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	stop(func() error { cancel(); running.Wait(); return nil })
	core, storage := client.CoreV1().RESTClient(), client.StorageV1().RESTClient()
	var synced []cache.InformerSynced
	for _, kind := range []struct {
		from   rest.Interface
		name   string
		object runtime.Object
	}{
		{core, "pods", &v1.Pod{}}, {core, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}},
		{core, "persistentvolumes", &v1.PersistentVolume{}}, {core, "namespaces", &v1.Namespace{}},
		{storage, "storageclasses", &storagev1.StorageClass{}},
	} {
		_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: cache.NewListWatchFromClient(kind.from, kind.name, metav1.NamespaceAll, fields.Everything()),
			ObjectType:    kind.object,
			Handler: cache.ResourceEventHandlerFuncs{
				AddFunc:    h.written,
				UpdateFunc: func(_, now any) { h.written(now) },
				DeleteFunc: h.deleted,
			},
		})
		running.Go(func() { informer.RunWithContext(ctx) })
		synced = append(synced, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, context.Cause(ctx)
	}
	return h, nil
}

func (h *history) written(obj any) {
	o, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if number := numberOf(o); h.live[o.GetUID()] != number {
		h.live[o.GetUID()] = number
		h.changes = append(h.changes, change{number: number, object: o})
	}
}

func (h *history) deleted(obj any) {
	missed, unseen := obj.(cache.DeletedFinalStateUnknown)
	if unseen {
		obj = missed.Obj
	}
	o, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	number := numberOf(o)
	if unseen {
		number++ // at some time after the last version that was seen
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.live, o.GetUID())
	h.changes = append(h.changes, change{number: number, object: o, deleted: true})
}

func numberOf(o metav1.Object) uint64 {
	number, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return number
}

// of returns the changes in a namespace, in the order of the writes.
func (h *history) of(namespace string) (changes []change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.changes {
		_, isNamespace := c.object.(*v1.Namespace)
		if in := c.object.GetNamespace(); in == namespace || in == "" && (!isNamespace || c.object.GetName() == namespace) {
			changes = append(changes, c)
		}
	}
	return inOrder(changes)
}

// inOrder returns changes in the order in which they were written.
func inOrder(changes []change) []change {
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.number, b.number) })
	return changes
}

// has reports whether the history is complete up to the API server's current state: these pods and claims of a
// namespace, and no others.
func (h *history) has(namespace string, pods []*v1.Pod, claims []*v1.PersistentVolumeClaim) bool {
	now := map[types.UID]uint64{}
	for _, pod := range pods {
		now[pod.UID] = numberOf(pod)
	}
	for _, claim := range claims {
		now[claim.UID] = numberOf(claim)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, number := range now {
		if h.live[uid] != number {
			return false
		}
	}
	for _, c := range h.changes {
		uid := c.object.GetUID()
		_, exists := now[uid]
		if _, live := h.live[uid]; c.object.GetNamespace() == namespace && live && !exists {
			return false
		}
	}
	return true
}

// saw reports whether the history has a version of each of these objects.
func (h *history) saw(uids []types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !slices.ContainsFunc(uids, func(uid types.UID) bool {
		return !slices.ContainsFunc(h.changes, func(c change) bool { return c.object.GetUID() == uid })
	})
}

// canaries creates an unused pod and an unused claim, and deletes them. A watch that shows one of them has shown all
// earlier writes of its kind. Without canaries, a lagging watch shows the same as a complete one once all objects are
// deleted.
func (env *environment) canaries() []types.UID {
	env.T.Helper()
	pod, err := env.create(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "canary-"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "none"}},
			NodeSelector: map[string]string{"no-node": "has-it"}},
	})
	env.Must(err)
	claim := env.Claims().Create(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{GenerateName: "canary-"},
		Spec: objects.ClaimFor("")})
	env.Pods().Delete(pod.Name)
	env.Claims().Delete(claim.Name)
	return []types.UID{pod.UID, claim.UID}
}

// judge judges the history of the environment's namespace, once it is complete.
func (env *environment) judge() verdict {
	env.T.Helper()
	last := env.canaries()
	env.Eventually("the history is complete", func() bool {
		if !env.history.saw(last) {
			return false
		}
		return env.history.has(env.Namespace, env.Pods().List(), env.Claims().List())
	})
	changes := env.history.of(env.Namespace)
	if env.watchesEnded {
		changes = env.stored(changes)
	}
	return judge(changes, env.excused)
}

// stored returns the history of the namespace with each stored version of its pods and claims, after its watches have
// ended. A restarted API server shows a watch no version from before its start, and the watches of pods and claims can
// miss different ones.
func (env *environment) stored(seen []change) []change {
	env.T.Helper()
	var others []change
	var first uint64
	for _, c := range seen {
		switch c.object.(type) {
		case *v1.Namespace:
			if first == 0 {
				first = c.number
			}
		case *v1.Pod, *v1.PersistentVolumeClaim:
			continue
		}
		others = append(others, c)
	}
	list, err := env.Client.CoreV1().Pods(env.Namespace).List(env.Ctx, metav1.ListOptions{})
	env.Must(err)
	last, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	env.Must(err)
	states := make([]state, last-first+1)
	var reading errgroup.Group
	reading.SetLimit(fixture.Concurrency)
	for i := range states {
		reading.Go(func() (err error) {
			states[i], err = env.stateAt(first + uint64(i))
			return err
		})
	}
	env.Must(reading.Wait())
	return inOrder(append(others, changesOf(first, states)...))
}

// state has the pods and claims of the namespace at one time.
type state map[types.UID]metav1.Object

// stateAt reads the stored state at a resourceVersion, which etcd keeps for some minutes.
func (env *environment) stateAt(number uint64) (state, error) {
	at := metav1.ListOptions{ResourceVersion: strconv.FormatUint(number, 10),
		ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	pods, err := env.Client.CoreV1().Pods(env.Namespace).List(env.Ctx, at)
	if err != nil {
		return nil, err
	}
	claims, err := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).List(env.Ctx, at)
	if err != nil {
		return nil, err
	}
	all := state{}
	for _, list := range []runtime.Object{pods, claims} {
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			o, err := meta.Accessor(item)
			if err == nil {
				all[o.GetUID()] = o
			}
			return err
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// changesOf returns the differences between consecutive states. first is the number of the first state.
func changesOf(first uint64, states []state) (changes []change) {
	before := state{}
	for i, now := range states {
		number := first + uint64(i)
		for _, uid := range slices.Sorted(maps.Keys(before)) {
			if now[uid] == nil {
				changes = append(changes, change{number: number, object: before[uid], deleted: true})
			}
		}
		for _, uid := range slices.Sorted(maps.Keys(now)) {
			if was := before[uid]; was == nil || numberOf(was) != numberOf(now[uid]) {
				changes = append(changes, change{number: number, object: now[uid]})
			}
		}
		before = now
	}
	return changes
}

// TestStoredChanges creates, changes and deletes objects.
func TestStoredChanges(t *testing.T) {
	t.Parallel()
	at := func(uid types.UID, number string) *v1.Pod {
		pod := podVersion(uid)
		pod.ResourceVersion = number
		return pod
	}
	var got []string
	for _, c := range changesOf(7, []state{
		{}, {"a": at("a", "8")}, {"a": at("a", "8"), "b": at("b", "9")}, {"a": at("a", "10"), "b": at("b", "9")},
		{"a": at("a", "10"), "b": at("b", "9")}, {"b": at("b", "9")},
	}) {
		text := strconv.FormatUint(c.number, 10) + " " + c.object.GetName() + " " + c.object.GetResourceVersion()
		if c.deleted {
			text += " deleted"
		}
		got = append(got, text)
	}
	if want := []string{"8 a 8", "9 b 9", "10 a 10", "12 a 10 deleted"}; !slices.Equal(got, want) {
		t.Errorf("the changes are %q, want %q", got, want)
	}
}
