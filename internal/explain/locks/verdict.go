package locks

import (
	"fmt"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

const controller = "volume-guard (single-node)"

// undecided is the text for a decision whose next step is a read that failed here.
const undecided = "A fact that the decision depends on could not be read here, so the next step is not known."

type verdict struct {
	singlenode.Decision
	severity reasons.Severity
	// text is the reason's sentence with further facts, and waitsFor is the phrase after "waits for".
	text, waitsFor string
}

func verdictOf(d singlenode.Decision, text, waitsFor string) verdict {
	v := verdict{Decision: d, severity: d.Reason.About().Severity, text: text, waitsFor: waitsFor}
	if d.Action.Kind() == session.Reads {
		v.Reason, v.text, v.waitsFor = singlenode.ReasonAPIReadFailed, undecided, "not known: not all could be read"
	}
	return v
}

func (v verdict) decision() explain.Decision {
	d := explain.Decision{By: controller, Action: v.Action.String(), Reason: string(v.Reason), Text: v.text}
	if v.Action.Kind() == session.Reads {
		d.Action = ""
	}
	return d
}

func (f Facts) led() bool { return explain.Led(f.Guards.Value, f.Now) }

func (i *index) ofGate(p explain.Pod) verdict {
	e := singlenode.Explain(i.gate(p), i.Now)
	return verdictOf(e.Decision, e.Text, i.gateWaitsFor(p, e.Decision))
}

// gateWaitsFor returns a gated pod's phrase after "waits for".
func (i *index) gateWaitsFor(p explain.Pod, d singlenode.Decision) string {
	claim := "claim " + d.Claim
	switch d.Reason {
	case singlenode.ReasonClaimInUse:
		return "the lock of " + claim + ", which pod " + i.claims[key{p.Namespace, d.Claim}].Lock.Name + " has"
	case singlenode.ReasonUsedWithoutLock:
		return "pod " + i.user(p.Namespace, d).Name + " to end, which uses " + claim + " without the lock"
	case singlenode.ReasonClaimMissing:
		return claim + " to be created"
	case singlenode.ReasonClaimTerminating:
		return claim + ", which is being deleted"
	case singlenode.ReasonClaimOfOther:
		return claim + ", which belongs to something else"
	case singlenode.ReasonNotHeld:
		return "the finalizer that holds it"
	case singlenode.ReasonOtherGates:
		return "its other scheduling gates to be removed: " + strings.Join(p.OtherGates, ", ")
	default:
	}
	if d.Action == singlenode.RemoveGate {
		return "volume-guard to remove its gate"
	}
	return ""
}

// user returns the pod that, by the decision, uses a claim without its lock. It is the zero value for other decisions.
func (i *index) user(namespace string, d singlenode.Decision) (user explain.Pod) {
	for _, p := range i.users[key{namespace, d.Claim}] {
		if p.UID == d.User {
			return p
		}
	}
	return user
}

func (i *index) ofLock(c Claim) verdict {
	e := singlenode.ExplainLock(i.lock(c), i.Now)
	return verdictOf(e.Decision, e.Text, i.lockWaitsFor(c, e.Decision))
}

// lockWaitsFor returns a lock's phrase after "waits for".
func (i *index) lockWaitsFor(c Claim, d singlenode.Decision) string {
	if d.Action == singlenode.FreeLock {
		return "volume-guard to free the lock"
	}
	holder, found := i.pods[key{c.Namespace, c.Lock.Name}]
	switch {
	case !found:
		return ""
	case d.Reason == singlenode.ReasonHolderUnschedulable:
		return "pod " + holder.Name + " to fit a node, or to be deleted"
	case d.Reason == singlenode.ReasonHolderFailed:
		return "pod " + holder.Name + " to be deleted"
	case d.Reason == singlenode.ReasonWaitsForUnmount:
		return "its volumes to be unmounted on node " + holder.Node
	case holder.Terminating:
		return i.RowOf(holder).WaitsFor
	case d.Reason == singlenode.ReasonHolderUnreachable:
		return fmt.Sprintf("node %s to return, or pod %s to be deleted", holder.Node, holder.Name)
	}
	return "pod " + holder.Name + " to end"
}
