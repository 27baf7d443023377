package library

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	testclock "k8s.io/utils/clock/testing"
)

// written notes which Events are written.
type written struct {
	corev1.EventInterface
	events []string
}

func (w *written) CreateWithEventNamespaceWithContext(_ context.Context, event *v1.Event) (*v1.Event, error) {
	w.events = append(w.events, event.Reason+" of "+string(event.InvolvedObject.UID))
	return event, nil
}

func (w *written) PatchWithEventNamespaceWithContext(_ context.Context, event *v1.Event, _ []byte) (*v1.Event, error) {
	w.events = append(w.events, "again: "+event.Reason+" of "+string(event.InvolvedObject.UID))
	return event, nil
}

// A claim gets the Event Provisioning where its volume takes a second or more.
func TestProvisioningEventWaitsForOutcome(t *testing.T) {
	event := func(reason, claim string) *v1.Event {
		return &v1.Event{Reason: reason, InvolvedObject: v1.ObjectReference{UID: types.UID(claim)}}
	}
	create := func(reason, claim string) func(*claimEvents, *testclock.FakeClock) {
		return func(e *claimEvents, _ *testclock.FakeClock) {
			if got, err := e.CreateWithEventNamespace(event(reason, claim)); err != nil || got.Reason != reason {
				t.Errorf("Create = %v, %v", got, err)
			}
		}
	}
	pass := func(d time.Duration) func(*claimEvents, *testclock.FakeClock) {
		return func(_ *claimEvents, c *testclock.FakeClock) { c.Step(d) }
	}
	for name, c := range map[string]struct {
		happens []func(*claimEvents, *testclock.FakeClock)
		want    []string
	}{
		"the volume is there at once": {[]func(*claimEvents, *testclock.FakeClock){
			create("Provisioning", "a"), create("ProvisioningSucceeded", "a"), pass(time.Hour),
		}, []string{"ProvisioningSucceeded of a"}},
		"the driver takes long": {[]func(*claimEvents, *testclock.FakeClock){
			create("Provisioning", "a"), pass(999 * time.Millisecond), create("Provisioning", "b"), pass(time.Millisecond),
			create("ProvisioningSucceeded", "a"), create("ProvisioningFailed", "b"), pass(time.Hour),
		}, []string{"Provisioning of a", "ProvisioningSucceeded of a", "ProvisioningFailed of b"}},
		"it fails again and again": {[]func(*claimEvents, *testclock.FakeClock){
			create("Provisioning", "a"), create("ProvisioningFailed", "a"), create("Provisioning", "a"),
			func(e *claimEvents, _ *testclock.FakeClock) {
				if _, err := e.PatchWithEventNamespace(event("ProvisioningFailed", "a"), nil); err != nil {
					t.Error(err)
				}
			}, pass(time.Hour),
		}, []string{"ProvisioningFailed of a", "again: ProvisioningFailed of a"}},
		"the outcome of another claim": {[]func(*claimEvents, *testclock.FakeClock){
			create("Provisioning", "a"), create("ProvisioningSucceeded", "b"), pass(time.Second),
		}, []string{"ProvisioningSucceeded of b", "Provisioning of a"}},
	} {
		t.Run(name, func(t *testing.T) {
			to, clock := &written{}, testclock.NewFakeClock(time.Unix(0, 0))
			e := newClaimEvents(to, clock)
			for _, happens := range c.happens {
				happens(e, clock)
			}
			if !slices.Equal(to.events, c.want) || len(e.waiting) > 0 {
				t.Errorf("written %q, want %q; %d wait", to.events, c.want, len(e.waiting))
			}
		})
	}
}
