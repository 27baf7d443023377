package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// step is a decision, named by its text.
type step string

func (s step) Waits() bool             { return s == "wait" }
func (s step) Words() (string, string) { return string(s), "Because" }

// script has the decisions of the test; the default is a read.
type script struct {
	steps []step
	fails step
	ends  step
	diary []string
}

var errNoAnswer = errors.New("no answer")

func (s *script) decide() step {
	if len(s.steps) == 0 {
		return "read"
	}
	d := s.steps[0]
	s.steps = s.steps[1:]
	return d
}

func (s *script) do(_ context.Context, d step) (over bool, err error) {
	s.diary = append(s.diary, string(d))
	if d == s.fails {
		return false, errNoAnswer
	}
	return d == s.ends, nil
}

func TestSteps(t *testing.T) {
	for name, c := range map[string]struct {
		script
		want []string
		last step
		err  error
	}{
		"steps until there is nothing to do": {
			script: script{steps: []step{"read", "write", "wait"}},
			want:   []string{"read", "write"}, last: "wait",
		},
		"a step that fails": {
			script: script{steps: []step{"read", "write", "wait"}, fails: "write"},
			want:   []string{"read", "write"}, last: "write", err: errNoAnswer,
		},
		"a step after which nothing is left": {
			script: script{steps: []step{"read", "write", "wait"}, ends: "write"},
			want:   []string{"read", "write"}, last: "write",
		},
		"steps without an end": {
			want: []string{"read", "read", "read"}, last: "read", err: errSteps,
		},
		"as many steps as there may be": {
			script: script{steps: []step{"read", "read", "write", "wait"}},
			want:   []string{"read", "read", "write"}, last: "wait",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.script
			last, err := Steps(t.Context(), 3, s.decide, s.do)
			if !slices.Equal(s.diary, c.want) || last != c.last || !errors.Is(err, c.err) {
				t.Errorf("%q, then %q, %v, want %q, then %q, %v", s.diary, last, err, c.want, c.last, c.err)
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
	const year = 365 * 24 * time.Hour
	for _, d := range []time.Duration{-time.Second, 0, time.Millisecond, time.Hour, year, 2147483647 * time.Second,
		100 * year, math.MaxInt64} {
		b := After(d).Backoff
		for _, random := range []float64{0, 0.5, 0.9999} {
			if got := b.delay(7, random); got < min(d, year) || got <= 0 || got > min(max(d, 0), year)*5/4+time.Millisecond {
				t.Errorf("After(%v) is %v", d, got)
			}
		}
	}
	if Every(0) != Done() {
		t.Error("a key that is polled at no interval comes back")
	}
}
