//go:build unix

package pods

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// scheduledPods are the times at which a watch has shown that pods have a node.
type scheduledPods struct {
	events watch.Interface

	mu      sync.Mutex
	at      map[string]time.Time
	changed chan struct{} // closed and made anew with each pod
	ended   bool
}

// watchPods watches the pods of a namespace from now on.
func watchPods(ctx context.Context, client kubernetes.Interface, namespace string) (watch.Interface, error) {
	pods := client.CoreV1().Pods(namespace)
	events, err := objects.WatchFromNow(ctx, metav1.ListOptions{}, pods.List, pods.Watch)
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	return events, nil
}

// watchScheduled begins to watch the pods of a namespace from now on. stop ends that.
func watchScheduled(ctx context.Context, env *session.Environment, namespace string) (*scheduledPods, error) {
	events, err := watchPods(ctx, env.Users[0], namespace)
	if err != nil {
		return nil, err
	}
	s := &scheduledPods{events: events, at: map[string]time.Time{}, changed: make(chan struct{})}
	go s.follow()
	return s, nil
}

// follow sees all events until the watch ends.
func (s *scheduledPods) follow() {
	for event := range s.events.ResultChan() {
		pod, ok := event.Object.(*v1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			continue
		}
		s.mu.Lock()
		if _, seen := s.at[pod.Name]; !seen {
			s.at[pod.Name] = time.Now()
			s.notify()
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.notify()
}

func (s *scheduledPods) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait returns when a pod has got its node.
func (s *scheduledPods) wait(ctx context.Context, pod string) (time.Time, error) {
	for {
		s.mu.Lock()
		at, seen := s.at[pod]
		changed, ended := s.changed, s.ended
		s.mu.Unlock()
		switch {
		case seen:
			return at, nil
		case ended:
			return at, fmt.Errorf("the watch of pods ended before pod %s had a node", pod)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return at, fmt.Errorf("wait until pod %s has a node: %w", pod, context.Cause(ctx))
		}
	}
}

func (s *scheduledPods) stop() { s.events.Stop() }
