package reclaim

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// bindable returns a PV that was just bound to its claim, without a finalizer.
func bindable() volume.PV {
	pv := released().PV
	pv.Phase, pv.HasFinalizer, pv.HasCompanionFinalizer = volume.PhaseBound, false, false
	return pv
}

func TestMissedByAdmissionPolicy(t *testing.T) {
	with := func(change func(*volume.PV)) *volume.PV { pv := bindable(); change(&pv); return &pv }
	same := func(*volume.PV) {}
	unclaimed := func(pv *volume.PV) { pv.Claim.UID = "" }
	owner := Rules{Driver: driver, Role: volume.RoleOwner}
	for sentence, c := range map[string]struct {
		rules       Rules
		before, now *volume.PV
		want        bool
	}{
		"it is bound":      {owner, with(unclaimed), with(same), true},
		"it is made bound": {owner, nil, with(same), true},
		"its policy is turned to Delete": {owner, with(func(pv *volume.PV) { pv.Policy = volume.PolicyRetain }),
			with(same), true},
		"it is bound and protected": {owner, with(unclaimed),
			with(func(pv *volume.PV) { pv.HasFinalizer = true }), false},
		"only its status changes": {owner, with(func(pv *volume.PV) { pv.Phase = volume.PhasePending }),
			with(same), false},
		"it is not bound": {owner, nil, with(unclaimed), false},
		"it is bound with policy Retain": {owner, with(unclaimed),
			with(func(pv *volume.PV) { pv.Policy = volume.PolicyRetain }), false},
		"it is being deleted": {owner, with(unclaimed),
			with(func(pv *volume.PV) { pv.Terminating = true }), false},
		"beside a peer, with the peer's alone": {Rules{Driver: driver, Role: volume.RoleCompanion}, nil,
			with(func(pv *volume.PV) { pv.HasFinalizer = true }), true},
		"nothing is protected": {Rules{Driver: driver, Role: volume.RoleObserver}, nil, with(same), false},
		"the finalizers are taken off": {Rules{Driver: driver, Role: volume.RoleOwner, Mode: ModeRollback}, nil,
			with(same), false},
		"static PVs are ignored": {Rules{Driver: driver, Role: volume.RoleOwner, IgnoreStatic: true}, nil,
			with(func(pv *volume.PV) { pv.ProvisionedBy = "" }), false},
	} {
		if got := c.rules.Missed(c.before, c.now); got != c.want {
			t.Errorf("%s: %v, want %v", sentence, got, c.want)
		}
	}
}
