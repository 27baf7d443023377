package session

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// Tracker watches all PVs and records their events with times.
type Tracker struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed and made anew with each change
	err     error         // why the watch ended

	pvs map[string]PvTimes
	// Protected and gone count the PVs that were seen so.
	Protected, Gone int
	// onReleased, if set, is called for each PV that turns Released, from the goroutine that watches.
	onReleased func(name string)
}

// PvTimes are the times at which the watch showed a PV's states; zero for states that it did not show.
type PvTimes struct {
	Protected, released, Gone time.Time
	// handle is the volume's.
	handle string
}

// Track begins to watch the PVs from now on.
func Track(ctx context.Context, client kubernetes.Interface) (*Tracker, error) {
	ctx, stop := context.WithCancel(ctx)
	pvs := client.CoreV1().PersistentVolumes()
	w, err := objects.WatchFromNow(ctx, metav1.ListOptions{}, pvs.List, pvs.Watch)
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch PVs: %w", err)
	}
	t := &Tracker{stop: stop, changed: make(chan struct{}), pvs: map[string]PvTimes{}}
	t.done.Go(func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			t.see(event, time.Now())
		}
		t.end(fmt.Errorf("the watch of PVs ended"))
	})
	return t, nil
}

func (t *Tracker) see(event watch.Event, now time.Time) {
	pv, ok := event.Object.(*v1.PersistentVolume)
	if !ok {
		t.end(fmt.Errorf("the watch of PVs showed %T", event.Object))
		return
	}
	t.mu.Lock()
	before := t.pvs[pv.Name]
	after := before.seen(pv, event.Type == watch.Deleted, now)
	t.pvs[pv.Name] = after
	count := func(n *int, before, after time.Time) {
		if before.IsZero() && !after.IsZero() {
			*n++
		}
	}
	count(&t.Protected, before.Protected, after.Protected)
	count(&t.Gone, before.Gone, after.Gone)
	released := before.released.IsZero() && !after.released.IsZero()
	close(t.changed)
	t.changed = make(chan struct{})
	t.mu.Unlock()
	if released && t.onReleased != nil {
		t.onReleased(pv.Name)
	}
}

// seen adds an event.
func (p PvTimes) seen(pv *v1.PersistentVolume, deleted bool, now time.Time) PvTimes {
	first := func(at *time.Time) {
		if at.IsZero() {
			*at = now
		}
	}
	if pv.Status.Phase == v1.VolumeReleased {
		first(&p.released)
	}
	if pv.Spec.CSI != nil {
		p.handle = pv.Spec.CSI.VolumeHandle
	}
	switch {
	case deleted:
		first(&p.Gone)
	case slices.Contains(pv.Finalizers, volume.Finalizer):
		first(&p.Protected)
	}
	return p
}

func (t *Tracker) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// Wait returns once the tracker is as wanted; want is called with the lock held.
func (t *Tracker) Wait(ctx context.Context, what string, want func(*Tracker) bool) error {
	for {
		t.mu.Lock()
		there, err, changed := want(t), t.err, t.changed
		state := fmt.Sprintf("%d PVs, %d protected, %d gone", len(t.pvs), t.Protected, t.Gone)
		t.mu.Unlock()
		if there {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for PVs to be %s: %w; there are %s", what, err, state)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for PVs to be %s: %w; there are %s", what, context.Cause(ctx), state)
		case <-changed:
		}
	}
}

// Span returns the earliest and the latest of the times that pick chooses, of the PVs named.
func (t *Tracker) Span(names []string, pick func(PvTimes) time.Time) (first, last time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		at := pick(t.pvs[name])
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last
}

// Handles returns the volume handles of the PVs named.
func (t *Tracker) Handles(names []string) map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	handles := map[string]string{}
	for _, name := range names {
		handles[name] = t.pvs[name].handle
	}
	return handles
}

// Close ends the watch.
func (t *Tracker) Close() {
	t.stop()
	t.done.Wait()
}
