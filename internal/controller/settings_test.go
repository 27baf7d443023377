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
	recorder := record.NewFakeRecorder(1)
	all := Settings{Workers: 3, RetryStart: 1, RetryMax: 2, Events: recorder, Clock: clock.RealClock{}}
	dry := all
	dry.DryRun = true
	for given, want := range map[Settings]Settings{
		{}:  {Workers: 10, RetryStart: time.Second, RetryMax: 5 * time.Minute, Events: events.Discard{}, Clock: all.Clock},
		all: all,
		dry: {DryRun: true, Workers: 3, RetryStart: 1, RetryMax: 2, Events: events.Discard{}, Clock: all.Clock},
	} {
		got := given.WithDefaults()
		if got != want || got.Retries() != (Backoff{First: want.RetryStart, Max: want.RetryMax}) || got.Validate() != nil {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	for _, wrong := range []Settings{{Workers: -1}, {RetryStart: time.Hour}} {
		if wrong.Validate() == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}

type invalid struct{ error }

func (i invalid) Validate() error { return i.error }

func TestConnect(t *testing.T) {
	t.Parallel()
	config := &rest.Config{Host: "localhost"}
	if clients, err := Connect("make it", config, invalid{}); err != nil || clients.Core == nil {
		t.Errorf("%+v, %v", clients, err)
	}
	if _, err := Connect("make it", nil, invalid{}); err == nil || err.Error() != "make it: nil rest.Config" {
		t.Error(err)
	}
	if _, err := Connect("make it", config, invalid{errors.New("bad")}); err == nil || err.Error() != "make it: bad" {
		t.Error(err)
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
