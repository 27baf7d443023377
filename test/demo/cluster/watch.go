//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// Gone is the phase of a PV that left the API server.
const Gone = "gone"

// IsProtected reports whether a PV, which may be nil, has csi-reclaimer's finalizer.
func IsProtected(pv *v1.PersistentVolume) bool {
	return pv != nil && slices.Contains(pv.Finalizers, volume.Finalizer)
}

// IsTerminating reports whether a PV, which may be nil, is there and being deleted.
func IsTerminating(pv *v1.PersistentVolume) bool { return pv != nil && pv.DeletionTimestamp != nil }

// Phase returns the phase of a PV, Gone for nil.
func Phase(pv *v1.PersistentVolume) string {
	if pv == nil {
		return Gone
	}
	return string(pv.Status.Phase)
}

// Watcher follows a PV, and ClaimWatcher a claim.
type (
	Watcher      = watcher[*v1.PersistentVolume]
	ClaimWatcher = watcher[*v1.PersistentVolumeClaim]
)

// watched is a pointer to an object; nil is an object that is not there.
type watched interface {
	comparable
	metav1.Object
}

// watcher notes every change of one object that a person would care about, as it happens.
type watcher[O watched] struct {
	t        *stage.Timeline
	noun     string // the object's name in the timeline
	changes  func(noun string, before, now O) []string
	describe func(O) string
	stream   watch.Interface
	ended    chan struct{}

	mu        sync.Mutex
	last      O    // nil before the object is made and once it is gone
	protected bool // at some time
	goneAt    time.Time
	changed   chan struct{} // closed and made anew with each change
}

// WatchPVOf follows the PV of the claim with this name from before its creation. The creator of the PV chooses its
// name.
func (c *Cluster) WatchPVOf(ctx context.Context, t *stage.Timeline, claim string) (*Watcher, error) {
	of := func(pv *v1.PersistentVolume) bool { return pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.Name == claim }
	pvs := c.Client.CoreV1().PersistentVolumes()
	list, err := pvs.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(list.Items, func(pv v1.PersistentVolume) bool { return of(&pv) }) {
		return nil, fmt.Errorf("watch the PV of claim %q: there is one already", claim)
	}
	stream, err := pvs.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, err
	}
	return followPV(t, "PV", watch.Filter(stream, func(event watch.Event) (watch.Event, bool) {
		pv, ok := event.Object.(*v1.PersistentVolume)
		return event, !ok || of(pv)
	})), nil
}

// WatchPV follows the PV of this name from before it is made.
func (c *Cluster) WatchPV(ctx context.Context, t *stage.Timeline, noun, name string) (*Watcher, error) {
	stream, err := c.Client.CoreV1().PersistentVolumes().Watch(ctx, named(name))
	if err != nil {
		return nil, fmt.Errorf("watch PV %q: %w", name, err)
	}
	return followPV(t, noun, stream), nil
}

// WatchClaim follows the claim of this name from before it is made.
func (c *Cluster) WatchClaim(ctx context.Context, t *stage.Timeline, name string) (*ClaimWatcher, error) {
	stream, err := c.Client.CoreV1().PersistentVolumeClaims(c.Maker.Namespace).Watch(ctx, named(name))
	if err != nil {
		return nil, fmt.Errorf("watch claim %q: %w", name, err)
	}
	return (&ClaimWatcher{t: t, noun: "claim", changes: claimChanges, describe: objects.DescribeClaim}).follow(stream), nil
}

func named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
}

func followPV(t *stage.Timeline, noun string, stream watch.Interface) *Watcher {
	return (&Watcher{t: t, noun: noun, changes: changes, describe: objects.Describe}).follow(stream)
}

func (w *watcher[O]) follow(stream watch.Interface) *watcher[O] {
	w.stream, w.ended, w.changed = stream, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(w.ended)
		for event := range stream.ResultChan() {
			w.see(event, time.Now())
		}
	}()
	return w
}

// see records a change before it wakes the waiters, so that lines come in order.
func (w *watcher[O]) see(event watch.Event, now time.Time) {
	object, ok := event.Object.(O)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if event.Type == watch.Deleted {
		object, w.goneAt = *new(O), now
	} else if slices.Contains(object.GetFinalizers(), volume.Finalizer) {
		w.protected = true
	}
	for _, line := range w.changes(w.noun, w.last, object) {
		w.t.API(line)
	}
	w.last = object
	close(w.changed)
	w.changed = make(chan struct{})
}

// changes says in words how two states of a PV differ; nil is a PV that is not there.
func changes(noun string, before, now *v1.PersistentVolume) []string {
	if now == nil {
		if IsProtected(before) {
			// The API server lets an object go with its last finalizer, in one event.
			return []string{fmt.Sprintf("csi-reclaimer's finalizer is removed, and the %[1]s is gone", noun)}
		}
		return []string{"the " + noun + " is gone"}
	}
	var lines []string
	if before == nil {
		lines = append(lines, "the "+noun+" is there")
		before = &v1.PersistentVolume{Status: v1.PersistentVolumeStatus{Phase: now.Status.Phase}}
	}
	if IsTerminating(now) && !IsTerminating(before) {
		lines = append(lines, "the "+noun+" is terminating, phase "+Phase(now))
	}
	if Phase(now) != Phase(before) {
		lines = append(lines, "the "+noun+" is "+Phase(now))
	}
	for _, f := range now.Finalizers {
		if !slices.Contains(before.Finalizers, f) {
			lines = append(lines, nameOf(f)+" is added to the "+noun)
		}
	}
	for _, f := range before.Finalizers {
		if !slices.Contains(now.Finalizers, f) {
			lines = append(lines, nameOf(f)+" is removed from the "+noun)
		}
	}
	return lines
}

// claimChanges says in words how two states of a claim differ; nil is a claim that is not there.
func claimChanges(noun string, before, now *v1.PersistentVolumeClaim) []string {
	if now == nil {
		return []string{"the " + noun + " is gone"}
	}
	var lines []string
	if before == nil {
		lines = append(lines, "the "+noun+" is there")
		before = &v1.PersistentVolumeClaim{Status: v1.PersistentVolumeClaimStatus{Phase: now.Status.Phase}}
	}
	if now.Status.Phase != before.Status.Phase {
		lines = append(lines, "the "+noun+" is "+string(now.Status.Phase))
	}
	if now.DeletionTimestamp != nil && before.DeletionTimestamp == nil {
		lines = append(lines, "the "+noun+" is terminating")
	}
	return lines
}

func nameOf(finalizer string) string {
	if finalizer == volume.Finalizer {
		return "csi-reclaimer's finalizer"
	}
	return "finalizer " + finalizer
}

// errWatchEnded says that the API server closed the watch.
var errWatchEnded = errors.New("the watch ended")

// Until returns once the object is as wanted, or gone, after which it changes no more. Patience
// that ends is no error: the timeline says so, and the verdict is for later.
func (w *watcher[O]) Until(ctx context.Context, what string, want func(O) bool) error {
	patient := time.NewTimer(Patience)
	defer patient.Stop()
	for {
		w.mu.Lock()
		last, changed, isGone := w.last, w.changed, !w.goneAt.IsZero()
		w.mu.Unlock()
		if isGone || last != *new(O) && want(last) {
			return nil
		}
		select {
		case <-changed:
		case <-w.ended:
			return fmt.Errorf("wait for the %s to be %s: %w; it is %s", w.noun, what, errWatchEnded, w.describe(last))
		case <-patient.C:
			w.t.Demo(fmt.Sprintf("after %v the %s is not %s, but %s", Patience, w.noun, what, w.describe(last)))
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for the %s to be %s: %w; it is %s", w.noun, what, ctx.Err(), w.describe(last))
		}
	}
}

// UntilGone is Until for an object that is to go.
func (w *watcher[O]) UntilGone(ctx context.Context) error {
	return w.Until(ctx, Gone, func(O) bool { return false })
}

// UntilGoneAgain is UntilGone for an object that was seen to be there. It returns at once for another.
func (w *watcher[O]) UntilGoneAgain(ctx context.Context) error {
	w.mu.Lock()
	there := w.last != *new(O)
	w.mu.Unlock()
	if !there {
		return nil
	}
	return w.UntilGone(ctx)
}

// observed reports whether the object was protected at some time, and when it was seen to be gone, zero if it was not.
func (w *watcher[O]) observed() (protected bool, goneAt time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.protected, w.goneAt
}

// Stop ends the watch, and returns once its changes are recorded. It may be called twice.
func (w *watcher[O]) Stop() {
	w.stream.Stop()
	<-w.ended
}
