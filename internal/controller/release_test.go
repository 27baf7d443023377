package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

var (
	errRestored = errors.New("it is added again")
	errAnswer   = errors.New("no answer")
	// errRefused is the answer of an API server whose policy refuses a write.
	errRefused = errors.Join(errAnswer, fmt.Errorf("patch pod: %w", apierrors.NewForbidden(schema.GroupResource{}, "pod",
		errAnswer)))
)

func TestUntilQuiet(t *testing.T) {
	always := func(int) (bool, error) { return true, nil }
	for sentence, c := range map[string]struct {
		// pass is the result of a pass, by its number.
		pass func(int) (bool, error)
		err  error
		// passes is the number of passes, and took the duration of the release.
		passes int
		took   time.Duration
	}{
		"nothing is there": {func(int) (bool, error) { return false, nil }, nil, 6, 5 * time.Second},
		"a few are there":  {func(i int) (bool, error) { return i < 3, nil }, nil, 8, 7 * time.Second},
		"one comes late":   {func(i int) (bool, error) { return i == 4, nil }, nil, 10, 9 * time.Second},
		"a pass fails": {func(i int) (bool, error) { return true, []error{nil, errAnswer}[i] }, errAnswer, 2,
			time.Second},
		"a policy refuses until its end is observed": {func(i int) (bool, error) {
			if i < 5 {
				return false, errRefused
			}
			return i == 5, nil
		}, nil, 11, 10 * time.Second},
		"a policy refuses for longer": {func(int) (bool, error) { return true, errRefused }, errRefused, 6, 5 * time.Second},
		"they come again":             {always, errRestored, 31, 30 * time.Second},
		"the last that is found is not one too many": {func(i int) (bool, error) { return i < 30, nil }, nil, 35,
			34 * time.Second},
	} {
		t.Run(sentence, func(t *testing.T) {
			start, passes := time.Now(), 0
			clock := kubetest.EagerClock{FakeClock: testclock.NewFakeClock(start)}
			err := UntilQuiet(t.Context(), clock, errRestored, func(context.Context) (bool, error) {
				passes++
				return c.pass(passes - 1)
			})
			if took := clock.Since(start); !errors.Is(err, c.err) || passes != c.passes || took != c.took {
				t.Errorf("%v after %d passes and %v, want %v after %d and %v", err, passes, took, c.err, c.passes, c.took)
			}
		})
	}
}

func TestRelease(t *testing.T) {
	one := func(context.Context) (int, error) { return 1, nil }
	some := func(context.Context) (int, error) { return 1, errAnswer }
	if done, err := Release(t.Context(), "release pods", false, one); done != 1 || err != nil {
		t.Errorf("%d, %v", done, err)
	}
	done, err := Release(t.Context(), "release pods", false, some)
	if done != 1 || !errors.Is(err, errAnswer) || !strings.HasPrefix(err.Error(), "release pods: ") {
		t.Errorf("of a release that fails: %d, %v", done, err)
	}
	done, err = Release(t.Context(), "release pods", true, one)
	if done != 0 || err == nil || !strings.HasPrefix(err.Error(), "release pods: Config.DryRun") {
		t.Errorf("in a dry run: %d, %v", done, err)
	}
}

func TestUntilQuietEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	clock := testclock.NewFakeClock(time.Now()) // a clock that does not advance
	err := UntilQuiet(ctx, clock, errRestored, func(context.Context) (bool, error) { cancel(); return false, nil })
	if !errors.Is(err, context.Canceled) || clock.HasWaiters() {
		t.Errorf("%v, a timer is left: %v", err, clock.HasWaiters())
	}
}

// The end of the context comes first, even if the pause is over at the same time.
func TestRepeatEndsWithContext(t *testing.T) {
	clock := kubetest.EagerClock{FakeClock: testclock.NewFakeClock(time.Now())}
	for range 20 { // a choice between both would be random
		ctx, cancel := context.WithCancel(t.Context())
		start, calls := clock.Now(), 0
		Repeat(ctx, clock, time.Minute, func(context.Context) {
			if calls++; calls == 3 {
				cancel()
			}
		})
		if took := clock.Since(start); calls != 3 || took < 2*time.Minute || took > 3*time.Minute {
			t.Fatalf("%d calls in %v", calls, took)
		}
	}
}

func TestEachReturnsErrorsInOrder(t *testing.T) {
	second := make(chan struct{})
	err := Each(t.Context(), 2, []int{1, 2, 3}, func(n int) error {
		switch n {
		case 1:
			<-second
			return errAnswer
		case 2:
			close(second)
			return errRestored
		}
		return nil
	})
	if err == nil || err.Error() != errAnswer.Error()+"\n"+errRestored.Error() {
		t.Errorf("errors %v", err)
	}
	if err := Each(t.Context(), 1, nil, func(int) error { return errAnswer }); err != nil {
		t.Errorf("without work: %v", err)
	}
}

func TestEachLimitsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, ended := make(chan struct{}), make(chan error)
		var begun atomic.Int32
		go func() {
			ended <- Each(t.Context(), 2, []int{1, 2, 3}, func(int) error { begun.Add(1); <-release; return nil })
		}()
		synctest.Wait()
		if begun.Load() != 2 {
			t.Errorf("%d are at work", begun.Load())
		}
		close(release)
		if err := <-ended; err != nil || begun.Load() != 3 {
			t.Errorf("%d were done, %v", begun.Load(), err)
		}
	})
}

func TestEachEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	begun := 0
	if err := Each(ctx, 1, []int{1, 2, 3, 4}, func(int) error { begun++; cancel(); return nil }); !errors.Is(err,
		context.Canceled) || begun > 2 { // the second may begin while the first ends
		t.Errorf("%d began, %v", begun, err)
	}
}

func TestProgressLogsAtIntervals(t *testing.T) {
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	clock := testclock.NewFakeClock(time.Now())
	p := Progress{Clock: clock}
	for i := range 12 {
		p.Log(ctx, "Releasing", "released", i)
		clock.Step(time.Second)
	}
	lines := slices.Collect(strings.Lines(log.String()))
	if len(lines) != 3 || !strings.Contains(lines[1], `"Releasing" released=5`) {
		t.Errorf("log %q", lines)
	}
}
