package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

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
func TestQueueOf(t *testing.T) {
	t.Parallel()
	c := NewController("x")
	for workers, want := range map[int]int{0: 1, 1: 1, 7: 7} {
		q := QueueOf(c, controllers.Settings{}, "q", workers, nil)
		t.Cleanup(q.Stop)
		if q.cfg.Workers != want || q.of != c || q.cfg.Name != "q" {
			t.Errorf("%d workers: %+v", workers, q.cfg)
		}
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()
	if got := Retries(controllers.Settings{RetryStart: 1, RetryMax: 2}); got != (Backoff{First: 1, Max: 2}) {
		t.Errorf("%+v", got)
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
