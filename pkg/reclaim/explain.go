package reclaim

import (
	"fmt"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"k8s.io/apimachinery/pkg/types"
)

// Explanation says what happens to a PV next, and why.
type Explanation struct {
	Decision Decision
	// Text is for people: the reason's sentence and what is known of this PV.
	Text string
	// Protected: a finalizer that counts in this role holds the PV.
	Protected bool
	// Waits: the PV is on its way to be deleted and does not get there, so that it is counted as waiting.
	Waits bool
}

// Explain tells what [Decide] says to these facts. It is a pure function; now is the time by which
// reads are judged too old.
func Explain(s Snapshot, now time.Time) Explanation {
	d := Decide(s, now)
	text := d.Reason.Sentence()
	if more := explainMore(s, d.Reason); more != "" {
		text += " " + more
	}
	return Explanation{Decision: d, Text: text, Protected: s.protected(), Waits: d.Reason.waits()}
}

// Explain tells what would be done next about the PV of that name, from what the watches
// have shown: no call is made and nothing is changed. found is false for a PV that is not
// there or not this driver's. It may be called at any time, from any goroutine.
func (r *Reclaimer) Explain(name string) (_ Explanation, found bool) {
	facts, found := r.observer.observePV(name)
	if !found {
		return Explanation{}, false
	}
	facts.Leading = true // what the leader does, whoever is asked
	return Explain(facts, r.cfg.Clock.Now()), true
}

// explainMore adds to a reason's sentence what is known of this PV.
func explainMore(s Snapshot, reason Reason) string {
	switch reason {
	case ReasonHeld:
		return fmt.Sprintf("Its reason: %q.", s.PV.HeldBecause)
	case ReasonSharedHandle:
		var names []string
		for _, other := range s.Siblings {
			if !other.Deletable() || other.Name == s.SiblingNeeded {
				names = append(names, other.Name)
			}
		}
		return fmt.Sprintf("It is PV %s.", strings.Join(names, ", "))
	case ReasonDeletionUnprotected:
		if s.Rules.ReclaimUnprotected && s.History.SeenAlive && !s.History.SeenProtected {
			return "Once it is gone, the volume is deleted if it is proven that nobody needs it."
		}
		return fmt.Sprintf("Look for volume %q in the storage system once the PV is gone.", s.PV.Handle)
	case ReasonFinalizerContested:
		if s.Rules.Role == volume.RoleOwner {
			return "Most likely an external-provisioner without KEP-2644 works beside csi-reclaimer: run with --role=companion."
		}
		return "Look for the program that removes " + s.Rules.finalizer() + "."
	case ReasonPVContested:
		return "Find out who removes it, and end that. Then restart csi-reclaimer, or add the finalizer: " + addCommand(s.PV.Name, s.Rules.finalizer()) + "."
	case ReasonReclaimAbandoned:
		return fmt.Sprintf("It is volume %q.", s.PV.Handle)
	case ReasonVolumeLeftBehind:
		return fmt.Sprintf("It is volume %q: %s.", s.PV.Handle, whyLeftBehind(s))
	case ReasonClaimNamesPV:
		return fmt.Sprintf("It is claim %s/%s with UID %s.", s.PV.Claim.Namespace, s.PV.Claim.Name, s.Claim.UID)
	case ReasonAttached:
		return fmt.Sprintf("%d attachments are left.", s.Attachments)
	default:
		return ""
	}
}

// bindOrDelete says what a person can do about a claim that names the PV. A PV that is gone cannot be bound.
func bindOrDelete(s Snapshot) string {
	const remove = "To have the volume deleted, delete the claim."
	if s.End.Gone {
		return fmt.Sprintf("The PV is gone: to use the volume again, create a PV for volume %q. %s", s.PV.Handle, remove)
	}
	return fmt.Sprintf("To bind the claim to the PV: %s. %s", BindCommand(s.PV.Name, s.Claim.UID), remove)
}

// addCommand returns the kubectl command that adds a finalizer to a PV.
func addCommand(pv, finalizer string) string {
	return fmt.Sprintf(`kubectl patch pv %s -p '{"metadata":{"finalizers":[%q]}}'`, pv, finalizer)
}

// BindCommand returns the kubectl command that binds a PV to the claim of its claimRef's namespace and name
// that has this UID. The PV controller compares the UIDs (syncVolume and syncBoundClaim in
// pkg/controller/volume/persistentvolume/pv_controller.go): removing the claimRef's UID is not enough for a
// claim that was restored with the annotation pv.kubernetes.io/bind-completed, whose phase stays Lost then.
func BindCommand(pv string, claim types.UID) string {
	return fmt.Sprintf(`kubectl patch pv %s -p '{"spec":{"claimRef":{"uid":%q,"resourceVersion":null}}}'`, pv, claim)
}

// whyLeftBehind tells which proof is missing for a PV that is gone, in the order of gone.
func whyLeftBehind(s Snapshot) string {
	pv := s.PV
	switch {
	case !s.Rules.ReclaimUnprotected:
		return "volumes of PVs that were not protected are not to be deleted (--reclaim-unprotected)"
	case s.Rules.Mode != ModeHonor:
		return "the reclaim policy of such PVs is not honoured now"
	case !pv.Released():
		return "the PV was not released when it went"
	case !s.End.Final:
		return "the watch was interrupted, so the PV's last state is not known"
	case !s.History.SeenAlive:
		return "csi-reclaimer did not see the PV before it was deleted"
	case s.History.SeenProtected || s.Rules.protects(pv):
		return "somebody took the finalizer off"
	case pv.Held:
		return "the PV was held"
	}
	return "the PV names no volume of this driver"
}
