package library

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// reasonProvisioning is that of the library's Event which precedes each call of the driver.
	reasonProvisioning = "Provisioning"
	// provisioningEventDelay is how long that Event waits for the outcome.
	provisioningEventDelay = time.Second
)

// claimEvents writes the library's Events. A claim whose outcome is there within a second gets the Event of that alone:
// "is provisioning" would be one write of each claim more, and nobody could read it in time. It is safe for concurrent
// use.
type claimEvents struct {
	corev1.EventInterface
	clock clock.WithDelayedExecution

	mu sync.Mutex
	// waiting are the Events that wait, by the UID of their claim.
	waiting map[types.UID]clock.Timer
}

func newClaimEvents(events corev1.EventInterface, clk clock.WithDelayedExecution) *claimEvents {
	return &claimEvents{EventInterface: events, clock: clk, waiting: map[types.UID]clock.Timer{}}
}

// CreateWithEventNamespace is the form that the library's recorder calls.
func (e *claimEvents) CreateWithEventNamespace(event *v1.Event) (*v1.Event, error) {
	return e.CreateWithEventNamespaceWithContext(context.Background(), event)
}

// PatchWithEventNamespace is the form that the library's recorder calls.
func (e *claimEvents) PatchWithEventNamespace(event *v1.Event, data []byte) (*v1.Event, error) {
	return e.PatchWithEventNamespaceWithContext(context.Background(), event, data)
}

// CreateWithEventNamespaceWithContext creates an Event, or has it wait.
func (e *claimEvents) CreateWithEventNamespaceWithContext(ctx context.Context, event *v1.Event) (*v1.Event, error) {
	e.drop(event.InvolvedObject.UID)
	if event.Reason == reasonProvisioning {
		e.wait(event) //nolint:contextcheck // it is written when the caller has gone on
		return event, nil
	}
	return e.EventInterface.CreateWithEventNamespaceWithContext(ctx, event)
}

// PatchWithEventNamespaceWithContext counts one more of an Event that was created before.
func (e *claimEvents) PatchWithEventNamespaceWithContext(ctx context.Context, event *v1.Event,
	data []byte) (*v1.Event, error) {
	e.drop(event.InvolvedObject.UID)
	return e.EventInterface.PatchWithEventNamespaceWithContext(ctx, event, data)
}

func (e *claimEvents) wait(event *v1.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	claim := event.InvolvedObject.UID
	e.waiting[claim] = e.clock.AfterFunc(provisioningEventDelay, func() {
		if e.take(claim) == nil {
			return // its outcome came at the same moment
		}
		if _, err := e.EventInterface.CreateWithEventNamespaceWithContext(context.Background(), event); err != nil {
			klog.Background().V(4).Info("Could not record an Event", "reason", event.Reason, "claim",
				klog.KRef(event.InvolvedObject.Namespace, event.InvolvedObject.Name), "err", err)
		}
	})
}

// drop has the Event of a claim that waits, if there is one, not be written.
func (e *claimEvents) drop(claim types.UID) {
	if timer := e.take(claim); timer != nil {
		timer.Stop()
	}
}

// take returns the timer of the Event of a claim that waits, nil for none, and forgets it.
func (e *claimEvents) take(claim types.UID) clock.Timer {
	e.mu.Lock()
	defer e.mu.Unlock()
	timer := e.waiting[claim]
	delete(e.waiting, claim)
	return timer
}
