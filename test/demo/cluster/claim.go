//go:build unix

package cluster

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage"
)

// ClaimWatcher notes every change of one claim that a person would care about.
type ClaimWatcher struct {
	stream watch.Interface
	// gone is closed once the claim is.
	gone, ended chan struct{}
	once        sync.Once
}

// WatchClaim follows the claim of this name from before it is made.
func (c *Cluster) WatchClaim(ctx context.Context, t *stage.Timeline, name string) (*ClaimWatcher, error) {
	stream, err := c.Client.CoreV1().PersistentVolumeClaims(c.Maker.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("watch claim %q: %w", name, err)
	}
	w := &ClaimWatcher{stream: stream, gone: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		var last *v1.PersistentVolumeClaim
		for event := range stream.ResultChan() {
			claim, ok := event.Object.(*v1.PersistentVolumeClaim)
			if !ok {
				continue
			}
			if event.Type == watch.Deleted {
				claim = nil
			}
			for _, line := range claimChanges(last, claim) {
				t.API(line)
			}
			last = claim
			if claim == nil {
				w.once.Do(func() { close(w.gone) })
			}
		}
	}()
	return w, nil
}

// claimChanges says in words how two states of the claim differ; nil is a claim that is not there.
func claimChanges(before, now *v1.PersistentVolumeClaim) []string {
	if now == nil {
		return []string{"the claim is gone"}
	}
	var lines []string
	if before == nil {
		lines = append(lines, "the claim is there")
		before = &v1.PersistentVolumeClaim{Status: v1.PersistentVolumeClaimStatus{Phase: now.Status.Phase}}
	}
	if now.Status.Phase != before.Status.Phase {
		lines = append(lines, "the claim is "+string(now.Status.Phase))
	}
	if now.DeletionTimestamp != nil && before.DeletionTimestamp == nil {
		lines = append(lines, "the claim is terminating")
	}
	return lines
}

// WaitGone waits until the claim was seen to be gone.
func (w *ClaimWatcher) WaitGone(ctx context.Context) error {
	select {
	case <-w.gone:
		return nil
	case <-w.ended:
		return fmt.Errorf("wait for the claim to be gone: %w", errWatchEnded)
	case <-ctx.Done():
		return fmt.Errorf("wait for the claim to be gone: %w", ctx.Err())
	}
}

// Patient waits until the claim was seen to be gone. Patience that ends is no error: the timeline says
// so, and the verdict is for later.
func (w *ClaimWatcher) Patient(ctx context.Context, t *stage.Timeline) error {
	waiting, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	err := w.WaitGone(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		t.Demo(fmt.Sprintf("after %v the claim is not gone", Patience))
		return nil
	}
	return err
}

// Stop ends the watch. It may be called twice.
func (w *ClaimWatcher) Stop() {
	w.stream.Stop()
	<-w.ended
}
