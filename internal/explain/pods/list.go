package pods

import (
	"cmp"
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
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// ListFacts is what was read of the pods of a namespace, or of all. The zero value of each field is not known.
type ListFacts struct {
	// Now is when the reads were made.
	Now  time.Time
	Pods explain.Read[[]Pod]
	// Nodes are all of the cluster by their names, read after the pods.
	Nodes explain.Read[map[string]*v1.Node]
	// Leases are those of the kubelets of nodes that do not exist and have held pods, by node; nil for one that does
	// not exist.
	Leases Leases
	// Fences are all of the cluster, by the names of their nodes. They are read only where a held pod is terminating.
	Fences Fences
}

// Leases are those of kubelets by node, and Fences the NodeFences by node.
type (
	Leases = map[string]explain.Read[*coordinationv1.Lease]
	Fences = explain.Read[map[string]*v1alpha1.NodeFence]
)

// List is the pods that want attention: those that are terminating and held, and those on nodes that are down.
type List struct {
	// Pods are sorted by namespace and name.
	Pods []Row `json:"pods"`
	// HeldRunning counts the held pods that nobody has deleted, on nodes that are not known to be down. They are in
	// Pods only if they were asked for.
	HeldRunning int `json:"heldRunning"`
	// Unread is what could not be read, and so is missing from the rest.
	Unread []string `json:"unread,omitempty"`
}

// Row is one pod of a List.
type Row struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Node is empty for a pod that was never bound to one.
	Node string `json:"node,omitempty"`
	// Status is NodeDown, Terminating, both with a comma, or the phase.
	Status string `json:"status"`
	// NodeDownSince is when the node ceased to be Ready, TerminatingSince when the deletion was asked for; nil where it
	// is not so, or not known.
	NodeDownSince    *metav1.Time `json:"nodeDownSince,omitempty"`
	TerminatingSince *metav1.Time `json:"terminatingSince,omitempty"`
	// Held: the pod has the finalizer of volume-guard. Reason is then why it is held or released, the word of Events
	// and metrics, and WaitsFor what has to happen first, for people.
	Held     bool   `json:"held"`
	Reason   string `json:"reason,omitempty"`
	WaitsFor string `json:"waitsFor,omitempty"`
	// Claims are the names of its claims, and Finalizers those that are not of volume-guard.
	Claims     []string `json:"claims,omitempty"`
	Finalizers []string `json:"finalizers,omitempty"`

	nodeDown bool
}

const (
	statusNodeDown    = "NodeDown"
	statusTerminating = "Terminating"
)

// ListOf lists the pods that want attention, and with running all that are held. It is a pure function.
func ListOf(f ListFacts, running bool) List {
	l := List{Pods: []Row{}}
	for _, pod := range f.Pods.Value {
		row := f.RowOf(pod)
		switch {
		case row.nodeDown && (pod.Held || !pod.Final), pod.Held && pod.Terminating:
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
	if !explain.NoFencing(f.Fences) {
		explain.NoteUnread(&s, f.Fences, "NodeFences", "which nodes are fenced")
	}
	return s.Unread
}

// node returns what was read of a node, nil in it for one that does not exist.
func (f ListFacts) node(name string) explain.Read[*v1.Node] {
	if !f.Nodes.OK() {
		return explain.Read[*v1.Node]{Made: f.Nodes.Made, Err: f.Nodes.Err}
	}
	return explain.Found(f.Nodes.Value[name])
}

// fence returns what was read of the NodeFence of a node, nil in it for one that does not exist.
func (f ListFacts) fence(node string) explain.Read[*v1alpha1.NodeFence] {
	return explain.Read[*v1alpha1.NodeFence]{Made: f.Fences.Made, Value: f.Fences.Value[node], Err: f.Fences.Err}
}

// Hold returns what is known of a pod of the list and of its node.
func (f ListFacts) Hold(pod Pod) podsafety.Facts {
	on := OnNode{Node: f.node(pod.Node), Lease: f.Leases[pod.Node], Fence: f.fence(pod.Node)}
	return holdFacts(pod.Pod, podsafety.ModeOff, on, f.Now)
}

// RowOf returns one pod as a row of a List, whether it wants attention or not.
func (f ListFacts) RowOf(pod Pod) Row {
	node := f.node(pod.Node)
	hold := f.Hold(pod)
	e := podsafety.Explain(hold, f.Now)
	row := Row{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: pod.Node, Held: pod.Held,
		Claims: names(pod.Claims), Finalizers: pod.Finalizers, nodeDown: e.NodeDown,
	}
	var status []string
	if pod.Terminating {
		status = append(status, statusTerminating)
		row.TerminatingSince = atTime(pod.TerminatingSince)
	}
	if e.NodeDown {
		status = append(status, statusNodeDown)
		row.NodeDownSince = atTime(downSince(node.Value))
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
		if pod.Terminating {
			row.WaitsFor = heldWaitsFor(hold, e.Decision)
		}
	case pod.Terminating:
		row.WaitsFor = unheldWaitsFor(pod, e.NodeDown)
	}
	return row
}

// Since returns since when the pod wants attention: since its node is down, and otherwise since its deletion. The zero
// time is not known.
func (r Row) Since() time.Time {
	switch {
	case r.NodeDownSince != nil:
		return r.NodeDownSince.Time
	case r.TerminatingSince != nil:
		return r.TerminatingSince.Time
	}
	return time.Time{}
}

func atTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := metav1.NewTime(t)
	return &at
}
