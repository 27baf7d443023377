package explain

import (
	"strings"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// Standing is the decision on one PV, claim or in-flight log entry in a view of the whole cluster.
type Standing struct {
	Decision Decision
	// Waits: the object is due for deletion or creation, which is held back for now. Attention: a person has to act on
	// it.
	Waits, Attention bool
	// Text explains the decision to people, or names another obstacle.
	Text string
	// WaitsFor is the first condition that has to be met. Only StandingOf sets it; for a PV, see WaitsForPV.
	WaitsFor string
}

// VisitPVs calls visit with the decision on each PV of the cluster, and has no other effect.
func (f StatusFacts) VisitPVs(visit func(PV, Standing)) {
	f.ClusterFacts = f.indexed()
	f.SiblingClaims = f.Claims
	gone := map[string]bool{}
	for _, pv := range f.PVs.Value {
		owner := pv.Owner()
		if _, known := gone[owner]; !known {
			gone[owner] = CSIName(owner) && f.presenceOf(owner) == presenceGone
		}
		d := f.decide(pv, f.Claims[pv.Claim])
		s := Standing{Decision: d, Waits: d.waits || pv.Terminating, Text: d.Text}
		s.Attention = s.Waits && warns(d)
		if gone[owner] && (pv.Terminating || wantsDeletion(pv.PV)) {
			s.Waits, s.Attention = true, true
			if s.Text = f.ifGone(d, owner).Text; s.Text == d.Text {
				s.Text = "Driver " + owner + " is gone: nothing happens to the PV. " + d.Text
			}
		}
		if f.pluginKeeps(pv) {
			s.Waits, s.Attention, s.Text = true, true, f.pluginGone(pv)+". "+intree.ReasonPluginGone.Sentence()
		}
		visit(pv, s)
	}
}

// StandingOf is a pure function that decides on a claim, without its PV and Events. Facts that are not indexed are
// indexed in each call.
func StandingOf(f ClaimFacts) Standing {
	e, d, known := f.explain()
	s := Standing{Decision: d, Text: e.Headline}
	s.Waits = f.Claim.DeletionTimestamp != nil || f.Claim.Spec.VolumeName == "" || f.Claim.Status.Phase == v1.ClaimLost
	s.Attention = s.Waits && (known && warns(d) || len(stuck(e.Finalizers)) > 0) ||
		f.Claim.Status.Phase == v1.ClaimLost
	switch {
	case len(e.WaitsFor) > 0:
		s.WaitsFor = e.WaitsFor[0]
	case f.Claim.Status.Phase == v1.ClaimLost:
		s.WaitsFor = "a person to delete it: its PV is gone"
	}
	return s
}

// WaitsForPV is a pure function that returns, in short, the first condition that keeps a PV in the cluster, or the next
// step of the decision d; empty if neither is known. The facts must be indexed.
func (f StatusFacts) WaitsForPV(o *v1.PersistentVolume, d Decision) string {
	its, pv := PVFacts{ClusterFacts: f.ClusterFacts, PV: o}, PVOf(o)
	owner := pv.Owner()
	if CSIName(owner) && f.presenceOf(owner) == presenceGone {
		return "driver " + owner + ", which is gone"
	}
	if f.pluginKeeps(pv) {
		return "a person, because " + f.pluginGone(pv)
	}
	var s Explanation
	if s.addReasonWaits(its, pv, d); len(s.WaitsFor) == 0 && pv.Terminating {
		s.Finalizers = its.finalizersOf(o, owner, pv.Driver, its.pluginGone(pv))
		s.addFinalizerWaits(its)
	}
	switch {
	case len(s.WaitsFor) > 0:
		return s.WaitsFor[0]
	case d.Action == reclaim.DeleteVolume.String():
		return "driver " + owner + " to delete the volume"
	case d.Action != "" && d.Action != reclaim.Wait.String():
		return d.By + ": " + d.Action
	}
	return ""
}

// StandingOfEntry is a pure function that decides on an entry of an in-flight log. claim is the result of reading the
// entry's claim, with a nil Value if the claim is gone. Facts that are not indexed are indexed in each call.
func (w ClusterFacts) StandingOfEntry(e inflight.Located, claim Read[*v1.PersistentVolumeClaim]) Standing {
	if !claim.OK() {
		d := Decision{}.undecided(false)
		return Standing{Decision: d, Waits: true, Text: d.Text}
	}
	o := claim.Value
	if o != nil && o.UID != e.Claim.UID {
		o = nil
	}
	d := w.finishProvisioning(e, claimFacts(o, e.Claim, e.Volume))
	return Standing{Decision: d, Waits: true, Text: d.Text, Attention: warns(d) || o == nil}
}

// SiblingsOf returns the other PVs that name the same volume. The facts must be indexed.
func (w ClusterFacts) SiblingsOf(pv PV) []PV { return w.siblingsOf(pv) }

// PresenceWords returns "installed" or "gone" for a driver, empty if its presence is unknown.
func (w ClusterFacts) PresenceWords(driver string) string {
	switch w.presenceOf(driver) {
	case presenceInstalled:
		return "installed"
	case presenceGone:
		return "gone"
	case presenceUnknown:
	}
	return ""
}

// WantsDeletion reports whether the PV's own fields ask for the deletion of its volume.
func (pv PV) WantsDeletion() bool { return wantsDeletion(pv.PV) }

// ClaimClass returns the name of a claim's StorageClass, empty for none.
func ClaimClass(claim *v1.PersistentVolumeClaim) string { return className(claim) }

// warns reports whether a decision's reason has severity Warning in its engine's table. A decision without an Action
// lacks a fact that could not be read, which is no reason to call a person.
func warns(d Decision) bool {
	reason := d.Reason
	if d.Action == "" {
		return false
	}
	for _, about := range []reasons.About{
		reclaim.Reason(reason).About(), intree.Reason(reason).About(), provision.Reason(reason).About(),
		inuse.Reason(reason).About(),
	} {
		if about.Sentence != "" {
			return about.Severity == reasons.Warning
		}
	}
	return false
}

// InTree reports whether an owner of PVs is an in-tree volume plugin.
func InTree(owner string) bool { return strings.HasPrefix(owner, inTreePrefix) }

// BrakeOn reports whether a driver's brake is on, as far as the Leases were read.
func (w ClusterFacts) BrakeOn(driver string) bool {
	return w.indexed().releaseBrakeCommand(driver) != ""
}

// Driver returns the provisioner that creates the claim's volume, empty if it is unknown.
func (f ClaimFacts) Driver() string { return f.provisioner() }
