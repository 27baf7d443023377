package reclaim

import (
	"fmt"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"k8s.io/apimachinery/pkg/types"
)

// Explanation is what happens to a PV next, and why.
type Explanation struct {
	Decision Decision
	// Text is for people: the reason's sentence and what is known of this PV.
	Text string
	// Protected: a finalizer that counts in this role holds the PV.
	Protected bool
	// Waits: the PV is due for deletion and held back, so that it counts as waiting.
	Waits bool
}

// Explain returns what [Decide] decides on these facts, and why. It is a pure function; now is the time by which
// reads are judged too old.
func Explain(s Facts, now time.Time) Explanation {
	d := Decide(s, now)
	text := d.Reason.Sentence()
	if more := Detail(s, d.Reason); more != "" {
		text += " " + more
	}
	return Explanation{Decision: d, Text: text, Protected: s.protected(), Waits: d.Reason.Waits()}
}

// Detail adds to a reason's sentence what is known of this PV.
func Detail(s Facts, reason Reason) string {
	switch reason {
	case ReasonHeld:
		return fmt.Sprintf("Its reason: %q.", s.PV.HeldBecause)
	case ReasonSharedHandle:
		return fmt.Sprintf("It is PV %s.", strings.Join(neededBy(s), ", "))
	case ReasonDeletionUnprotected:
		return onceGone(s)
	case ReasonFinalizerContested:
		if s.Rules.Role == volume.RoleOwner {
			return "Most likely an external-provisioner without KEP-2644 works beside csi-reclaimer: run with --role=companion."
		}
		return "Look for the program that removes " + s.Rules.finalizer() + "."
	case ReasonPVContested:
		return "Find out who removes it, and end that. Then restart csi-reclaimer, or add the finalizer: " +
			addCommand(s.PV.Name, s.Rules.finalizer()) + "."
	case ReasonReclaimAbandoned:
		return fmt.Sprintf("It is volume %q.", s.PV.Handle)
	case ReasonVolumeLeftBehind:
		return fmt.Sprintf("It is volume %q: %s.", s.PV.Handle, whyLeftBehind(s))
	case ReasonClaimNamesPV:
		return fmt.Sprintf("It is claim %s/%s with UID %s.", s.PV.Claim.Namespace, s.PV.Claim.Name, s.Claim.UID)
	case ReasonAttached:
		return count(s.Attachments, "attachment") + " left."
	case ReasonLogUnreadable:
		return sentence(s.LogProblem)
	default:
		return ""
	}
}

// neededBy returns the names of the other PVs that need the volume.
func neededBy(s Facts) []string {
	var names []string
	for _, other := range s.Siblings {
		if !other.Deletable() || other.Name == s.SiblingNeeded {
			names = append(names, other.Name)
		}
	}
	return names
}

// onceGone returns what happens to the volume of a PV that is terminating without a finalizer.
func onceGone(s Facts) string {
	if s.Rules.ReclaimUnprotected && s.History.SeenAlive && !s.History.SeenProtected {
		return "Once it is gone, the volume is deleted if it is proven that nobody needs it."
	}
	return fmt.Sprintf("Look for volume %q in the storage system once the PV is gone.", s.PV.Handle)
}

// EventDetail is Detail with what a person can do about it.
func EventDetail(s Facts, reason Reason) string {
	detail := Detail(s, reason)
	if reason == ReasonClaimNamesPV {
		detail += " " + bindOrDelete(s)
	}
	return detail
}

// bindOrDelete returns what a person can do about a claim that names the PV. A PV that is gone cannot be bound.
func bindOrDelete(s Facts) string {
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

// whyLeftBehind returns which proof is missing for a PV that is gone, in the order of gone.
func whyLeftBehind(s Facts) string {
	pv := s.PV
	switch {
	case !s.Rules.ReclaimUnprotected:
		return "the volumes of PVs that were not protected are kept (--reclaim-unprotected)"
	case s.Rules.Mode != ModeHonor:
		return "the reclaim policy of such PVs is not honored now"
	case !pv.Released():
		return "the PV was not released when it went"
	case !s.End.Final:
		return "the watch was interrupted, so the PV's last state is not known"
	case !s.History.SeenAlive:
		return "csi-reclaimer did not see the PV before it was deleted"
	case s.History.SeenProtected || s.Rules.Protects(pv):
		return "somebody removed the finalizer"
	case pv.Held:
		return "the PV was held"
	}
	return "the PV names no volume of this driver"
}

// sentence returns the words with a period, empty for none.
func sentence(words string) string {
	if words == "" {
		return ""
	}
	return words + "."
}

// count returns "1 thing" or "2 things".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
