package proxy

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

func refused(err error) bool {
	return err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
}

func TestFaultsOfWrites(t *testing.T) {
	cases := map[string]struct {
		rule    Rule
		want    func(error) bool
		reached int
		crashes int
	}{
		"no rule: it is carried out": {Rule{Verb: "get", Effect: Reset},
			func(err error) bool { return err == nil }, 1, 0},
		"a rule for another resource leaves it alone": {Rule{Resource: "events", Effect: Reset},
			func(err error) bool { return err == nil }, 1, 0},
		"a rule for a family of resources": {Rule{Resource: "persistentvolume*", Effect: Fail, Code: 500},
			apierrors.IsInternalError, 0, 0},
		"a pattern does not take in the subresources": {Rule{Resource: "*/status", Effect: Reset},
			func(err error) bool { return err == nil }, 1, 0},
		"a rule for another object leaves it alone": {Rule{Object: "b*", Effect: Reset},
			func(err error) bool { return err == nil }, 1, 0},
		"reset: the server sees nothing":    {Rule{Verb: "write", Effect: Reset}, refused, 0, 0},
		"answer dropped: the server did it": {Rule{Verb: "patch", Effect: DropAnswer}, refused, 1, 0},
		"409: the server sees nothing": {Rule{Object: "a", Effect: Fail, Code: 409}, apierrors.IsConflict,
			0, 0},
		"429: obeyed, and sent again": {Rule{Nth: 1, Effect: Fail, Code: 429, RetryAfter: 1},
			func(err error) bool { return err == nil }, 1, 0},
		"500: the server sees nothing": {Rule{Effect: Fail, Code: 500}, apierrors.IsInternalError, 0, 0},
		"500 afterwards: the server did it": {Rule{Effect: FailAfter, Code: 500}, apierrors.IsInternalError, 1,
			0},
		"late: still carried out": {Rule{Effect: Delay, Delay: Duration(30 * time.Millisecond)},
			func(err error) bool { return err == nil }, 1, 0},
		"late answer: still carried out": {Rule{Effect: LateAnswer, Delay: Duration(30 * time.Millisecond)},
			func(err error) bool { return err == nil }, 1, 0},
		"crash before: the server sees nothing":   {Rule{Effect: Crash, At: Before}, refused, 0, 1},
		"crash once committed: the server did it": {Rule{Effect: Crash}, refused, 1, 1},
		"crash once answered: the client knows": {Rule{Effect: Crash, At: Answered},
			func(err error) bool { return err == nil }, 1, 1},
		"the second alone: the first is let through": {Rule{Nth: 2, Effect: Reset},
			func(err error) bool { return err == nil }, 1, 0},
		"each second one: the first is let through": {Rule{Every: 2, Effect: Reset},
			func(err error) bool { return err == nil }, 1, 0},
		"rules about watches are none about other calls": {Rule{Effect: Expire}, func(err error) bool { return err == nil },
			1, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, c.rule)
			if err := s.patch(); !c.want(err) {
				t.Errorf("the client got %v", err)
			}
			if got := s.count("PATCH"); got != c.reached {
				t.Errorf("the server saw %d patches, want %d", got, c.reached)
			}
			for range c.crashes {
				<-s.crashes
			}
			if len(s.crashes) != 0 {
				t.Error("a crash too many")
			}
		})
	}
}

func TestRuleHitsTheNthRequest(t *testing.T) {
	s := newStand(t, Rule{Verb: "write", Nth: 2, Effect: DropAnswer})
	errs := []error{s.patch(), s.patch(), s.patch()}
	if errs[0] != nil || errs[1] == nil || errs[2] != nil {
		t.Errorf("want the second alone to fail, got %v", errs)
	}
	if s.proxy.Applied() != 1 {
		t.Errorf("applied %d times, want 1", s.proxy.Applied())
	}
	labels := []string{}
	for _, q := range s.proxy.Requests() {
		labels = append(labels, q.Rule)
	}
	if !slices.Equal(labels, []string{"", "drop-answer", ""}) {
		t.Errorf("the record says %q", labels)
	}
}

// The client's reaction to the last answer must not reach the server.
func TestNoRequestPassesWhileClientIsStopped(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stand) {
		second := make(chan error)
		s.atCrash = func() {
			go func() { second <- s.patch() }()
			synctest.Wait()
			select {
			case err := <-second:
				t.Errorf("a patch of a client that is being ended was answered: %v", err)
			default:
			}
		}
		must.OK(t, s.patch())
		if err := <-second; err == nil {
			t.Error("a request of the dead client was carried out")
		}
		if got := s.count("PATCH"); got != 1 {
			t.Errorf("the server saw %d patches, want 1", got)
		}
	}, Rule{Nth: 1, Effect: Crash, At: Answered})
}

func next(t *testing.T, w watch.Interface) string {
	t.Helper()
	select {
	case e, open := <-w.ResultChan():
		if !open {
			return "end"
		}
		if o, ok := e.Object.(*v1.PersistentVolume); ok {
			return o.Name
		}
		return string(e.Type)
	case <-time.After(patience):
		t.Fatal("nothing came")
		return ""
	}
}

// expectNothing expects that a watch has no event once all goroutines of the bubble wait.
func expectNothing(t *testing.T, w watch.Interface) {
	t.Helper()
	synctest.Wait()
	select {
	case e := <-w.ResultChan():
		t.Fatalf("got %+v", e)
	default:
	}
}

func TestHeldWatchEventsArriveOnRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stand) {
		w := s.watch()
		s.events <- "a"
		if got := next(t, w); got != "a" {
			t.Fatalf("got %s", got)
		}
		s.proxy.Hold("persistentvolumes")
		s.events <- "b"
		s.events <- "c"
		expectNothing(t, w)
		s.proxy.Release("persistentvolumes")
		if got := next(t, w) + next(t, w); got != "bc" {
			t.Errorf("got %s", got)
		}
	})
}

func TestDelayedWatch(t *testing.T) {
	const lag = 100 * time.Millisecond
	inBubble(t, func(t *testing.T, s *stand) {
		w := s.watch()
		before := time.Now()
		s.events <- "a"
		if got := next(t, w); got != "a" || time.Since(before) != lag {
			t.Errorf("got %s after %v, want it after %v", got, time.Since(before), lag)
		}
	}, Rule{Verb: "watch", Effect: LateAnswer, Delay: Duration(lag)})
}

func TestClosedWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stand) {
		w := s.watch()
		s.events <- "a"
		s.events <- "b"
		s.events <- "c"
		if got := next(t, w) + next(t, w) + next(t, w); got != "abend" {
			t.Errorf("got %s, want two events and the end", got)
		}
		// The server must have ended the first watch, or that watch takes the event of the second.
		synctest.Wait()
		again := s.watch()
		s.events <- "d"
		// The end of the first watch and its third event race in the server: the second watch may still get that event.
		if got := next(t, again); got != "c" && got != "d" {
			t.Errorf("got %s from the second watch", got)
		}
		if n := s.proxy.Cut("persistentvolumes"); n != 1 {
			t.Errorf("cut %d watches, want 1", n)
		}
		for got := ""; got != "end"; {
			got = next(t, again)
		}
	}, Rule{Nth: 1, Effect: Cut, After: 2})
}

func TestResumedWatchIsExpired(t *testing.T) {
	s := newStand(t, Rule{Effect: Expire})
	if _, err := s.client.CoreV1().PersistentVolumes().Watch(t.Context(),
		metav1.ListOptions{ResourceVersion: "7"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v, want 410", err)
	}
	s.watch() // begins anew
}

func TestStaleListFromWatchCache(t *testing.T) {
	s := newStand(t, Rule{Effect: Stale, Version: "50"})
	for client, want := range map[string]string{"0": "50", "40": "50", "60": "60", "": ""} {
		list, err := s.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{ResourceVersion: client})
		if err != nil {
			t.Fatal(err)
		}
		if list.ResourceVersion != want {
			t.Errorf("a list that may be as old as %q is answered as of %q, want %q", client, list.ResourceVersion, want)
		}
	}
	yes := true
	_, err := s.client.CoreV1().PersistentVolumes().Watch(t.Context(),
		metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: "NotOlderThan"})
	if !apierrors.IsInvalid(err) {
		t.Errorf("got %v, want a refusal", err)
	}
	if err := s.get(); err != nil {
		t.Error(err)
	}
}

func TestFrozenLineAnswersAfterHeal(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stand) {
		w := s.watch()
		s.proxy.Freeze()
		s.events <- "a"
		expectNothing(t, w)
		answer := make(chan error, 1)
		go func() { answer <- s.get() }()
		synctest.Wait()
		if len(answer) > 0 || s.count("GET /api/v1/persistentvolumes/a") > 0 {
			t.Error("a frozen line passed a request on")
		}
		s.proxy.Heal()
		if err := <-answer; err != nil {
			t.Errorf("after the freeze: %v", err)
		}
		if got := next(t, w); got != "a" {
			t.Errorf("got %s after the freeze", got)
		}
	})
}

func TestPartedLineBreaksConnectionsUntilHealed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stand) {
		w := s.watch()
		s.proxy.Partition()
		if got := next(t, w); got != "end" {
			t.Errorf("got %s from a watch without a line", got)
		}
		if err := s.get(); err == nil || s.count("GET /api/v1/persistentvolumes/a") > 0 {
			t.Errorf("there is no line, and the server was asked, or the client got %v", err)
		}
		s.proxy.Heal()
		if err := s.get(); err != nil {
			t.Error(err)
		}
	})
}

func TestInvalidRulesAreRefused(t *testing.T) {
	for name, r := range map[string]Rule{
		"no effect": {}, "unknown effect": {Effect: "burn"}, "unknown verb": {Verb: "steal", Effect: Reset},
		"two counts": {First: 1, Nth: 2, Effect: Reset}, "negative count": {Nth: -1, Effect: Reset},
		"a code that is no error": {Effect: Fail, Code: 200}, "a delay of nothing": {Effect: Delay},
		"a crash at no moment": {Effect: Crash, At: "later"}, "a watch's effect on a write": {Verb: "patch", Effect: Cut},
		"stale without a version": {Effect: Stale}, "a bad pattern": {Object: "[", Effect: Reset},
	} {
		if err := r.Validate(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
