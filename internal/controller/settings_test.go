package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	s := Settings{}.WithDefaults()
	if s.Workers != 10 || s.Retries() != (Backoff{First: time.Second, Max: 5 * time.Minute}) ||
		s.Events != (events.Discard{}) || s.Clock != (clock.RealClock{}) {
		t.Errorf("by default: %+v", s)
	}
	recorder := record.NewFakeRecorder(1)
	for dryRun, want := range map[bool]record.EventRecorder{false: recorder, true: events.Discard{}} {
		s := Settings{DryRun: dryRun, Workers: 3, RetryStart: 1, RetryMax: 2, Events: recorder}.WithDefaults()
		if s.Workers != 3 || s.Retries() != (Backoff{First: 1, Max: 2}) || s.Events != want {
			t.Errorf("dry run %t: %+v", dryRun, s)
		}
	}
	for _, wrong := range []Settings{{Workers: -1}, {RetryStart: -1}, {RetryStart: time.Hour},
		{RetryMax: time.Millisecond}} {
		if wrong.Validate() == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}

type invalid struct{ error }

func (i invalid) Validate() error { return i.error }

func TestConnect(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	for want, c := range map[string]struct {
		config *rest.Config
		err    error
	}{
		"":                          {&rest.Config{Host: "localhost"}, nil},
		"make it: nil rest.Config":  {nil, nil},
		"make it: " + wrong.Error(): {&rest.Config{Host: "localhost"}, wrong},
	} {
		clients, err := Connect("make it", c.config, invalid{c.err})
		if got := fmt.Sprint(errors.Join(err)); err != nil && got != want || (err == nil) != (clients.Core != nil) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A queue has a worker in any case.
func TestSettingsQueue(t *testing.T) {
	t.Parallel()
	c := NewController("x")
	for workers, want := range map[int]int{0: 1, 1: 1, 7: 7} {
		q := Settings{}.Queue(c, "q", workers, nil)
		t.Cleanup(q.Stop)
		if q.cfg.Workers != want || q.of != c || q.cfg.Name != "q" {
			t.Errorf("%d workers: %+v", workers, q.cfg)
		}
	}
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	var p Permissions
	p.Add("", "pods", "a", "get")
	p.AddUnsafe("apps", "statefulsets", "b", "list", "watch")
	p.AddEvents(events.Discard{}, "c")
	p.AddEvents(record.NewFakeRecorder(1), "c")
	var got []string
	for _, one := range p.All {
		got = append(got, fmt.Sprint(one.Verb, " ", one.Resource, ".", one.Group, " ", one.Without, " ", one.Unsafe))
	}
	if want := []string{"get pods. a false", "list statefulsets.apps b true", "watch statefulsets.apps b true",
		"create events. c false", "patch events. c false"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
