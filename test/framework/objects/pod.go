package objects

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// PodSpec describes a pod.
type PodSpec struct {
	// Name, new in the namespace. Required.
	Name string
	// Claims are the names of the claims that it uses.
	Claims []string
	// Selector is the labels that its node must have. Default: any node.
	Selector map[string]string
	// Node is where it runs, past the scheduler. Default: where the scheduler sends it.
	Node string
	// Change alters the pod before it is made. Optional.
	Change func(*v1.Pod)
}

// Pod is a pod that uses claims.
type Pod struct {
	maker Maker
	Name  string
	UID   types.UID
}

// ClaimVolume returns a volume of a pod that is a claim's.
func ClaimVolume(name, claim string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

// EphemeralVolume returns a generic ephemeral volume of a pod, of a StorageClass.
func EphemeralVolume(name, class string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
		VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: ClaimFor(class)}}}}
}

// MakePod makes a pod and waits for nothing.
func (m Maker) MakePod(ctx context.Context, s PodSpec) (*Pod, error) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name},
		Spec: v1.PodSpec{
			// No container mounts anything: which volumes are used is said by spec.volumes, whether they are devices or
			// filesystems.
			Containers:   []v1.Container{{Name: "main", Image: "none"}},
			NodeSelector: s.Selector, NodeName: s.Node,
		},
	}
	for i, claim := range s.Claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, ClaimVolume(fmt.Sprintf("volume-%d", i), claim))
	}
	if s.Change != nil {
		s.Change(pod)
	}
	stored, err := m.Client.CoreV1().Pods(m.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make pod %q: %w", s.Name, err)
	}
	return &Pod{maker: m, Name: stored.Name, UID: stored.UID}, nil
}

// Get returns the current pod, or nil if it is gone or was replaced by another pod of its name.
func (p *Pod) Get(ctx context.Context) (*v1.Pod, error) {
	pod, err := p.maker.Client.CoreV1().Pods(p.maker.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case pod.UID != p.UID:
		return nil, nil
	}
	return pod, nil
}

// Wait returns once the pod is as wanted; want gets nil for a pod that is gone. The error describes
// the state that it was last seen in.
func (p *Pod) Wait(ctx context.Context, what string, want func(*v1.Pod) bool) error {
	return wait(ctx, fmt.Sprintf("pod %q to be %s", p.Name, what), source[v1.Pod]{
		get: p.Get, watch: p.maker.Client.CoreV1().Pods(p.maker.Namespace).Watch, name: p.Name,
		same: func(pod *v1.Pod) bool { return pod.UID == p.UID },
	}, want, describePod)
}

// WaitRunning returns the pod's node once it runs there.
func (p *Pod) WaitRunning(ctx context.Context) (node string, err error) {
	err = p.Wait(ctx, "running", func(pod *v1.Pod) bool {
		if pod == nil || pod.Status.Phase != v1.PodRunning {
			return false
		}
		node = pod.Spec.NodeName
		return true
	})
	return node, err
}

// Delete deletes the pod, as kubectl delete pod --wait=false does.
func (p *Pod) Delete(ctx context.Context) error {
	return p.maker.Client.CoreV1().Pods(p.maker.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
}

// WaitGone returns once the pod is gone.
func (p *Pod) WaitGone(ctx context.Context) error {
	return p.Wait(ctx, "gone", func(pod *v1.Pod) bool { return pod == nil })
}

// describePod describes the state of a pod in a few words, with the scheduler's message.
func describePod(pod *v1.Pod) string {
	if pod == nil {
		return "gone"
	}
	text := string(pod.Status.Phase)
	if pod.Spec.NodeName != "" {
		text += " on " + pod.Spec.NodeName
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == v1.PodScheduled && condition.Status != v1.ConditionTrue {
			text += ", not scheduled: " + condition.Message
		}
	}
	if pod.DeletionTimestamp != nil {
		text += ", terminating"
	}
	return text
}

// How long a wait pauses between two looks while it has no watch: briefly at first, for the API server is on this
// machine, and then longer and longer, for it has other work to do.
const (
	pollFirst = 5 * time.Millisecond
	pollLast  = 80 * time.Millisecond
)

// poll returns how long to wait before the next look, after this many.
func poll(looks int) time.Duration { return min(pollFirst<<min(looks, 10), pollLast) }

// source is how a wait sees one object.
type source[T any] struct {
	// get returns nil for an object that is gone or was replaced by another of its name.
	get func(context.Context) (*T, error)
	// watch follows the objects of its kind in its namespace; name selects the object, same tells it from another of its
	// name.
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	name  string
	same  func(*T) bool
}

// waiting is one wait for an object.
type waiting[T any] struct {
	source[T]
	want     func(*T) bool
	describe func(*T) string
	// seen is the state that the object was last seen in.
	seen string
}

// wait returns once an object is as wanted, also if it is so for a moment only. want and describe take nil for an
// object that is gone. The error describes the state that the object was last seen in.
func wait[T any](ctx context.Context, what string, at source[T], want func(*T) bool, describe func(*T) string) error {
	w := &waiting[T]{source: at, want: want, describe: describe, seen: "nothing"}
	for looks := 0; ; looks++ {
		if w.look(ctx) || w.follow(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last seen: %s", what, ctx.Err(), w.seen)
		case <-time.After(poll(looks)):
		}
	}
}

// look reads the object.
func (w *waiting[T]) look(ctx context.Context) bool {
	object, err := w.get(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.seen = err.Error()
		}
		return false
	}
	return w.is(object)
}

func (w *waiting[T]) is(object *T) bool {
	w.seen = w.describe(object)
	return w.want(object)
}

// follow watches the object until its state is the wanted one, or the watch ends. It reads the object again once it
// watches, because a watch shows only later changes.
func (w *waiting[T]) follow(ctx context.Context) bool {
	if w.watch == nil {
		return false
	}
	events, err := w.watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name",
		w.name).String()})
	if err != nil {
		return false
	}
	defer events.Stop()
	if w.look(ctx) {
		return true
	}
	for e := range events.ResultChan() {
		object, ok := any(e.Object).(*T)
		switch {
		case !ok:
			return false // an error, after which the watch is over
		case e.Type == watch.Deleted || !w.same(object):
			object = nil
		}
		if w.is(object) {
			return true
		}
	}
	return false
}
