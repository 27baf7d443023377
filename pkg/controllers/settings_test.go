package controllers

import (
	"testing"
	"time"

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
		if got != want || got.Validate() != nil {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	for _, wrong := range []Settings{{Workers: -1}, {RetryStart: time.Hour}} {
		if wrong.Validate() == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}
