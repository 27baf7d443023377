package reclaim

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// A claim is not read if the watch has just shown its end.
func TestClaimWatch(t *testing.T) {
	type steps []func(e *Engine, cache pvs)
	change := func(alter ...func(*volume.PV)) func(*Engine, pvs) {
		return func(e *Engine, cache pvs) { update(e, cache, "pv", alter...) }
	}
	deleted := func(claim types.UID, pv string) func(*Engine, pvs) {
		return func(e *Engine, _ pvs) { e.ClaimDeleted(claim, pv, now()) }
	}
	shown := func(pv string) func(*Engine, pvs) { return func(e *Engine, _ pvs) { e.ClaimShown(pv) } }
	release, ended := change(in(volume.PhaseReleased)), deleted("claim-uid", "pv")
	for name, c := range map[string]struct {
		happens steps
		ended   bool
	}{
		"nothing was shown":  {steps{release}, false},
		"its end was shown":  {steps{ended, release}, true},
		"after the PV's own": {steps{release, ended}, true},
		"the deletion of another claim that named the PV": {steps{release, deleted("newer", "pv")}, false},
		"the deletion of a claim of another PV":           {steps{release, deleted("claim-uid", "other")}, false},
		"a claim was restored that names the PV":          {steps{ended, release, shown("pv")}, false},
		"a claim that names another PV":                   {steps{ended, release, shown("other")}, true},
		"the PV names another claim since":                {steps{ended, release, change(claimUID("newer"))}, false},
		"the PV names no claim since":                     {steps{release, change(claimUID(""))}, false},
		"the PV was restored, too, and its claim may follow": {steps{ended, release, func(e *Engine, cache pvs) {
			e.PVDeleted(cache["pv"], true, now())
			again := *cache["pv"]
			again.UID = "restored-pv"
			cache["pv"] = &again
			e.PVAdded(&again, now())
		}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, cache := engineOf(with(pvIs(in(volume.PhaseBound))).PV)
			for _, step := range c.happens {
				step(e, cache)
			}
			f, found := e.Facts(Item{Name: "pv"}, leading())
			if !found || f.claimEnded(now()) != c.ended || f.ClaimEndedAt.IsZero() == c.ended {
				t.Errorf("found %v, claim ended at %v, want %v", found, f.ClaimEndedAt, c.ended)
			}
		})
	}
}

// beginWithEndedClaim begins a session for a PV whose claim ended, as its watch shows.
func beginWithEndedClaim() (*Engine, pvs, *Session, Moment) {
	e, cache := engineOf(released().PV)
	at := leading()
	e.ClaimDeleted("claim-uid", "pv", now())
	f, _ := e.Facts(Item{Name: "pv"}, at)
	f.SecretsRead = true
	s, _ := e.Begin(f, at)
	return e, cache, s, at
}

// Events of the watch count for a deletion that has begun.
func TestClaimWatchDuringSession(t *testing.T) {
	e, cache, s, at := beginWithEndedClaim()
	if s.Ask.Action != ReadPV {
		t.Fatalf("asks to %v, want the PV to be read", s.Ask.Action)
	}
	e.ClaimShown("pv")
	if e.Answer(s, Reply{Outcome: OK, Found: true, PV: *cache["pv"]}, at); s.Ask.Action != ReadClaim {
		t.Errorf("a claim was restored meanwhile: asks to %v, want it to be read", s.Ask.Action)
	}
}

// A PV that was bound to another claim meanwhile is read once more, because the policy may have been set to Retain
// between the read and the end of that claim.
func TestClaimEndAfterReadOfPV(t *testing.T) {
	e, cache, s, at := beginWithEndedClaim()
	bound := *cache["pv"]
	bound.Claim.UID = "restored"
	e.ClaimShown("pv")
	e.ClaimDeleted("restored", "pv", now())
	if e.Answer(s, Reply{Outcome: OK, Found: true, PV: bound}, at); s.Ask.Action != ReadPV {
		t.Errorf("asks to %v, want the PV to be read once more", s.Ask.Action)
	}
	if e.Answer(s, Reply{Outcome: OK, Found: true, PV: bound}, at); s.Ask.Action != DeleteVolume {
		t.Errorf("the PV is the same: asks to %v, want the volume to be deleted", s.Ask.Action)
	}
}

// The watched end is valid as long as a read, because the watch may not yet show a claim that was restored since.
func TestWatchedClaimEndExpires(t *testing.T) {
	e, _ := engineOf(released().PV)
	e.ClaimDeleted("claim-uid", "pv", now())
	for name, c := range map[string]struct {
		after time.Duration
		want  Action
	}{
		"at once":               {0, ReadPV},
		"after a wait":          {session.LiveFor, ReadPV},
		"after a longer wait":   {session.LiveFor + time.Nanosecond, ReadClaim},
		"after a day of errors": {24 * time.Hour, ReadClaim},
	} {
		f, found := e.Facts(Item{Name: "pv"}, Moment{Now: now().Add(c.after), Leading: true})
		f.SecretsRead = true
		if d := Decide(f, now().Add(c.after)); !found || d.Action != c.want {
			t.Errorf("%s: found %v, %v, want %v", name, found, d.Action, c.want)
		}
	}
}

// A claim is also read if its watched end expires during a session.
func TestWatchedClaimEndExpiresDuringSession(t *testing.T) {
	e, cache, s, at := beginWithEndedClaim()
	if s.Ask.Action != ReadPV {
		t.Fatalf("asks to %v, want the PV to be read", s.Ask.Action)
	}
	at.Now = now().Add(session.LiveFor + time.Second)
	if e.Answer(s, Reply{Outcome: OK, Found: true, PV: *cache["pv"]}, at); s.Ask.Action != ReadClaim {
		t.Errorf("asks to %v, want the claim to be read", s.Ask.Action)
	}
}

// A deletion that waits for the claim's end is enqueued by the event and not by the clock.
func TestClaimDeletedEnqueuesPV(t *testing.T) {
	for name, c := range map[string]struct {
		pv   Facts
		want []string
	}{
		"a PV whose volume is to go": {with(), []string{"pv"}},
		"still bound":                {with(pvIs(in(volume.PhaseBound))), nil},
		"one of another driver":      {with(pvIs(by("other"))), nil},
	} {
		e, _ := engineOf(c.pv.PV)
		if fx := e.ClaimDeleted(types.UID("claim-uid"), "pv", now()); !slices.Equal(fx.Keys, c.want) {
			t.Errorf("%s: enqueues %v, want %v", name, fx.Keys, c.want)
		}
	}
}
