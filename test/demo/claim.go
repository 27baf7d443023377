//go:build unix

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// className is the StorageClass of a reclaim policy.
func className(policy v1.PersistentVolumeReclaimPolicy) string {
	return "demo-" + strings.ToLower(string(policy))
}

// makeClasses makes a StorageClass for each policy.
func (env *environment) makeClasses(ctx context.Context) error {
	for _, policy := range []v1.PersistentVolumeReclaimPolicy{v1.PersistentVolumeReclaimDelete,
		v1.PersistentVolumeReclaimRetain} {
		if _, err := env.maker.MakeClass(ctx, objects.Class{Name: className(policy), Policy: policy}); err != nil {
			return err
		}
	}
	return nil
}

// claimWatcher notes every change of one claim that a person would care about.
type claimWatcher struct {
	stream watch.Interface
	// gone is closed once the claim is.
	gone, ended chan struct{}
	once        sync.Once
}

// watchClaim follows the claim of this name from before it is made.
func (env *environment) watchClaim(ctx context.Context, t *timeline, name string) (*claimWatcher, error) {
	stream, err := env.client.CoreV1().PersistentVolumeClaims(env.maker.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("watch claim %q: %w", name, err)
	}
	w := &claimWatcher{stream: stream, gone: make(chan struct{}), ended: make(chan struct{})}
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
				t.api(line)
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

// waitGone waits until the claim was seen to be gone.
func (w *claimWatcher) waitGone(ctx context.Context) error {
	select {
	case <-w.gone:
		return nil
	case <-w.ended:
		return fmt.Errorf("wait for the claim to be gone: %w", errWatchEnded)
	case <-ctx.Done():
		return fmt.Errorf("wait for the claim to be gone: %w", ctx.Err())
	}
}

// patient waits until the claim was seen to be gone. Patience that ends is no error: the timeline says
// so, and the verdict is for later.
func (w *claimWatcher) patient(ctx context.Context, t *timeline) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := w.waitGone(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		t.demo(fmt.Sprintf("after %v the claim is not gone", patience))
		return nil
	}
	return err
}

// stop ends the watch. It may be called twice.
func (w *claimWatcher) stop() {
	w.stream.Stop()
	<-w.ended
}
