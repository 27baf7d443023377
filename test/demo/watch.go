//go:build unix

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

func isProtected(pv *v1.PersistentVolume) bool {
	return pv != nil && slices.Contains(pv.Finalizers, reclaim.Finalizer)
}

// watcher notes every change of one PV that a person would care about, as it happens.
type watcher struct {
	t      *timeline
	stream watch.Interface
	ended  chan struct{}

	mu      sync.Mutex
	last    *v1.PersistentVolume
	changed chan struct{} // closed and made anew with each change
}

// watch follows the PV from now on.
func (s *stage) watch(ctx context.Context, t *timeline, vol *storage.Volume) (*watcher, error) {
	pv, err := vol.PV(ctx)
	if err != nil {
		return nil, err
	}
	if pv == nil {
		return nil, fmt.Errorf("watch PV %q: it is gone", vol.Name)
	}
	stream, err := s.client.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", vol.Name).String(),
		ResourceVersion: pv.ResourceVersion,
	})
	if err != nil {
		return nil, err
	}
	w := &watcher{t: t, stream: stream, ended: make(chan struct{}), last: pv, changed: make(chan struct{})}
	w.describe(nil, pv)
	go func() {
		defer close(w.ended)
		for event := range stream.ResultChan() {
			w.see(event)
		}
	}()
	return w, nil
}

func (w *watcher) see(event watch.Event) {
	pv, ok := event.Object.(*v1.PersistentVolume)
	if !ok {
		return
	}
	w.mu.Lock()
	before := w.last
	if event.Type == watch.Deleted {
		pv = nil
	}
	w.last = pv
	close(w.changed)
	w.changed = make(chan struct{})
	w.mu.Unlock()
	w.describe(before, pv)
}

// describe writes down what differs between two states of the PV.
func (w *watcher) describe(before, now *v1.PersistentVolume) {
	if now == nil {
		w.t.api("the PV is gone")
		return
	}
	if isProtected(now) != isProtected(before) {
		if isProtected(now) {
			w.t.api("csi-reclaimer's finalizer is on the PV")
		} else {
			w.t.api("csi-reclaimer's finalizer is off the PV")
		}
	}
	if before == nil {
		return
	}
	if now.DeletionTimestamp != nil && before.DeletionTimestamp == nil {
		w.t.api("the PV is terminating, phase " + string(now.Status.Phase))
	}
	if now.Status.Phase != before.Status.Phase {
		w.t.api("the PV's phase is " + string(now.Status.Phase))
	}
}

// until returns once the PV is in the state with this name.
func (w *watcher) until(ctx context.Context, state string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		w.mu.Lock()
		last, changed := w.last, w.changed
		w.mu.Unlock()
		if reached(last, state) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the PV to be %s: %w; it is %s", state, ctx.Err(), storage.Describe(last))
		}
	}
}

func reached(pv *v1.PersistentVolume, state string) bool {
	if pv == nil {
		// A PV that is gone has passed through all other states.
		return state == gone || state == "released"
	}
	switch state {
	case "protected":
		return isProtected(pv)
	case "terminating":
		return pv.DeletionTimestamp != nil
	case "released", "Released":
		return pv.Status.Phase == v1.VolumeReleased
	}
	return false
}

// stop ends the watch; what it had seen is written down then. It may be called twice.
func (w *watcher) stop() {
	w.stream.Stop()
	<-w.ended
}
