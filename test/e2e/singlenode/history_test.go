//go:build unix

package singlenode

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
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
func (h *history) has(namespace string, pods *v1.PodList, claims *v1.PersistentVolumeClaimList) bool {
	now := map[types.UID]uint64{}
	for i := range pods.Items {
		now[pods.Items[i].UID] = numberOf(&pods.Items[i])
	}
	for i := range claims.Items {
		now[claims.Items[i].UID] = numberOf(&claims.Items[i])
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
	claims := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace)
	claim, err := claims.Create(env.Ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "canary-"},
		Spec: v1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(""),
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceStorage: resource.MustParse("1Ki")}}},
	}, metav1.CreateOptions{})
	env.Must(err)
	env.Must(env.Client.CoreV1().Pods(env.Namespace).Delete(env.Ctx, pod.Name, metav1.DeleteOptions{}))
	env.Must(claims.Delete(env.Ctx, claim.Name, metav1.DeleteOptions{}))
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
		pods, err := env.Client.CoreV1().Pods(env.Namespace).List(env.Ctx, metav1.ListOptions{})
		env.Must(err)
		claims, err := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).List(env.Ctx, metav1.ListOptions{})
		env.Must(err)
		return env.history.has(env.Namespace, pods, claims)
	})
	changes := env.history.of(env.Namespace)
	if env.watchesEnded {
		changes = env.stored(changes)
	}
	return judge(changes, env.excused)
}
