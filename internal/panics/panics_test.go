package panics

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

func TestContain(t *testing.T) {
	done := false
	if err := Contain(t.Context(), func() { done = true }); err != nil || !done {
		t.Errorf("without a panic: %v, done is %v", err, done)
	}
	err := Contain(t.Context(), func() { panic("bad object") }, "part", "test")
	if !errors.Is(err, Err) || !strings.Contains(err.Error(), "bad object") {
		t.Errorf("a panic: %v", err)
	}
}

func TestRestartAfterPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, failures, began := 0, 0, time.Now()
		Restart(t.Context(), clock.RealClock{}, "test", func(context.Context) {
			if calls++; calls < 3 {
				panic("bad object")
			}
		}, func(err error) {
			if failures++; !errors.Is(err, Err) {
				t.Error(err)
			}
		})
		if calls != 3 || failures != 2 || time.Since(began) != 2*restartAfter {
			t.Errorf("%d calls, %d failures, after %v", calls, failures, time.Since(began))
		}
	})
}

func TestRestartEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	Restart(ctx, clock.RealClock{}, "test", func(context.Context) { calls++; panic("bad object") },
		func(error) { cancel() })
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}
