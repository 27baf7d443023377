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

// Standing is what is decided on one PV, claim or entry of an in-flight log among all of a cluster.
type Standing struct {
	Decision Decision
	// Waits: it is to go, or to come, and cannot yet. Attention: a person has to do something about that.
	Waits, Attention bool
	// Text is the decision for people, or what else keeps the object.
	Text string
}

// VisitPVs decides on each PV of the cluster, as StatusOf does. The facts are indexed. It is a pure function.
func (f StatusFacts) VisitPVs(visit func(PV, Standing)) {
	f.ClusterFacts = f.indexed()
	f.SiblingClaims = f.Claims
	gone := map[string]bool{}
	for _, pv := range f.PVs.Value {
		owner := pv.Owner()
		if _, known := gone[owner]; !known {
			gone[owner] = owner != "" && !strings.HasPrefix(owner, inTreePrefix) && f.presenceOf(owner) == presenceGone
		}
		d := f.decide(pv, f.Claims[pv.Claim])
		s := Standing{Decision: d, Waits: d.waits || pv.Terminating, Text: d.Text}
		s.Attention = s.Waits && warns(d)
		if gone[owner] && (pv.Terminating || wantsDeletion(pv.PV)) {
			s.Waits, s.Attention = true, true
			s.Text = "Driver " + owner + " is gone: nothing happens to the PV. " + d.Text
		}
		visit(pv, s)
	}
}

// StandingOf decides on a claim, without its PV and Events. The facts are indexed. It is a pure function.
func StandingOf(f ClaimFacts) Standing {
	e, d, known := f.explain()
	s := Standing{Decision: d, Text: e.Headline}
	s.Waits = f.Claim.DeletionTimestamp != nil || f.Claim.Spec.VolumeName == "" || f.Claim.Status.Phase == v1.ClaimLost
	s.Attention = s.Waits && (known && warns(d) || len(stuck(e.Finalizers)) > 0) ||
		f.Claim.Status.Phase == v1.ClaimLost
	return s
}

// StandingOfEntry decides on an entry of an in-flight log. claim is what a read of its claim brought, nil for one that
// is gone. The facts are indexed. It is a pure function.
func (w ClusterFacts) StandingOfEntry(e inflight.Located, claim Read[*v1.PersistentVolumeClaim]) Standing {
	if !claim.OK() {
		d := Decision{}.undecided(false)
		return Standing{Decision: d, Waits: true, Text: d.Text}
	}
	o := claim.Value
	if o != nil && o.UID != e.Claim.UID {
		o = nil
	}
	d := w.finishProvisioning(e, claimFacts(o, e.Claim))
	return Standing{Decision: d, Waits: true, Text: d.Text, Attention: warns(d) || o == nil}
}

// SiblingsOf returns the other PVs that name the same volume. The facts are indexed.
func (w ClusterFacts) SiblingsOf(pv PV) []PV { return w.siblingsOf(pv) }

// PresenceWords says whether a driver is there: "installed", "gone", or empty where that is not known.
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

// WantsDeletion reports whether a PV asks for the end of its volume, as far as it shows.
func (pv PV) WantsDeletion() bool { return wantsDeletion(pv.PV) }

// ClaimClass returns the name of the StorageClass of a claim, empty for none.
func ClaimClass(claim *v1.PersistentVolumeClaim) string { return className(claim) }

// warns reports whether the reason of a decision needs a person's attention, in the table that has it. That somebody
// may not read a fact is nothing that waits for a person.
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

// InTree reports whether an owner of PVs is a plugin of kube-controller-manager, and no CSI driver.
func InTree(owner string) bool { return strings.HasPrefix(owner, inTreePrefix) }

// LeaderOf returns the pod that leads among the sidecars of a driver, as NAMESPACE/NAME, empty for none. The Lease of
// the roles beside a provisioner comes first, because the other is the provisioner's then.
func (w ClusterFacts) LeaderOf(driver string) string {
	names := leaseNames(driver)
	for _, name := range []string{names[1], names[0]} {
		for _, lease := range w.Leases.Value {
			if lease.Name == name && IsHeld(lease, w.Now) {
				return lease.Namespace + "/" + HolderOf(lease)
			}
		}
	}
	return ""
}

// Driver returns which provisioner creates the claim's volume, empty if that is not known.
func (f ClaimFacts) Driver() string { return f.provisioner() }
