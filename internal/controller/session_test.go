package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// asker asks for one step of each of its kinds, and then ends.
type asker struct {
	session.Progress
	kinds []session.Kind
}

func newAsker(kinds ...session.Kind) *asker {
	a := &asker{kinds: append(kinds, session.Waits)}
	a.step()
	return a
}

func (a *asker) step() { a.Step(a.kinds[a.Steps], false, 3) }

func (a *asker) Ask() int { return a.Steps }

func (a *asker) Next() (kind session.Kind, action, reason string) {
	return a.kinds[a.Steps-1], fmt.Sprint(a.Steps), fmt.Sprint("because of ", a.Steps)
}

func (a *asker) take(o session.Outcome) {
	if a.Took(o) {
		a.step()
	}
}

func TestCarryOut(t *testing.T) {
	t.Parallel()
	const reads, writes = session.Reads, session.Writes
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		asker *asker
		fails map[int]error
		end   session.End
		want  error
		calls []string
	}{
		"nothing to do": {newAsker(), nil, session.Waiting, nil, nil},
		"a read and a write": {newAsker(reads, writes), nil, session.Waiting, nil,
			[]string{"call 1", "answer at 1s of 0s", "call 2", "answer at 2s of 1s", "wrote 2 because of 2"}},
		"a read that fails": {newAsker(reads, writes), map[int]error{1: refused}, session.CallFailed, refused,
			[]string{"call 1", "answer at 1s of 0s"}},
		"a write that fails": {newAsker(writes, writes), map[int]error{1: refused}, session.CallFailed, refused,
			[]string{"call 1", "answer at 1s of 0s"}},
		"a write of a changed object": {newAsker(writes), map[int]error{1: kube.ErrChanged}, session.Conflicted, nil,
			[]string{"call 1", "answer at 1s of 0s"}},
		"a write of a deleted object": {newAsker(writes), map[int]error{1: kube.ErrGone}, session.ObjectGone, nil,
			[]string{"call 1", "answer at 1s of 0s"}},
		"reads without end": {newAsker(reads, reads, reads, reads), nil, session.TooSlow, errSlow,
			[]string{"call 1", "answer at 1s of 0s", "call 2", "answer at 2s of 1s", "call 3", "answer at 3s of 2s"}},
	} {
		began := time.Unix(0, 0)
		clock := testingclock.NewFakePassiveClock(began)
		var calls []string
		note := func(format string, args ...any) { calls = append(calls, fmt.Sprintf(format, args...)) }
		err := Calls[*asker, int, session.Outcome]{
			Clock: clock,
			Call: func(_ context.Context, ask int) (session.Outcome, error) {
				note("call %d", ask)
				clock.SetTime(clock.Now().Add(time.Second))
				return OutcomeOf(c.fails[ask]), c.fails[ask]
			},
			Answer: func(s *asker, o session.Outcome, sent, now time.Time) {
				note("answer at %v of %v", now.Sub(began), sent.Sub(began))
				s.take(o)
			},
			Wrote: func(_ context.Context, _ *asker, ask int, why string) { note("wrote %d %s", ask, why) },
		}.CarryOut(t.Context(), c.asker)
		if c.asker.End != c.end || !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: ended as %d with %v, want %d with %v", name, c.asker.End, err, c.end, c.want)
		}
		if !reflect.DeepEqual(calls, c.calls) {
			t.Errorf("%s: %q, want %q", name, calls, c.calls)
		}
	}
}

// TestOutdatedWriteIsNotRetried has the API server refuse a write for a time after which its decision is outdated.
// client-go repeats such a request by itself.
func TestOutdatedWriteIsNotRetried(t *testing.T) {
	t.Parallel()
	for refused, want := range map[time.Duration]int{session.LiveFor: 2, session.LiveFor + 1: 1} {
		clock, requests := testingclock.NewFakePassiveClock(time.Unix(0, 0)), 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if requests++; requests == 1 {
				clock.SetTime(clock.Now().Add(refused))
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}))
		defer server.Close()
		clients, err := kube.NewClients(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		a := newAsker(session.Writes)
		err = Calls[*asker, int, session.Outcome]{
			Clock: clock,
			Call: func(ctx context.Context, _ int) (session.Outcome, error) {
				err := clients.Core.Pods("ns").Delete(ctx, "pod", metav1.DeleteOptions{})
				return OutcomeOf(err), err
			},
			Answer: func(s *asker, o session.Outcome, _, _ time.Time) { s.take(o) },
			Wrote:  func(context.Context, *asker, int, string) {},
		}.CarryOut(t.Context(), a)
		if requests != want || errors.Is(err, ErrOutdated) != (want == 1) || (a.End == session.CallFailed) != (want == 1) {
			t.Errorf("refused for %v: %d requests, ended as %d with %v", refused, requests, a.End, err)
		}
	}
}

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	for want, err := range map[session.Outcome]error{
		session.Succeeded: nil, session.Gone: fmt.Errorf("delete: %w", kube.ErrGone),
		session.Conflict: fmt.Errorf("patch: %w", kube.ErrChanged), session.Unanswered: context.DeadlineExceeded,
	} {
		if got := OutcomeOf(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

func TestRequeueOfSession(t *testing.T) {
	t.Parallel()
	retries := Backoff{First: time.Second, Max: time.Minute}
	for requeue, want := range map[session.Requeue]Result{
		session.RequeueNever: Done(), session.RequeueSoon: Soon(), session.RequeueRetry: retries.Retry(),
		session.RequeueAfter: After(time.Hour),
	} {
		if got := retries.Requeue(requeue, time.Hour); got != want {
			t.Errorf("%d: %v, want %v", requeue, got, want)
		}
	}
}
