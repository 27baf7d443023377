package reclaim

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// bindable returns a PV that was just bound to its claim, without a finalizer, altered.
func bindable(alter ...func(*volume.PV)) *volume.PV {
	pv := altered(sibling(in(volume.PhaseBound), unguarded, withoutCompanion), alter)
	return &pv
}

func TestMissedByAdmissionPolicy(t *testing.T) {
	unclaimed, retained := bindable(claimUID("")), bindable(of(volume.PolicyRetain))
	owner := Rules{Driver: driver, Role: volume.RoleOwner}
	for sentence, c := range map[string]struct {
		rules       Rules
		before, now *volume.PV
		want        bool
	}{
		"it is bound":                    {owner, unclaimed, bindable(), true},
		"it is made bound":               {owner, nil, bindable(), true},
		"its policy is turned to Delete": {owner, retained, bindable(), true},
		"it is bound and protected":      {owner, unclaimed, bindable(guarded), false},
		"only its status changes":        {owner, bindable(in(volume.PhasePending)), bindable(), false},
		"it is not bound":                {owner, nil, unclaimed, false},
		"it is bound with policy Retain": {owner, unclaimed, retained, false},
		"it is being deleted":            {owner, unclaimed, bindable(terminating), false},
		"beside a peer, with the peer's alone": {Rules{Driver: driver, Role: volume.RoleCompanion}, nil, bindable(guarded),
			true},
		"nothing is protected": {Rules{Driver: driver, Role: volume.RoleObserver}, nil, bindable(), false},
		"the finalizers are taken off": {Rules{Driver: driver, Role: volume.RoleOwner, Mode: ModeRollback}, nil, bindable(),
			false},
		"static PVs are ignored": {Rules{Driver: driver, Role: volume.RoleOwner, IgnoreStatic: true}, nil, bindable(by("")),
			false},
	} {
		if got := c.rules.Missed(c.before, c.now); got != c.want {
			t.Errorf("%s: %v, want %v", sentence, got, c.want)
		}
	}
}
