package certs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	renewal = 30 * 24 * time.Hour
	settle  = 3 * time.Minute
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// pair is a pair with its own authority that expires after a time.
func pair(ends time.Duration, authority string) *keyPair {
	return &keyPair{CA: issuer{[]byte(authority), start.Add(ends)}, Names: []string{"guard.ns.svc"},
		NotAfter: start.Add(ends)}
}

// early is a pair that is valid an hour later.
func early(authority string) *keyPair {
	p := pair(3*renewal, authority)
	p.NotBefore = start.Add(time.Hour)
	return p
}

// old are authorities of earlier pairs; "!" has expired.
func old(names ...string) (all []issuer) {
	for _, name := range names {
		ends := start.Add(time.Hour)
		if name == "!" {
			ends = start
		}
		all = append(all, issuer{[]byte(name), ends})
	}
	return all
}

// healthy is a state in which no step is due.
func healthy() facts {
	return facts{
		Known: true, Names: []string{"guard.ns.svc"}, Trusted: true, Since: start.Add(-time.Hour), RenewBefore: renewal,
		PropagationDelay: settle,
		State:            State{Current: pair(2*renewal, "a")},
	}
}

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		change func(*facts)
		want   action
	}{
		"all is well":             {func(*facts) {}, wait},
		"nothing is known":        {func(s *facts) { *s = facts{} }, wait},
		"the Secret was not read": {func(s *facts) { s.Known, s.State = false, State{} }, wait},
		"no name is to be served": {func(s *facts) { s.Names, s.State = nil, State{} }, wait},
		"there is none":           {func(s *facts) { s.State = State{} }, issueFirst},
		"it has ended":            {func(s *facts) { s.State.Current = pair(0, "a") }, issueFirst},
		"it is for other names":   {func(s *facts) { s.Names = append(s.Names, "another") }, issueFirst},
		"it is not trusted":       {func(s *facts) { s.Trusted = false }, trust},
		"it ends soon":            {func(s *facts) { s.State.Current = pair(renewal, "a") }, issueNext},
		"it does not end so soon": {func(s *facts) { s.State.Current = pair(renewal+time.Second, "a") }, wait},
		"it ends soon and is not trusted": {func(s *facts) { s.State.Current, s.Trusted = pair(renewal, "a"), false },
			trust},
		"the next is not trusted": {func(s *facts) { s.State.Next, s.Trusted = pair(3*renewal, "b"), false }, trust},
		"the next has just been trusted": {func(s *facts) {
			s.State.Next, s.Since = pair(3*renewal, "b"),
				start.Add(time.Second-settle)
		}, wait},
		"the next is trusted everywhere": {func(s *facts) {
			s.State.Next, s.Since = pair(3*renewal, "b"),
				start.Add(-settle)
		}, promote},
		"the next is not seen as trusted": {func(s *facts) { s.State.Next, s.Since = pair(3*renewal, "b"), time.Time{} },
			wait},
		"the next is worth nothing": {func(s *facts) { s.State.Next = pair(0, "b") }, issueNext},
		"the current one has ended, a next is": {func(s *facts) {
			s.State.Current, s.State.Next, s.Trusted = pair(0, "a"), pair(3*renewal, "b"), false
		}, promote},
		"the next is not valid yet":       {func(s *facts) { s.State.Next = early("b") }, issueNext},
		"it is not valid yet":             {func(s *facts) { s.State.Current = early("a") }, issueNext},
		"it is valid from this moment on": {func(s *facts) { s.State.Current.NotBefore = start }, wait},
		"it has ended, and the next is not valid yet": {func(s *facts) {
			s.State.Current, s.State.Next = pair(0, "a"), early("b")
		}, issueFirst},
		"the one before has ended":        {func(s *facts) { s.State.Old = old("z", "!") }, removeExpired},
		"the one before may be presented": {func(s *facts) { s.State.Old = old("z") }, wait},
		"the one before, and it ends soon": {func(s *facts) { s.State.Old, s.State.Current = old("z"), pair(renewal, "a") },
			issueNext},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			s := healthy()
			c.change(&s)
			if got := decide(s, start); got != c.want {
				t.Errorf("Decide = %s, want %s", got, c.want)
			}
		})
	}
}

func TestUntrustedStateIsNotPropagated(t *testing.T) {
	s := healthy()
	s.Trusted = false
	if s.propagated(start) {
		t.Error("it is, since it was trusted an hour ago")
	}
}

func TestStateAfterStep(t *testing.T) {
	a, b := pair(renewal, "a"), pair(2*renewal, "b")
	for sentence, c := range map[string]struct {
		before State
		action action
		want   string
	}{
		"the first":                     {State{}, issueFirst, "b - []"},
		"the first after one of no use": {State{Current: a, Next: a, Old: old("z")}, issueFirst, "b - [z a]"},
		"the next":                      {State{Current: a}, issueNext, "a b []"},
		"a promotion":                   {State{Current: a, Next: b, Old: old("z")}, promote, "b - [z a]"},
		"a retirement":                  {State{Current: b, Old: old("z", "!", "y")}, removeExpired, "b - [z y]"},
		"after many": {State{Current: a, Old: old("1", "2", "3", "4", "5", "6", "7", "8")}, promote,
			"- - [2 3 4 5 6 7 8 a]"},
		"trust": {State{Current: a, Next: b, Old: old("z", "!")}, trust, "a b [z !]"},
	} {
		after := c.before.after(c.action, b, start)
		var left []string
		for _, authority := range after.Old {
			left = append(left, string(authority.PEM))
		}
		if got := fmt.Sprintf("%s %s %v", name(after.Current), name(after.Next), left); got != c.want {
			t.Errorf("%s: %s, want %s", sentence, got, c.want)
		}
	}
	if got := (State{Current: b, Next: a, Old: old("c")}).bundle(); string(got) != "abc" {
		t.Errorf("bundle %q", got)
	}
}

func name(p *keyPair) string {
	if p == nil {
		return "-"
	}
	return string(p.CA.PEM)
}

// The test plays replicas that read at random moments, some after a long time, and restart, beside API servers that
// observe a bundle late, over a day of rotations. SEED repeats a run.
func TestPresentedCertificateIsAlwaysTrusted(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("SEED=%d", seed)
	for run := range uint64(20) {
		play(t, rand.New(rand.NewPCG(seed, run)))
	}
}

// replica is one Rotator, with its remembered facts.
type replica struct {
	presents *keyPair
	version  int
	since    time.Time
	looks    time.Time
}

func play(t *testing.T, random *rand.Rand) {
	const look, lifetime, early = time.Minute, 90 * time.Minute, 30 * time.Minute
	var (
		secret    State
		version   int
		bundle    []byte
		believed  []byte // the bundle of an API server that is late
		until     time.Time
		made      int
		exchanges int
	)
	replicas := make([]replica, 3)
	for now := start; now.Before(start.Add(24 * time.Hour)); now = now.Add(5 * time.Second) {
		if !now.Before(until) {
			believed = bundle
		}
		for i := range replicas {
			r := &replicas[i]
			if random.IntN(5000) == 0 {
				*r = replica{} // a new process
			}
			if now.Before(r.looks) {
				continue
			}
			r.looks = now.Add(time.Duration(random.Int64N(int64(look))))
			if random.IntN(200) == 0 {
				r.looks = now.Add(early / 2) // it cannot reach the API server
			}
			s := facts{Known: true, State: secret, Names: []string{"guard.ns.svc"}, RenewBefore: early, PropagationDelay: settle}
			s.Trusted = secret.Current != nil && bytes.Equal(bundle, secret.bundle())
			if !s.Trusted {
				r.version, r.since = -1, time.Time{}
			} else if r.version != version || r.since.IsZero() {
				r.version, r.since = version, now
			}
			s.Since, r.presents = r.since, secret.Current
			switch a := decide(s, now); a {
			case wait:
			case trust:
				bundle, until = secret.bundle(), now.Add(time.Duration(random.Int64N(int64(settle))))
			default:
				if a == promote {
					exchanges++
				}
				made++
				next := pair(0, fmt.Sprintf("<%d>", made))
				next.NotAfter, next.CA.NotAfter = now.Add(lifetime), now.Add(lifetime)
				secret, version = secret.after(a, next, now), version+1
			}
		}
		if now.Sub(start) < 2*settle {
			continue // the first certificate was never trusted before
		}
		for i, r := range replicas {
			for _, trusted := range [][]byte{bundle, believed} {
				if p := r.presents; p != nil && (!bytes.Contains(trusted, p.CA.PEM) || !now.Before(p.NotAfter)) {
					t.Fatalf("after %v replica %d presents %s, which ends in %v; trusted is %s", now.Sub(start), i, p.CA.PEM,
						p.NotAfter.Sub(now), trusted)
				}
			}
		}
	}
	if exchanges < 5 {
		t.Errorf("%d exchanges: this test shows nothing", exchanges)
	}
}
