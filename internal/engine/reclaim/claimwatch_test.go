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
	pv := released().PV
	pv.Phase = volume.PhaseBound
	release := func(e *Engine, cache pvs) {
		update(e, cache, pv.Name, in(volume.PhaseReleased))
	}
	for name, c := range map[string]struct {
		happens func(e *Engine, cache pvs)
		ended   bool
	}{
		"nothing was shown": {release, false},
		"its end was shown": {func(e *Engine, cache pvs) {
			e.ClaimDeleted("claim-uid", "pv", now())
			release(e, cache)
		}, true},
		"after the PV's own": {func(e *Engine, cache pvs) {
			release(e, cache)
			e.ClaimDeleted("claim-uid", "pv", now())
		}, true},
		"the deletion of another claim that named the PV": {func(e *Engine, cache pvs) {
			release(e, cache)
			e.ClaimDeleted("newer", "pv", now())
		}, false},
		"the deletion of a claim of another PV": {func(e *Engine, cache pvs) {
			release(e, cache)
			e.ClaimDeleted("claim-uid", "other", now())
		}, false},
		"a claim was restored that names the PV": {func(e *Engine, cache pvs) {
			e.ClaimDeleted("claim-uid", "pv", now())
			release(e, cache)
			e.ClaimShown("pv")
		}, false},
		"a claim that names another PV": {func(e *Engine, cache pvs) {
			e.ClaimDeleted("claim-uid", "pv", now())
			release(e, cache)
			e.ClaimShown("other")
		}, true},
		"the PV names another claim since": {func(e *Engine, cache pvs) {
			e.ClaimDeleted("claim-uid", "pv", now())
			release(e, cache)
			update(e, cache, "pv", claimUID("newer"))
		}, false},
		"the PV names no claim since": {func(e *Engine, cache pvs) {
			release(e, cache)
			update(e, cache, "pv", claimUID(""))
		}, false},
		"the PV was restored, too, and its claim may follow": {func(e *Engine, cache pvs) {
			e.ClaimDeleted("claim-uid", "pv", now())
			release(e, cache)
			e.PVDeleted(cache["pv"], true, now())
			again := *cache["pv"]
			again.UID = "restored-pv"
			cache["pv"] = &again
			e.PVAdded(&again, now())
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, cache := engineOf(pv)
			c.happens(e, cache)
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
	of := func(change func(*volume.PV)) volume.PV {
		pv := released().PV
		change(&pv)
		return pv
	}
	for name, c := range map[string]struct {
		pv   volume.PV
		want []string
	}{
		"a PV whose volume is to go": {of(func(*volume.PV) {}), []string{"pv"}},
		"still bound":                {of(in(volume.PhaseBound)), nil},
		"one of another driver":      {of(by("other")), nil},
	} {
		e, _ := engineOf(c.pv)
		if fx := e.ClaimDeleted(types.UID("claim-uid"), "pv", now()); !slices.Equal(fx.Keys, c.want) {
			t.Errorf("%s: enqueues %v, want %v", name, fx.Keys, c.want)
		}
	}
}
