package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// step is a decision, named by its text.
type step string

func (s step) Waits() bool             { return s == "wait" }
func (s step) Writes() bool            { return s == "write" }
func (s step) Words() (string, string) { return string(s), "Because" }

// script is a session with the decisions of the test.
type script struct {
	steps []step
	fails step
	ends  step
	diary []string
	err   error
}

func (s *script) Decide(time.Time) step {
	if len(s.steps) == 0 {
		return "read"
	}
	d := s.steps[0]
	s.steps = s.steps[1:]
	return d
}

func (s *script) Do(_ context.Context, d step) (over bool, err error) {
	s.diary = append(s.diary, string(d))
	if d == s.fails {
		return false, errors.New("no answer")
	}
	return d == s.ends, nil
}

func (s *script) Wait(_ context.Context, d step) Result {
	s.diary = append(s.diary, "ends: "+string(d))
	return Every(time.Minute)
}

func (s *script) Fail(_ context.Context, d step, err error) Result {
	s.diary, s.err = append(s.diary, "fails: "+string(d)), err
	return Soon()
}

func TestReconcile(t *testing.T) {
	for name, c := range map[string]struct {
		script
		dryRun bool
		want   []string
		result Result
	}{
		"steps until there is nothing to do": {
			script: script{steps: []step{"read", "write", "wait"}},
			want:   []string{"read", "write", "ends: wait"}, result: Every(time.Minute),
		},
		"a dry run ends before the first write": {
			script: script{steps: []step{"read", "write", "wait"}}, dryRun: true,
			want: []string{"read", "ends: write"}, result: Every(time.Minute),
		},
		"a step that fails": {
			script: script{steps: []step{"read", "write", "wait"}, fails: "write"},
			want:   []string{"read", "write", "fails: write"}, result: Soon(),
		},
		"a step after which nothing is left": {
			script: script{steps: []step{"read", "write", "wait"}, ends: "write"},
			want:   []string{"read", "write"}, result: Done(),
		},
		"steps without an end": {
			script: script{},
			want:   []string{"read", "read", "read", "fails: read"}, result: Soon(),
		},
		"as many steps as there may be": {
			script: script{steps: []step{"read", "read", "write", "wait"}},
			want:   []string{"read", "read", "write", "ends: wait"}, result: Every(time.Minute),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.script
			got := Reconcile(t.Context(), &s, Steps{Max: 3, DryRun: c.dryRun, Clock: testclock.NewFakeClock(time.Unix(0, 0))})
			if !slices.Equal(s.diary, c.want) || got != c.result {
				t.Errorf("%q and %v, want %q and %v", s.diary, got, c.want, c.result)
			}
			if name == "steps without an end" && !errors.Is(s.err, ErrSteps) {
				t.Errorf("error %v", s.err)
			}
		})
	}
}

func TestFailureOf(t *testing.T) {
	cause := errors.New("no answer")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	of := func(class errclass.Class) error { return errclass.Mark(class, cause) }
	retries := Backoff{First: time.Second, Max: 5 * time.Minute}
	retry, slow := Result{Backoff{time.Second, 5 * time.Minute}}, Result{Backoff{10 * time.Second, 5 * time.Minute}}
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want Failure
		then Result
	}{
		"none":              {t.Context(), nil, Ended, Done()},
		"the lease ended":   {over, cause, Ended, Done()},
		"gone":              {t.Context(), fmt.Errorf("patch: %w", kube.ErrGone), Ended, Done()},
		"changed":           {t.Context(), fmt.Errorf("patch: %w", kube.ErrChanged), Transient, Soon()},
		"in progress":       {t.Context(), of(errclass.InProgress), Transient, Soon()},
		"refused":           {t.Context(), of(errclass.Refused), Lasting, slow},
		"not found":         {t.Context(), of(errclass.NotFound), Lasting, slow},
		"unfit":             {t.Context(), of(errclass.Unfit), Lasting, slow},
		"any other":         {t.Context(), cause, Retryable, retry},
		"no failure":        {t.Context(), of(errclass.Uncertain), Retryable, retry},
		"no room for it":    {t.Context(), of(errclass.Exhausted), Retryable, retry},
		"gone, as a driver": {t.Context(), errclass.Mark(errclass.Refused, kube.ErrGone), Ended, Done()},
	} {
		got := FailureOf(c.ctx, c.err)
		if got != c.want || got.Result(retries) != c.then {
			t.Errorf("%s: %v and %v, want %v and %v", name, got, got.Result(retries), c.want, c.then)
		}
	}
}

func TestAfterIsNeverEarly(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, 0, time.Millisecond, time.Hour} {
		b := After(d).Backoff
		for _, random := range []float64{0, 0.5, 0.9999} {
			if got := b.delay(7, random); got < d || got <= 0 || got > max(d, 0)*5/4+time.Millisecond {
				t.Errorf("After(%v) is %v", d, got)
			}
		}
	}
	if Every(0) != Done() {
		t.Error("a key that is polled at no interval comes back")
	}
}
