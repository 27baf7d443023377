package pods

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// ListFacts holds the results of all reads about the pods of one or all namespaces. The zero value of each field is
// unknown.
type ListFacts struct {
	// Now is the time at the end of the reads.
	Now  time.Time
	Pods explain.Read[[]explain.Pod]
	// Nodes holds all nodes of the cluster by name, read after the pods and the NodeFences.
	Nodes explain.Read[map[string]*v1.Node]
	// Leases holds the kubelets' Leases of nodes that do not exist although held pods name them, by node. The Value is
	// nil if the Lease does not exist.
	Leases map[string]explain.Read[*coordinationv1.Lease]
	// Fences holds all NodeFences of the cluster, by node name. They are only read if a held pod is terminating.
	Fences explain.Read[map[string]*v1alpha1.NodeFence]
}

// List holds the pods that need attention: held pods that are terminating, and pods on nodes that are down.
type List struct {
	// Pods are sorted by namespace and name.
	Pods []Row `json:"pods"`
	// HeldRunning counts the held pods that are not terminating and whose node is not known to be down. Pods only
	// contains them on request.
	HeldRunning int `json:"heldRunning"`
	// Unread lists the reads that failed, and the questions they leave open.
	Unread []string `json:"unread,omitempty"`
}

type Row struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Node is empty for a pod that was never bound to a node.
	Node string `json:"node,omitempty"`
	// Status is NodeDown, Terminating, "Terminating,NodeDown", or the phase.
	Status string `json:"status"`
	// NodeDownSince is the time since which the node is not Ready, and TerminatingSince the time of the deletion request.
	// Each is nil if it does not apply or is unknown.
	NodeDownSince    *metav1.Time `json:"nodeDownSince,omitempty"`
	TerminatingSince *metav1.Time `json:"terminatingSince,omitempty"`
	// Held: the pod has volume-guard's finalizer, and Reason is the word of Events and metrics for keeping or releasing
	// it. WaitsFor tells people the next condition of a terminating pod, held or not.
	Held     bool   `json:"held"`
	Reason   string `json:"reason,omitempty"`
	WaitsFor string `json:"waitsFor,omitempty"`
	// Claims holds the names of the pod's claims. Finalizers holds its finalizers except volume-guard's.
	Claims     []string `json:"claims,omitempty"`
	Finalizers []string `json:"finalizers,omitempty"`

	// NodeDown is true if the node is not Ready, or missing. Warns is true if the severity of Reason is Warning.
	NodeDown bool `json:"-"`
	Warns    bool `json:"-"`
}

const (
	statusNodeDown    = "NodeDown"
	statusTerminating = "Terminating"
)

// ListOf is a pure function that lists the pods that need attention, and with running set all held pods.
func ListOf(f ListFacts, running bool) List {
	l := List{Pods: []Row{}}
	for _, pod := range f.Pods.Value {
		row := f.RowOf(pod)
		switch {
		case row.NodeDown && (pod.Held || !pod.Final), pod.Held && pod.Terminating:
			l.Pods = append(l.Pods, row)
		case pod.Held:
			l.HeldRunning++
			if running {
				l.Pods = append(l.Pods, row)
			}
		}
	}
	slices.SortFunc(l.Pods, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	l.Unread = f.unread()
	return l
}

func (f ListFacts) unread() []string {
	var s explain.Explanation
	explain.NoteUnread(&s, f.Nodes, "Nodes", "which pods are on a node that is down, and whether they can be released")
	for _, node := range slices.Sorted(maps.Keys(f.Leases)) {
		explain.NoteUnread(&s, f.Leases[node], "Lease "+v1.NamespaceNodeLease+"/"+node, "whether its kubelet is alive")
	}
	explain.NoteUnread(&s, f.Fences, "NodeFences", "which nodes are fenced")
	return s.Unread
}

// on returns the reads about a node.
func (f ListFacts) on(node string) OnNode {
	return OnNode{
		Node:  explain.Then(f.Nodes, func(all map[string]*v1.Node) *v1.Node { return all[node] }),
		Fence: explain.Then(f.Fences, func(all map[string]*v1alpha1.NodeFence) *v1alpha1.NodeFence { return all[node] }),
		Lease: f.Leases[node],
	}
}

// Hold returns the engine's facts about a pod of the list.
func (f ListFacts) Hold(pod explain.Pod) podsafety.Facts {
	return holdFacts(pod.Pod, podsafety.ModeOff, f.on(pod.Node), f.Now)
}

// RowOf returns the row of any pod, whether it needs attention or not.
func (f ListFacts) RowOf(pod explain.Pod) Row { return RowOf(pod, f.on(pod.Node), f.Now) }

// RowOf returns the row of a pod. now is the time of the reads.
func RowOf(pod explain.Pod, on OnNode, now time.Time) Row {
	hold := holdFacts(pod.Pod, podsafety.ModeOff, on, now)
	e := podsafety.Explain(hold, now)
	row := Row{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: pod.Node, Held: pod.Held,
		Claims: names(pod.Claims), Finalizers: pod.Finalizers, NodeDown: e.NodeDown,
	}
	var status []string
	if pod.Terminating {
		status = append(status, statusTerminating)
		row.TerminatingSince = explain.AtTime(pod.TerminatingSince)
	}
	if e.NodeDown {
		status = append(status, statusNodeDown)
		row.NodeDownSince = explain.AtTime(explain.DownSince(on.Node.Value))
	}
	if row.Status = strings.Join(status, ","); row.Status == "" {
		row.Status = phase(pod)
	}
	switch {
	case pod.Held:
		row.Reason = string(e.Decision.Reason)
		if e.Decision.Action.Kind() == session.Reads {
			row.Reason = string(podsafety.ReasonAPIReadFailed)
		}
		row.Warns = podsafety.Reason(row.Reason).About().Severity == reasons.Warning
		if pod.Terminating {
			row.WaitsFor = heldWaitsFor(hold, e.Decision)
		}
	case pod.Terminating:
		row.WaitsFor = unheldWaitsFor(pod, e.NodeDown)
	}
	return row
}

// Since returns the time since which the pod's node is down, or else the time of the pod's deletion. The zero time is
// unknown.
func (r Row) Since() time.Time {
	switch {
	case r.NodeDownSince != nil:
		return r.NodeDownSince.Time
	case r.TerminatingSince != nil:
		return r.TerminatingSince.Time
	}
	return time.Time{}
}

// NamespaceFacts holds the results of all reads about one namespace.
type NamespaceFacts struct {
	ListFacts
	Namespace *v1.Namespace
	Claims    explain.Read[[]string]
	// Guards holds volume-guard's leader election Leases.
	Guards explain.Read[[]coordinationv1.Lease]
}

// ExplainNamespace is a pure function that explains the pods and claims that keep a terminating namespace.
func ExplainNamespace(f NamespaceFacts) explain.Explanation {
	name := f.Namespace.Name
	s := explain.Explanation{Object: "namespace " + name}
	rows := f.rows()
	state := string(f.Namespace.Status.Phase)
	deleted := f.Namespace.DeletionTimestamp
	if deleted != nil {
		state += " for " + explain.Age(f.Now, deleted.Time)
	}
	s.AddFact("Phase", "%s", state)
	left := plural.Count(len(rows), "pod")
	if deleted != nil {
		addConditions(&s, f, len(rows), left)
	}
	addRows(&s, rows, deleted != nil)
	f.addClaims(&s)
	s.AddGuards(f.Guards, f.Now)
	explain.NoteUnread(&s, f.Pods, "Pods", "which are left")
	s.Unread = append(s.Unread, f.unread()...)
	for _, row := range rows {
		if deleted != nil && len(s.Advice) < maxRows {
			s.Advise("kubectl reclaim explain pod/%s -n %s", row.Name, name)
		}
	}
	s.Headline = f.headline(rows, left)
	return s
}

// maxRows limits the number of pods that are listed one by one.
const maxRows = 20

// rows returns all pods of a terminating namespace, and only the pods that need attention of any other.
func (f NamespaceFacts) rows() (rows []Row) {
	if f.Namespace.DeletionTimestamp == nil {
		return ListOf(f.ListFacts, false).Pods
	}
	for _, pod := range f.Pods.Value {
		rows = append(rows, f.RowOf(pod))
	}
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// addConditions reports the namespace controller's conditions, and corrects one of them: with the feature gate
// OrderedNamespaceDeletion, NamespaceContentRemaining does not count terminating pods.
func addConditions(s *explain.Explanation, f NamespaceFacts, pods int, left string) {
	for _, c := range f.Namespace.Status.Conditions {
		mistaken := c.Type == v1.NamespaceContentRemaining && c.Status == v1.ConditionFalse && pods > 0
		switch {
		case mistaken:
			s.AddFact("Condition", "%s is %s: %q, but %s %s left", c.Type, c.Status, c.Message, left,
				plural.Verb(pods, "is", "are"))
		case c.Status != v1.ConditionFalse:
			s.AddFact("Condition", "%s is %s: %s", c.Type, c.Status, c.Message)
		}
	}
}

func addRows(s *explain.Explanation, rows []Row, waits bool) {
	for i, row := range rows {
		if i == maxRows {
			s.AddFact("Pod", "and %d more", len(rows)-i)
			return
		}
		text := row.Name + ", " + row.Status
		if row.Node != "" {
			text += ", node " + row.Node
		}
		if row.Held {
			text += ", held by volume-guard (" + row.Reason + ")"
		}
		if len(row.Finalizers) > 0 {
			text += ", finalizer " + strings.Join(row.Finalizers, ", ")
		}
		s.AddFact("Pod", "%s", text)
		if waits && row.WaitsFor != "" {
			s.AddWait("pod %s, which waits for %s", row.Name, row.WaitsFor)
		} else if waits {
			s.AddWait("pod %s", row.Name)
		}
	}
}

// addClaims reports the claims that remain, and the pods that use them.
func (f NamespaceFacts) addClaims(s *explain.Explanation) {
	explain.NoteUnread(s, f.Claims, "Claims", "which are left")
	if f.Namespace.DeletionTimestamp == nil {
		return
	}
	for _, claim := range names(f.Claims.Value) {
		var users []string
		for _, pod := range f.Pods.Value {
			if slices.Contains(pod.Claims, claim) {
				users = append(users, pod.Name)
			}
		}
		if len(users) == 0 {
			s.AddFact("Claim", "%s: kubectl reclaim explain pvc/%s -n %s", claim, claim, f.Namespace.Name)
			continue
		}
		slices.Sort(users)
		s.AddFact("Claim", "%s, in use by pod %s", claim, strings.Join(users, ", "))
	}
}

func (f NamespaceFacts) headline(rows []Row, left string) string {
	what := "Namespace " + f.Namespace.Name
	held := 0
	for _, row := range rows {
		if row.Held {
			held++
		}
	}
	switch {
	case f.Namespace.DeletionTimestamp == nil && !f.Pods.OK():
		return what + " is not terminating, and its pods could not be read."
	case f.Namespace.DeletionTimestamp == nil && len(rows) == 0:
		return what + " is not terminating, and none of its pods waits."
	case f.Namespace.DeletionTimestamp == nil:
		return fmt.Sprintf("%s is not terminating. %s %s attention.", what, left, plural.Verb(len(rows), "wants", "want"))
	case !f.Pods.OK():
		return what + " is terminating, and its pods could not be read."
	}
	what += " has been terminating for " + explain.Age(f.Now, f.Namespace.DeletionTimestamp.Time)
	switch {
	case held == 1 && len(rows) == 1:
		return fmt.Sprintf("%s and waits for %s, which volume-guard holds.", what, left)
	case held > 0:
		return fmt.Sprintf("%s and waits for %s. volume-guard holds %d of them.", what, left, held)
	case len(rows) > 0:
		return fmt.Sprintf("%s and waits for %s. volume-guard holds none of them.", what, left)
	}
	return what + ", and has no pods left. Its conditions name the other objects."
}
