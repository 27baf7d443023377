package reclaim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"k8s.io/apimachinery/pkg/types"
)

// Explanation is the next step for a PV and its reason.
type Explanation struct {
	Decision Decision
	// Text is for people: the reason's sentence and the facts about this PV.
	Text string
	// Protected is true if a finalizer that counts in this role holds the PV.
	Protected bool
	// Waits is true if the PV is due for deletion but held back, and so counts as waiting.
	Waits bool
	// NeededBy names the other PVs that keep the volume.
	NeededBy []string
}

// Explain returns the decision of [Decide] on these facts, in words. It is a pure function; now is the time that the
// age of reads is measured at.
func Explain(s Facts, now time.Time) Explanation {
	d := Decide(s, now)
	text := d.Reason.Sentence()
	if more := detail(s, d.Reason); more != "" {
		text += " " + more
	}
	return Explanation{Decision: d, Text: text, Protected: s.protected(), Waits: d.Reason.Waits(),
		NeededBy: neededBy(s)}
}

// detail returns the facts about this PV that complete a reason's sentence, empty for none.
func detail(s Facts, reason Reason) string {
	switch reason {
	case ReasonHeld:
		return fmt.Sprintf("Its reason: %q.", s.PV.HeldBecause)
	case ReasonSharedHandle:
		return sharedWith(s)
	case ReasonDeletionUnprotected:
		return onceGone(s)
	case ReasonNodeUnclear:
		return letGo(s)
	case ReasonFinalizerContested:
		if s.Rules.Role == volume.RoleOwner {
			return "Most likely an external-provisioner without KEP-2644 works beside csi-reclaimer: run with --role=companion."
		}
		return "Look for the program that removes " + s.Rules.finalizer() + ", such as a csi-reclaimer with " +
			"--role=owner. Stop it, and restart csi-reclaimer."
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
		return plural.Count(s.Attachments, "attachment") + " left."
	case ReasonLogUnreadable:
		return sentence(s.LogProblem)
	default:
		return ""
	}
}

// sharedWith names the PVs that need the volume, and a remedy if they may name a different volume.
func sharedWith(s Facts) string {
	names := neededBy(s)
	words := "It is PV %s."
	if len(names) >= someSiblings {
		words = "Among others it is PV %s."
	}
	text := fmt.Sprintf(words, strings.Join(names, ", "))
	for _, other := range s.Siblings {
		if other.Handle != s.PV.Handle && slices.Contains(names, other.Name) {
			return text + fmt.Sprintf(" Its handle %q and that of this PV, %q, differ in case: if they are two volumes, set "+
				"this PV to Retain, delete its volume in the storage system, and then the PV.", other.Handle, s.PV.Handle)
		}
	}
	return text
}

// neededBy returns the names of the other PVs that need the volume.
func neededBy(s Facts) []string {
	var names []string
	for _, other := range s.Siblings {
		if keepsFrom(other, s.PV) || other.Name == s.SiblingNeeded {
			names = append(names, other.Name)
		}
	}
	return names
}

// onceGone returns the prospects of the volume of a PV that is terminating without a finalizer.
func onceGone(s Facts) string {
	if s.Rules.ReclaimUnprotected && s.History.SeenAlive && !s.History.SeenProtected {
		return "Once it is gone, the volume is deleted if it is proven to be no longer needed."
	}
	return fmt.Sprintf("Look for volume %q in the storage system once the PV is gone.", s.PV.Handle)
}

// letGo returns how to remove our finalizers from a PV that no node decides on, and what becomes of its volume. A node
// does not know the PVs of other nodes, and does not read the claim.
func letGo(s Facts) string {
	var words []string
	kept := whyKept(s)
	if kept != "" {
		words = append(words, fmt.Sprintf("Keep volume %q: %s.", s.PV.Handle, kept))
	}
	if finalizers := s.Rules.Finalizers(s.PV); len(finalizers) > 0 && !s.End.Gone {
		words = append(words, fmt.Sprintf("This only removes the finalizer, and the volume stays in the storage system: "+
			`kubectl patch pv %s -p '{"metadata":{"$deleteFromPrimitiveList/finalizers":["%s"]}}'.`, s.PV.Name,
			strings.Join(finalizers, `","`)))
	}
	if kept == "" {
		words = append(words, fmt.Sprintf("Once the PV and its claim are gone, delete volume %q in the storage system by "+
			"hand, unless another PV names it.", s.PV.Handle))
	}
	return strings.Join(words, " ")
}

// whyKept returns why the volume of a PV that no node decides on must stay, empty if the PV asks for its deletion.
func whyKept(s Facts) string {
	pv := s.PV
	switch {
	case len(s.Siblings) > 0:
		return fmt.Sprintf("PV %s names it, too", s.Siblings[0].Name)
	case pv.Claimed() && !pv.Released(), s.ClaimRead != session.Read{} && ClaimNeedsVolume(pv, s.Claim):
		return fmt.Sprintf("claim %s/%s may use it", pv.Claim.Namespace, pv.Claim.Name)
	case pv.Policy != volume.PolicyDelete:
		return "the reclaim policy keeps it"
	case pv.Held:
		return "the PV is held"
	case !pv.Claimed():
		return "the PV belongs to no claim"
	}
	return ""
}

// EventDetail returns the words that the Event of a wait adds to the reason's sentence: the facts about this PV and a
// remedy. It is empty for none.
func EventDetail(s Facts, reason Reason, at Moment) string {
	words := detail(s, reason)
	switch {
	case reason == ReasonClaimNamesPV:
		words += " " + bindOrDelete(s)
	case reason == ReasonTerminatingBound:
		return UsersOf(s.PV.Name, s.PV.Claim)
	case reason == ReasonReclaimAbandoned && at.TookOver:
		words += " Or the previous leader removed it after it had the volume deleted: it led until a moment ago."
	}
	return words
}

// bindOrDelete returns the remedies for a claim that names the PV, without the binding if the PV is gone.
func bindOrDelete(s Facts) string {
	const remove = "To have the volume deleted, delete the claim."
	if s.End.Gone {
		return fmt.Sprintf("The PV is gone: to use the volume again, create a PV for volume %q. %s", s.PV.Handle, remove)
	}
	return fmt.Sprintf("To bind the claim to the PV: %s. %s", BindCommand(s.PV.Name, s.Claim.UID), remove)
}

// UsersOf returns how to find the pods that use the claim of a PV.
func UsersOf(pv string, claim volume.ClaimRef) string {
	return fmt.Sprintf("`kubectl reclaim explain pv/%s` names the pods that use claim %s/%s.", pv, claim.Namespace,
		claim.Name)
}

// addCommand returns the kubectl command that adds a finalizer to a PV.
func addCommand(pv, finalizer string) string {
	return fmt.Sprintf(`kubectl patch pv %s -p '{"metadata":{"finalizers":[%q]}}'`, pv, finalizer)
}

// BindCommand returns the kubectl command that binds a PV to the claim with this UID under its claimRef's namespace
// and name. The PV controller compares the UIDs (syncVolume and syncBoundClaim in
// pkg/controller/volume/persistentvolume/pv_controller.go). Removing the claimRef's UID is not enough for a claim that
// was restored with the annotation pv.kubernetes.io/bind-completed, because its phase would stay Lost.
func BindCommand(pv string, claim types.UID) string {
	return fmt.Sprintf(`kubectl patch pv %s -p '{"spec":{"claimRef":{"uid":%q,"resourceVersion":null}}}'`, pv, claim)
}

// whyLeftBehind returns the missing proof for a PV that is gone, in the order of gone.
func whyLeftBehind(s Facts) string {
	pv := s.PV
	switch {
	case s.sharedByCase():
		return fmt.Sprintf("PV %s names %q, which differs in case and may be another volume", s.Siblings[0].Name,
			s.Siblings[0].Handle)
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
	case s.History.SeenProtected || s.Rules.Protects(pv) || pv.HasCompanionFinalizer:
		return "another program or user removed the finalizer"
	case pv.Held:
		return "the PV was held"
	}
	return "the PV names no volume of this driver"
}

// sentence ends the words with a period, and leaves an empty string empty.
func sentence(words string) string {
	if words == "" {
		return ""
	}
	return words + "."
}
