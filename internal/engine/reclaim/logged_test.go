package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"testing"
)

// While the log has an entry, was not read, or is unreadable, no decision ends the PV, its volume or its finalizers. A
// log without an entry leaves each decision as it would be without a log.
func TestNoVolumeIsGivenUpInFlight(t *testing.T) {
	given := map[Action]int{}
	check := func(s Facts) {
		want := Decide(s, now())
		s.Rules.Logged = true
		for state, reason := range map[volume.InFlight]Reason{volume.InFlightUnknown: ReasonLogNotRead,
			volume.InFlightOpen: ReasonInFlight, volume.InFlightUnreadable: ReasonLogUnreadable} {
			s.Log = state
			switch got := Decide(s, now()); {
			case want.Action.destroys() && (got.Action != Wait || got.Reason != reason || got.Over ||
				got.Timed != (state == volume.InFlightUnreadable)):
				t.Fatalf("log %d: %+v, without a log %+v", state, got, want)
			case !want.Action.destroys() && got != want:
				t.Fatalf("log %d: %+v, without a log %+v", state, got, want)
			}
		}
		s.Log = volume.InFlightSettled
		if got := Decide(s, now()); got != want {
			t.Fatalf("settled: %+v, without a log %+v", got, want)
		}
		if want.Action.destroys() {
			given[want.Action]++
		}
	}
	for _, role := range []volume.Role{volume.RoleOwner, volume.RoleCompanion, volume.RoleObserver} {
		everyRules(role, func(r Rules) {
			if r.IgnoreStatic || r.Scope == ScopeBoundAny {
				return // they only select PVs
			}
			for _, terminating := range []bool{false, true} {
				everyPV(driver, terminating, func(pv volume.PV) {
					everyPast(pv, func(end End, history History, done Done) {
						s := proven()
						s.Rules, s.PV, s.End, s.History, s.Done = r, pv, end, history, done
						check(s)
					})
				})
			}
		})
	}
	for _, action := range []Action{RemoveFinalizer, DeletePV, FinalizePV} {
		if given[action] == 0 {
			t.Errorf("%v was never decided", action)
		}
	}
	everyProof(proven(), check)
	if given[DeleteVolume] == 0 {
		t.Error("no volume was deleted")
	}
}
