package leaks

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// suspect returns a case whose next step is createPV.
func suspect(to Remediation, change func(*situation)) situation {
	c := situation{Remediation: to, Fresh: true, Reported: true, Suspected: true, Completed: noon.Add(-time.Hour),
		Others: absent, Attached: absent, Own: ownPV{Read: true}}
	if change != nil {
		change(&c)
	}
	return c
}

// made returns a case whose PV was created by an earlier run.
func made(to Remediation, change func(*volume.PV)) situation {
	return suspect(to, func(c *situation) {
		c.Reported, c.Suspected, c.Completed = false, false, time.Time{}
		c.Own = ownPV{Read: true, Found: true, Made: true, Reserved: true, PV: volume.PV{Policy: volume.PolicyRetain,
			Phase: volume.PhaseReleased}}
		change(&c.Own.PV)
	})
}

func attached(c situation) situation {
	c.Attached = present
	return c
}

func TestDecideRemediation(t *testing.T) {
	namedByOthers := made(Reclaim, func(*volume.PV) {})
	namedByOthers.Others = present
	forAnother := func(change func(*volume.PV)) situation {
		s := made(Adopt, func(pv *volume.PV) { pv.Phase = volume.PhaseAvailable; change(pv) })
		s.Own.Reserved = false
		return s
	}
	for sentence, c := range map[string]struct {
		of   situation
		step step
		why  refusal
	}{
		"nothing is known":        {situation{}, refuse, whyUnknown},
		"a suspect":               {suspect(Adopt, nil), createPV, whySuspected},
		"a suspect that is to go": {suspect(Reclaim, nil), createPV, whySuspected},
		"it is not in the report": {suspect(Reclaim, func(c *situation) { c.Reported = false }), refuse, whyNotReported},
		"it is in the report, and no suspect": {suspect(Reclaim, func(c *situation) { c.Suspected = false }), refuse,
			whyNotSuspected},
		"a report of an unknown time": {suspect(Reclaim, func(c *situation) { c.Completed = time.Time{} }), refuse,
			whyReportOld},
		"a report of the day before yesterday": {
			suspect(Adopt, func(c *situation) { c.Completed = noon.Add(-25 * time.Hour) }), refuse, whyReportOld},
		"another PV names it": {suspect(Reclaim, func(c *situation) { c.Others = present }), refuse, whyNamed},
		"whether another does is not known": {suspect(Reclaim, func(c *situation) { c.Others = presenceUnknown }), refuse,
			whyUnknown},
		"its own PV was not looked for":  {suspect(Reclaim, func(c *situation) { c.Own.Read = false }), refuse, whyUnknown},
		"a foreign PV has the name":      {suspect(Reclaim, func(c *situation) { c.Own.Found = true }), refuse, whyNameTaken},
		"it was made, and is gone":       {suspect(Reclaim, func(c *situation) { c.Fresh = false }), refuse, whyTakenBack},
		"adopted":                        {made(Adopt, func(*volume.PV) {}), Finished, whySuspected},
		"adopted, and not for the claim": {forAnother(func(*volume.PV) {}), refuse, whyUnreserved},
		"adopted, and in use by another claim": {forAnother(func(pv *volume.PV) {
			pv.Phase, pv.Claim.Name = volume.PhaseBound, "other"
		}), refuse, whyChanged},
		"adopted, and reserved for another claim": {forAnother(func(pv *volume.PV) { pv.Claim.Name = "other" }), refuse,
			whyChanged},
		"adopted, and not for the claim: in a phase that is not known to be free": {forAnother(func(pv *volume.PV) {
			pv.Phase = volume.PhaseReleased
		}), refuse, whyChanged},
		"adopted, not for the claim, and set to Delete later": {forAnother(func(pv *volume.PV) {
			pv.Policy = volume.PolicyDelete
		}), refuse, whyChanged},
		"adopted, and deleted again": {made(Adopt, func(pv *volume.PV) { pv.Terminating = true }), refuse, whyChanged},
		"adopted, and set to Delete later": {made(Adopt, func(pv *volume.PV) { pv.Policy = volume.PolicyDelete }),
			Finished, whySuspected},
		"adopted, set to Delete, and deleted": {
			made(Adopt, func(pv *volume.PV) { pv.Policy, pv.Terminating = volume.PolicyDelete, true }), refuse, whyChanged},
		"made, not reconciled by the PV controller": {made(Reclaim, func(pv *volume.PV) { pv.Phase = volume.PhasePending }),
			waitReleased, whySuspected},
		"made, and released": {made(Reclaim, func(*volume.PV) {}), turnPolicy, whySuspected},
		"made, and in use":   {made(Reclaim, func(pv *volume.PV) { pv.Phase = volume.PhaseBound }), refuse, whyChanged},
		"made, and free for any claim": {made(Reclaim, func(pv *volume.PV) { pv.Phase = volume.PhaseAvailable }), refuse,
			whyChanged},
		"made, and turned": {made(Reclaim, func(pv *volume.PV) { pv.Policy = volume.PolicyDelete }), Finished,
			whySuspected},
		"made, turned, and on its way out": {
			made(Reclaim, func(pv *volume.PV) { pv.Policy, pv.Terminating = volume.PolicyDelete, true }), Finished,
			whySuspected},
		"made, with an unknown policy": {made(Reclaim, func(pv *volume.PV) { pv.Policy = volume.PolicyUnknown }), refuse,
			whyChanged},
		"made, and being deleted": {made(Reclaim, func(pv *volume.PV) { pv.Terminating = true }), refuse,
			whyChanged},
		"made for a remedy that there is none of": {made("", func(*volume.PV) {}), refuse, whyChanged},
		"made, and another PV names its volume":   {namedByOthers, refuse, whyNamed},
		"a volume of no PV is attached": {suspect(Reclaim, func(c *situation) { c.Attached = present }), refuse,
			whyAttached},
		"whether one is attached is not known": {suspect(Reclaim, func(c *situation) { c.Attached = presenceUnknown }),
			refuse, whyAttached},
		"a volume of no PV is attached, and it is to stay": {
			suspect(Adopt, func(c *situation) { c.Attached = present }), createPV, whySuspected},
		"made, released, and a volume of no PV is attached": {attached(made(Reclaim, func(*volume.PV) {})), refuse,
			whyAttached},
		"made, turned, and a volume of no PV is attached": {
			attached(made(Reclaim, func(pv *volume.PV) { pv.Policy = volume.PolicyDelete })), Finished, whySuspected},
	} {
		step, why := decideRemediation(c.of, noon)
		if step != c.step || why != c.why {
			t.Errorf("%s: %v, %s, want %v, %s", sentence, step, why, c.step, c.why)
		}
	}
}

func TestRemediationPVs(t *testing.T) {
	v := Found{Handle: "vol-1", Bytes: 5 << 30, Topology: []map[string]string{{"zone": "a"}}}
	pv, err := AdoptPV(driverName, v, PVOptions{StorageClass: "fast", FSType: "xfs",
		Claim:      types.NamespacedName{Namespace: "shop", Name: "data"},
		Attributes: map[string]string{"share": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	size := pv.Spec.Capacity[v1.ResourceStorage]
	if pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimRetain || pv.Spec.ClaimRef == nil ||
		*pv.Spec.ClaimRef != (v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "shop",
			Name: "data"}) ||
		size.String() != "5Gi" ||
		pv.Spec.CSI.Driver != driverName || pv.Spec.CSI.VolumeHandle != "vol-1" || pv.Spec.CSI.FSType != "xfs" ||
		pv.Spec.CSI.VolumeAttributes["share"] != "x" ||
		pv.Spec.StorageClassName != "fast" ||
		pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "a" ||
		*pv.Spec.VolumeMode != v1.PersistentVolumeFilesystem {
		t.Errorf("adopted: %+v", pv)
	}
	if _, err := AdoptPV(driverName, Found{Handle: "x"}, PVOptions{}); err == nil {
		t.Error("a PV without a size is made")
	}
	if pv, err = AdoptPV(driverName, Found{Handle: "x"}, PVOptions{Bytes: 7, Block: true}); err != nil ||
		*pv.Spec.VolumeMode != v1.PersistentVolumeBlock || pv.Spec.NodeAffinity != nil || pv.Spec.ClaimRef != nil {
		t.Errorf("%v, %+v", err, pv)
	}
	for _, half := range []types.NamespacedName{{}, {Namespace: "shop"}, {Name: "data"}} {
		if pv, err = AdoptPV(driverName, v, PVOptions{StorageClass: "fast", Claim: half}); !errors.Is(err, errUnreserved) {
			t.Errorf("any claim of the class gets it: %v, %+v", err, pv)
		}
	}

	gone := ReclaimPV(driverName, Found{Handle: "vol-1"}, PVOptions{})
	is := volume.Of(gone)
	if is.Policy != volume.PolicyRetain {
		t.Error("it is born with a policy that does not keep the volume")
	}
	is.Policy, is.Phase = volume.PolicyDelete, volume.PhaseReleased
	if is.Owner() != driverName || !is.SecretKnown || is.DeletionSecret != (volume.SecretRef{}) || is.Claim.UID == "" ||
		is.Claim.Name == "" {
		t.Errorf("what reclaims knows of it: %+v", is)
	}
	if size := gone.Spec.Capacity[v1.ResourceStorage]; size.Sign() <= 0 { // the API server refuses such a PV
		t.Errorf("a volume of unknown size has a PV of size %v", &size)
	}
	if other := ReclaimPV(driverName, Found{Handle: "vol-2"},
		PVOptions{StorageClass: "fast"}); other.Name == gone.Name || volume.Of(other).SecretKnown ||
		other.Spec.ClaimRef.UID == gone.Spec.ClaimRef.UID {
		t.Errorf("another volume's: %+v", other)
	}
	// Package reclaim deletes such a volume only after its policy is set to Delete.
	s := reclaim.Facts{Leading: true, Rules: reclaim.Rules{Driver: driverName, Role: volume.RoleOwner},
		PV: volume.Of(gone), Brake: reclaim.BrakeOff}
	s.PV.Phase = volume.PhaseReleased
	if d := reclaim.Decide(s, noon); d.Action != reclaim.Wait || d.Reason != reclaim.ReasonPolicyKeepsVolume {
		t.Errorf("before it is turned: %+v", d)
	}
	s.PV = is
	if d := reclaim.Decide(s, noon); d.Action != reclaim.AddFinalizer {
		t.Errorf("once it is turned: %+v", d)
	}
	s.PV.HasFinalizer = true
	if d := reclaim.Decide(s, noon); d.Reason != reclaim.ReasonReclaim {
		t.Errorf("once it is turned and protected: %+v", d)
	}
}

func TestIsRemediation(t *testing.T) {
	want := ReclaimPV(driverName, Found{Handle: "vol-1"}, PVOptions{})
	for sentence, change := range map[string]func(*v1.PersistentVolume){
		"of another volume": func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "vol-2" },
		"of another driver": func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" },
		"of another claim":  func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "other" },
		"without a claim":   func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil },
		"made by others":    func(pv *v1.PersistentVolume) { pv.Annotations[volume.AnnProvisionedBy] = "other" },
		"for something else": func(pv *v1.PersistentVolume) {
			pv.Annotations[remediationAnnotation] = string(Adopt)
		},
		"of another name": func(pv *v1.PersistentVolume) { pv.Name = "other" },
	} {
		pv := want.DeepCopy()
		if !isRemediation(pv, want) {
			t.Fatal("what was made is not known again")
		}
		change(pv)
		if isRemediation(pv, want) {
			t.Errorf("a PV %s is taken for it", sentence)
		}
	}
	adopted := must.Get(AdoptPV(driverName, Found{Handle: strings.Repeat("x", 128), Bytes: 1}, PVOptions{}))(t)
	bound := adopted.DeepCopy()
	bound.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "data", UID: "u"}
	if !isRemediation(bound, adopted) {
		t.Error("one that was adopted is not known once it has a claim")
	}
	reserved, err := AdoptPV(driverName, Found{Handle: strings.Repeat("x", 128), Bytes: 1},
		PVOptions{Claim: types.NamespacedName{Namespace: "ns", Name: "data"}})
	if err != nil {
		t.Fatal(err)
	}
	others := bound.DeepCopy()
	others.Spec.ClaimRef.Namespace = "other"
	if !isRemediation(bound, reserved) || !isReserved(reserved, reserved) || !isReserved(bound, reserved) ||
		!isReserved(bound, adopted) || isReserved(others, reserved) || isReserved(adopted, reserved) {
		t.Error("a reserved PV is not known before and after its claim is bound, or that of another claim is taken for it")
	}
}
