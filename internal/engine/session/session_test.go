package session

import (
	"fmt"
	"testing"
	"time"
)

func TestFresh(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	first, second := Read{Sent: now, Order: 1}, Read{Sent: now, Order: 2}
	for name, c := range map[string]struct{ got, want bool }{
		"none was made":         {Read{Sent: now}.Fresh(now), false},
		"just made":             {first.Fresh(now), true},
		"as old as counts":      {first.Fresh(now.Add(LiveFor)), true},
		"too old":               {first.Fresh(now.Add(LiveFor + 1)), false},
		"after another":         {second.FreshAfter(first, now), true},
		"after none":            {first.FreshAfter(Read{}, now), true},
		"before another":        {first.FreshAfter(second, now), false},
		"not after itself":      {first.FreshAfter(first, now), false},
		"after, and too old":    {second.FreshAfter(first, now.Add(LiveFor+1)), false},
		"none, after none":      {Read{}.FreshAfter(Read{}, now), false},
		"of a clock set back":   {first.Fresh(now.Add(-time.Hour)), true},
		"sent, and not counted": {Read{Sent: now.Add(time.Hour)}.Fresh(now), false},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

func TestNewerResourceVersion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version, than string
		want          bool
	}{
		"later": {"10", "9", true}, "earlier": {"9", "10", false}, "the same": {"9", "9", false},
		"no number": {"x", "9", true}, "none": {"", "10", true}, "than none": {"10", "", true},
	} {
		if got := Newer(c.version, c.than); got != c.want {
			t.Errorf("%s: newer: %t", name, got)
		}
	}
}

func TestQuiet(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		since int64
		want  time.Duration
	}{
		"since now":                  {1000, time.Minute},
		"since a while":              {960, 20 * time.Second},
		"since a minute":             {940, 0},
		"since long ago":             {1, 0},
		"since an unknown time":      {0, 0},
		"since a time in the future": {5000, time.Minute},
	} {
		if got := Quiet(c.since, now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steps  int
		next   Kind
		dryRun bool
		want   End
	}{
		"a wait":                   {0, Waits, false, Waiting},
		"a wait after the limit":   {3, Waits, false, Waiting},
		"a wait of a dry run":      {0, Waits, true, Waiting},
		"a read":                   {0, Reads, false, NotEnded},
		"a read of a dry run":      {0, Reads, true, NotEnded},
		"the last read":            {2, Reads, false, NotEnded},
		"a read after the limit":   {3, Reads, false, TooSlow},
		"a write":                  {0, Writes, false, NotEnded},
		"a write of a dry run":     {0, Writes, true, Skipped},
		"a write after the limit":  {3, Writes, true, TooSlow},
		"a word that is no action": {0, Writes + 1, false, NotEnded},
	} {
		p := Progress{Steps: c.steps}
		p.Step(c.next, c.dryRun, 3)
		if p.End != c.want || p.Steps != c.steps+1 {
			t.Errorf("%s: %+v, want %v", name, p, c.want)
		}
	}
}

func TestTook(t *testing.T) {
	t.Parallel()
	for o, want := range map[Outcome]End{Succeeded: NotEnded, Conflict: Conflicted, Gone: ObjectGone,
		Unanswered: CallFailed, Gone + 1: CallFailed} {
		var p Progress
		if ok := p.Took(o); p.Ended() != want || ok != (o == Succeeded) {
			t.Errorf("%v: %+v %v, want %v", o, p, ok, want)
		}
	}
}

func TestLive(t *testing.T) {
	t.Parallel()
	var p Progress
	sent := time.Unix(1, 0)
	if a, b := p.Live(sent), p.Live(sent); a != (Read{sent, 1}) || b != (Read{sent, 2}) || p.ReadCount != 2 {
		t.Errorf("%+v %+v of %+v", a, b, p)
	}
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	for end, want := range map[End]Requeue{
		Waiting: RequeueAfter, Skipped: RequeueAfter, Written: RequeueAfter, ObjectGone: RequeueAfter,
		Conflicted: RequeueSoon, CallFailed: RequeueRetry, TooSlow: RequeueRetry,
	} {
		if got := (Progress{End: end}).Requeue(time.Second); got != want {
			t.Errorf("%v: %v, want %v", end, got, want)
		}
	}
	if got := (Progress{End: Waiting}).Requeue(0); got != RequeueNever {
		t.Errorf("a wait without an end: %v", got)
	}
}

type named string

func (n named) String() string { return string(n) }

func TestKindOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[named]Kind{
		"Wait": Waits, "ReadPod": Reads, "ListPods": Reads, "DeletePod": Writes, "AwaitPod": Writes, "Unknown": Writes,
		"": Writes,
	} {
		if got := KindOf(name); got != want {
			t.Errorf("%q is of kind %d, want %d", name, got, want)
		}
	}
}

type action Kind

func (a action) Kind() Kind     { return Kind(a) }
func (a action) String() string { return Name(a, []string{"wait", "read", "write"}) }

type reason string

func (r reason) Would(action fmt.Stringer) string {
	return action.String() + " because of " + string(r)
}

type decision Step[reason]

func (d decision) Step() Step[reason] { return Step[reason](d) }

func TestState(t *testing.T) {
	t.Parallel()
	const why = reason("Why")
	for name, c := range map[string]struct {
		does    action
		outcome Outcome
		steps   int
		dryRun  bool
		want    reason
		requeue Requeue
	}{
		"a wait":                    {does: action(Waits), want: why, requeue: RequeueAfter},
		"a read that fails":         {does: action(Reads), want: "APIReadFailed", requeue: RequeueRetry},
		"a read that finds nothing": {does: action(Reads), outcome: Gone, requeue: RequeueAfter},
		"a write that fails":        {does: action(Writes), want: "APIWriteFailed", requeue: RequeueRetry},
		"of another version":        {does: action(Writes), outcome: Conflict, requeue: RequeueSoon},
		"of a subject that is gone": {does: action(Writes), outcome: Gone, requeue: RequeueAfter},
		"a write of dry run":        {does: action(Writes), dryRun: true, want: "DryRun", requeue: RequeueAfter},
		"a write too late":          {does: action(Writes), steps: 3, want: "APIReadFailed", requeue: RequeueRetry},
		"a write that worked":       {does: action(Writes), outcome: Succeeded, want: why, requeue: RequeueAfter},
	} {
		var s State[int, decision, reason]
		s.Steps = c.steps
		s.Decided(decision{c.does, why, time.Second}, c.dryRun, 3)
		if kind, does, because := s.Next(); kind != c.does.Kind() || does != c.does.String() || because != string(why) {
			t.Errorf("%s: next is %v %s because of %s", name, kind, does, because)
		}
		if s.Would() != c.does.String()+" because of Why" {
			t.Errorf("%s: %q", name, s.Would())
		}
		if s.End == NotEnded && s.Took(c.outcome) {
			s.End = Written
		}
		if got := s.Reason(); got != c.want || s.Requeue() != c.requeue {
			t.Errorf("%s: ended as %d with %q, requeue %d", name, s.End, got, s.Requeue())
		}
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	for a, want := range []string{"wait", "", "write", ""} {
		if want == "" {
			want = "Unknown"
		}
		if got := Name(action(a), []string{0: "wait", 2: "write"}); got != want {
			t.Errorf("%d: %q, want %q", a, got, want)
		}
	}
}
