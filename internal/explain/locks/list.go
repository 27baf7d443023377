package locks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// List holds the claims with a lock, and the pods with the gate. Rows that need a person's attention come first.
type List struct {
	Locks []Lock `json:"locks"`
	// GatedPods holds all pods with the gate that are not terminating.
	GatedPods []GatedPod `json:"gatedPods"`
	// Warnings need a person's attention.
	Warnings []string `json:"warnings,omitempty"`
	// Unread lists the reads that failed, and the questions they leave open.
	Unread []string `json:"unread,omitempty"`
}

type Lock struct {
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	ClaimUID  string `json:"claimUID"`
	// Holder and HolderUID are the pod that the lock names, empty if it names none.
	Holder    string `json:"holder,omitempty"`
	HolderUID string `json:"holderUID,omitempty"`
	// Node is the holder's node, empty if the holder is unscheduled or gone.
	Node string `json:"node,omitempty"`
	// Reason is the word of Events and metrics for keeping or freeing the lock. Text explains it to people, and WaitsFor
	// tells them the condition that frees the lock.
	Reason   string `json:"reason"`
	Text     string `json:"text"`
	WaitsFor string `json:"waitsFor,omitempty"`
	// Since is the time since which the holder has the lock, nil if it is unknown.
	Since *metav1.Time `json:"since,omitempty"`
	// Waiting holds the pods that wait for the lock, the longest wait first.
	Waiting []Waiting `json:"waiting,omitempty"`

	severity reasons.Severity
}

type Waiting struct {
	Pod string `json:"pod"`
	UID string `json:"uid"`
	// Since is the pod's creationTimestamp.
	Since metav1.Time `json:"since"`
}

type GatedPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Since is the pod's creationTimestamp.
	Since metav1.Time `json:"since"`
	// Reason is the word of Events and metrics for keeping or removing the gate. Text explains it to people, and WaitsFor
	// tells them the next condition.
	Reason   string `json:"reason"`
	Text     string `json:"text"`
	WaitsFor string `json:"waitsFor,omitempty"`
	// Claim is the claim that the pod waits for, and Pod the pod that uses that claim or has its lock. Each is empty for
	// none.
	Claim string `json:"claim,omitempty"`
	Pod   string `json:"pod,omitempty"`

	severity reasons.Severity
}

// Attention reports whether a person has to look at the lock or the pod.
func (l Lock) Attention() bool     { return l.severity == reasons.Warning }
func (g GatedPod) Attention() bool { return g.severity == reasons.Warning }

// WaitsForLock reports whether the pod waits for the lock of a claim, so that the Lock's Waiting contains it.
func (g GatedPod) WaitsForLock() bool { return g.Reason == string(singlenode.ReasonClaimInUse) }

// ListOf is a pure function that lists the locks and the gated pods.
func ListOf(f Facts) List {
	i := f.index()
	l := List{Locks: []Lock{}, GatedPods: []GatedPod{}, Unread: f.unread()}
	for _, p := range f.Pods.Value {
		if p.Gated && !p.Terminating {
			l.GatedPods = append(l.GatedPods, i.gatedRow(p))
		}
	}
	waiting := waitingOf(l.GatedPods)
	for _, c := range f.Claims.Value {
		if c.has() {
			l.Locks = append(l.Locks, i.lockRow(c, waiting[key{c.Namespace, c.Name}]))
		}
	}
	slices.SortFunc(l.Locks, compareLocks)
	slices.SortFunc(l.GatedPods, compareGated)
	if explain.GuardIsAway(f.Guards, f.Now) && len(l.Locks)+len(l.GatedPods) > 0 {
		l.Warnings = append(l.Warnings, "No lock is freed, and no pod with the gate is scheduled, while volume-guard does "+
			"not run: "+explain.NoGuard+".")
	}
	return l
}

// compareLocks sorts locks that need attention first, then locks that pods wait for, the longest wait first.
func compareLocks(a, b Lock) int {
	return cmp.Or(compareAttention(a.Attention(), b.Attention()), compareWaiting(a.Waiting, b.Waiting),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Claim, b.Claim))
}

func compareAttention(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// compareWaiting sorts the longest wait first, and locks without a waiting pod last.
func compareWaiting(a, b []Waiting) int {
	if len(a) == 0 || len(b) == 0 {
		return min(len(b), 1) - min(len(a), 1)
	}
	return a[0].Since.Compare(b[0].Since.Time)
}

func compareGated(a, b GatedPod) int {
	return cmp.Or(compareAttention(a.Attention(), b.Attention()), a.Since.Compare(b.Since.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (i *index) gatedRow(p explain.Pod) GatedPod {
	v := i.ofGate(p)
	g := GatedPod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Since: metav1.NewTime(p.Created),
		Reason: string(v.Reason), Text: v.text, WaitsFor: v.waitsFor, Claim: v.Claim, severity: v.severity}
	if other, found := i.waitsForPod(p, v); found {
		g.Pod = other.Name
	}
	return g
}

func (i *index) waitsForPod(p explain.Pod, v verdict) (other explain.Pod, found bool) {
	if v.Reason == singlenode.ReasonClaimInUse {
		return i.holderOf(i.claims[key{p.Namespace, v.Claim}])
	}
	other = i.user(p.Namespace, v.Decision)
	return other, other.UID != ""
}

// waitingOf returns the pods that wait for the lock of each claim.
func waitingOf(all []GatedPod) map[key][]Waiting {
	waiting := map[key][]Waiting{}
	for _, g := range all {
		if at := (key{g.Namespace, g.Claim}); g.WaitsForLock() {
			waiting[at] = append(waiting[at], Waiting{Pod: g.Name, UID: g.UID, Since: g.Since})
		}
	}
	return waiting
}

func (i *index) lockRow(c Claim, waiting []Waiting) Lock {
	v := i.ofLock(c)
	slices.SortFunc(waiting, func(a, b Waiting) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), strings.Compare(a.Pod, b.Pod))
	})
	l := Lock{Namespace: c.Namespace, Claim: c.Name, ClaimUID: string(c.UID), Holder: c.Lock.Name,
		Reason: string(v.Reason), Text: v.text, WaitsFor: v.waitsFor, Since: i.since(c), Waiting: waiting,
		severity: v.severity}
	if l.Holder == "" {
		return l
	}
	l.HolderUID = string(c.Lock.UID)
	if holder, found := i.holderOf(c); found {
		l.Node = holder.Node
	}
	return l
}

// holderOf returns the pod that has the lock of a claim. found is false if that pod is gone.
func (i *index) holderOf(c Claim) (holder explain.Pod, found bool) {
	if holder, found = i.pods[key{c.Namespace, c.Lock.Name}]; holder.UID != c.Lock.UID {
		return explain.Pod{}, false
	}
	return holder, found
}

// since returns the time since which the lock is held, nil if it is unknown. Both the manager's last write and the
// scheduling of the pod are later than the lock, so the earlier of the two is the better estimate.
func (i *index) since(c Claim) *metav1.Time {
	at := c.Written
	holder, _ := i.holderOf(c)
	if bound := holder.Scheduled; !bound.IsZero() && (at.IsZero() || bound.Before(at)) {
		at = bound
	}
	return explain.AtTime(at)
}

func (f Facts) unread() []string {
	var s explain.Explanation
	explain.NoteUnread(&s, f.Namespaces, "Namespaces", "which of them ask for locks")
	explain.NoteUnread(&s, f.Classes, "StorageClasses", "which of them ask for locks")
	explain.NoteUnread(&s, f.PVs, "PVs", "which of them ask for locks, and which drivers they have")
	explain.NoteUnread(&s, f.Nodes, "Nodes", "which pods are on a node that is not Ready")
	explain.NoteUnread(&s, f.Fences, "NodeFences", "which nodes are kept from their volumes")
	explain.NoteUnread(&s, f.Guards, "Leases", "whether volume-guard runs")
	return s.Unread
}

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
