//go:build unix

package fencing

import (
	"context"
	"slices"
	"strconv"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// history has every version of the objects that take part in fences and releases. The resourceVersions of all kinds
// come from one counter, so that they show the order of the writes even if a watch is late.
type history struct {
	mu     sync.Mutex
	fences map[string][]version[*v1alpha1.NodeFence]
	nodes  map[string][]version[*v1.Node]
	pods   map[types.UID][]version[*v1.Pod]
	jobs   map[types.UID][]version[*batchv1.Job]
	// seen has the last version of each object.
	seen map[types.UID]uint64
}

// version is one version of an object.
type version[T any] struct {
	number  uint64
	object  T
	deleted bool
}

// record begins a history, which ends with the test.
func (env *environment) record() *history {
	env.T.Helper()
	h := &history{fences: map[string][]version[*v1alpha1.NodeFence]{}, nodes: map[string][]version[*v1.Node]{},
		pods: map[types.UID][]version[*v1.Pod]{}, jobs: map[types.UID][]version[*batchv1.Job]{},
		seen: map[types.UID]uint64{}}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(env.Ctx)
	env.T.Cleanup(func() { cancel(); running.Wait() })
	follow := func(watch func(context.Context, metav1.ListOptions) (watch.Interface, error)) {
		w, err := watch(ctx, metav1.ListOptions{})
		env.Must(err)
		running.Go(func() {
			defer w.Stop()
			for e := range w.ResultChan() {
				h.take(e)
			}
			if ctx.Err() == nil {
				env.T.Error("a watch has ended before its time")
			}
		})
	}
	follow(env.fences.Fences.Watch)
	follow(env.Client.CoreV1().Nodes().Watch)
	follow(env.Client.CoreV1().Pods(metav1.NamespaceAll).Watch)
	follow(env.Client.BatchV1().Jobs(metav1.NamespaceAll).Watch)
	return h
}

func (h *history) take(e watch.Event) {
	about, err := meta.Accessor(e.Object)
	if err != nil {
		return // the end of the watch
	}
	number, deleted := numberOf(about), e.Type == watch.Deleted
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[about.GetUID()] = number
	switch o := e.Object.(type) {
	case *v1alpha1.NodeFence:
		h.fences[o.Name] = append(h.fences[o.Name], version[*v1alpha1.NodeFence]{number, o, deleted})
	case *v1.Node:
		h.nodes[o.Name] = append(h.nodes[o.Name], version[*v1.Node]{number, o, deleted})
	case *v1.Pod:
		h.pods[o.UID] = append(h.pods[o.UID], version[*v1.Pod]{number, o, deleted})
	case *batchv1.Job:
		h.jobs[o.UID] = append(h.jobs[o.UID], version[*batchv1.Job]{number, o, deleted})
	}
}

func numberOf(o metav1.Object) uint64 {
	number, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return number
}

// before returns the last version before a number, nil for none.
func before[T any](all []version[T], number uint64) *version[T] {
	var last *version[T]
	for i := range all {
		if all[i].number < number {
			last = &all[i]
		}
	}
	return last
}

// check fails the test if anything was released without a proof, or begun without a record, in all of the history.
func (env *environment) check(h *history) {
	env.T.Helper()
	env.waitSeen(h)
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, versions := range h.nodes {
		env.checkTaints(h, name, versions)
	}
	for _, versions := range h.pods {
		env.checkRelease(h, versions)
	}
	for _, versions := range h.jobs {
		env.checkJob(h, versions[0])
	}
}

// waitSeen waits until the history has the current objects.
func (env *environment) waitSeen(h *history) {
	env.T.Helper()
	fences, err := env.fences.Fences.List(env.Ctx, metav1.ListOptions{})
	env.Must(err)
	nodes, err := env.Client.CoreV1().Nodes().List(env.Ctx, metav1.ListOptions{})
	env.Must(err)
	pods, err := env.Client.CoreV1().Pods(metav1.NamespaceAll).List(env.Ctx, metav1.ListOptions{})
	env.Must(err)
	env.Eventually("the history is complete", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, list := range []runtime.Object{fences, nodes, pods} {
			err := meta.EachListItem(list, func(o runtime.Object) error {
				about, err := meta.Accessor(o)
				if err == nil && h.seen[about.GetUID()] < numberOf(about) {
					err = context.DeadlineExceeded
				}
				return err
			})
			if err != nil {
				return false
			}
		}
		return true
	})
}

// checkTaints checks that the taint is added only under a proof that covers the node, while the node is not Ready, and
// removed only when the fence is not in force, or the node runs again.
func (env *environment) checkTaints(h *history, name string, versions []version[*v1.Node]) {
	env.T.Helper()
	for i, v := range versions {
		was := i > 0 && isTainted(versions[i-1].object)
		if v.deleted || isTainted(v.object) == was {
			continue
		}
		f := before(h.fences[name], v.number)
		switch ready := readiness(v.object); {
		case was && f != nil && isFenced(f.object) && !f.deleted &&
			v.object.Status.NodeInfo.BootID == f.object.Status.Proof.BootID:
			env.T.Errorf("the taint of node %s was removed under a fence in force: %s", name, describe(f.object))
		case was:
		case ready != v1.ConditionUnknown && ready != v1.ConditionFalse:
			env.T.Errorf("WRONG RELEASE: node %s was tainted while its condition Ready was %q", name, ready)
		case f == nil || f.deleted || !isFenced(f.object) || f.object.Status.Proof.Covers != v1alpha1.CoversUntilUnfenced:
			env.T.Errorf("WRONG RELEASE: node %s was tainted without a proof", name)
		}
	}
}

// checkRelease checks that a held pod on a node that is away was released under a proof that covers it, or its end was
// confirmed.
func (env *environment) checkRelease(h *history, versions []version[*v1.Pod]) {
	env.T.Helper()
	for i, v := range versions {
		if i == 0 || !isHeld(versions[i-1].object) || isHeld(v.object) && !v.deleted {
			continue
		}
		pod := versions[i-1].object
		node := before(h.nodes[pod.Spec.NodeName], v.number)
		away := node != nil && readiness(node.object) != v1.ConditionTrue
		if !away || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed ||
			pod.Annotations[objects.ConfirmAnnotation] == string(pod.UID) {
			continue
		}
		if f := before(h.fences[pod.Spec.NodeName], v.number); f == nil || f.deleted || !proves(f.object, pod.UID) {
			env.T.Errorf("WRONG RELEASE: pod %s/%s on node %s, which is away, was released without a proof", pod.Namespace,
				pod.Name, pod.Spec.NodeName)
		}
	}
}

// proves reports whether a fence shows that a pod's processes have ended.
func proves(f *v1alpha1.NodeFence, pod types.UID) bool {
	p := f.Status.Proof
	if p == nil || !isFenced(f) {
		return false
	}
	return p.Covers == v1alpha1.CoversUntilUnfenced || p.Covers == v1alpha1.CoversReboot &&
		slices.ContainsFunc(f.Status.Attempts, func(a v1alpha1.Attempt) bool {
			return a.Number == p.Attempt && slices.Contains(a.TerminatingPods, pod)
		})
}

// checkJob checks that an attempt was recorded before its Job was created.
func (env *environment) checkJob(h *history, created version[*batchv1.Job]) {
	env.T.Helper()
	node, attempt := variable(created.object, "FENCE_NODE"), variable(created.object, "FENCE_ATTEMPT")
	f := before(h.fences[node], created.number)
	if f == nil || !slices.ContainsFunc(f.object.Status.Attempts, func(a v1alpha1.Attempt) bool {
		return strconv.Itoa(int(a.Number)) == attempt
	}) {
		env.T.Errorf("the Job of attempt %s on node %s was created before the attempt was written down", attempt, node)
	}
}
