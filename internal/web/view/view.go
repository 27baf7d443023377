// Package view defines the content of the page: rows of tables, and for one object its explanation, a graph of the
// holds between objects, and a timeline. All of its functions are pure functions of facts that other packages read.
//
// The types are the JSON that the page's modules in internal/web/page read. Times are RFC 3339, sizes are bytes.
package view

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
)

// Kind is a kind of object in rows, graphs and pages.
type Kind string

// KindVolume is a volume that only the driver knows, which is a suspected leak, or the volume of a PV in a graph.
// KindInFlight is an entry of the in-flight log. KindLock is the lock of the claim with its name.
const (
	KindPV       Kind = "pv"
	KindClaim    Kind = "claim"
	KindPod      Kind = "pod"
	KindNode     Kind = "node"
	KindFence    Kind = "fence"
	KindLock     Kind = "lock"
	KindVolume   Kind = "volume"
	KindInFlight Kind = "inflight"
	KindAttach   Kind = "attachment"
)

// Severity is the degree of attention that a row needs from a person.
type Severity string

// SeverityNone needs nothing, SeverityWaits waits for a condition that is about to be met, and SeverityAttention needs
// a person's action.
const (
	SeverityNone      Severity = "none"
	SeverityWaits     Severity = "waits"
	SeverityAttention Severity = "attention"
)

type Ref struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// ID is unique among the rows, and among the nodes of a graph: "pv/NAME", "claim/NAMESPACE/NAME".
func (r Ref) ID() string {
	if r.Namespace == "" {
		return string(r.Kind) + "/" + r.Name
	}
	return string(r.Kind) + "/" + r.Namespace + "/" + r.Name
}

type Row struct {
	ID string `json:"id"`
	Ref
	Driver string `json:"driver,omitempty"`
	// Phase is the phase of a PV, claim, pod or fence. Terminating is the time of the deletion request.
	Phase       string       `json:"phase,omitempty"`
	Terminating *metav1.Time `json:"terminating,omitempty"`
	// Waits: the object is due for deletion or creation, which is held back for now. Reason is the word of Events and
	// metrics for that, and Text explains it to people.
	Waits  bool   `json:"waits"`
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text,omitempty"`
	// Docs is the page of the docs about the reason, below State.Docs.
	Docs string `json:"docs,omitempty"`
	// WaitsFor is, in short, the first thing that has to happen, empty if it is unknown or the object does not wait.
	WaitsFor string   `json:"waitsFor,omitempty"`
	Severity Severity `json:"severity"`
	// Since is the time since which the object waits, nil if unknown; for a leak it is the time of the first sighting.
	Since  *metav1.Time `json:"since,omitempty"`
	Policy string       `json:"policy,omitempty"`
	// Claim is the PV's claim as "NAMESPACE/NAME", PV is the claim's PV, and Node is the pod's node.
	Claim string `json:"claim,omitempty"`
	PV    string `json:"pv,omitempty"`
	Node  string `json:"node,omitempty"`
	// Bytes is the size, 0 if it is unknown.
	Bytes int64 `json:"bytes,omitempty"`
}

// Rows holds the changes of the tables, as event "rows" of the list stream. If Reset is set, Set holds all rows.
type Rows struct {
	Reset  bool     `json:"reset,omitempty"`
	Set    []Row    `json:"set,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// State says how current the page is, as event "state" of both streams, which is sent first and at each change.
type State struct {
	// Cluster names the cluster: the context of the kubeconfig, or the API server's address.
	Cluster string `json:"cluster"`
	Version string `json:"version"`
	// Docs is the address of the docs.
	Docs string `json:"docs"`
	// Synced: every readable kind was read once, before which the tables are incomplete.
	Synced bool `json:"synced"`
	// Partial: a kind that decides on rows of PVs, claims, pods or nodes could not be read, so some may be missing.
	Partial bool `json:"partial,omitempty"`
	// Connected: the watches are up. If they are not, the rows are as of Since, and Problem is the cause.
	Connected bool         `json:"connected"`
	Since     *metav1.Time `json:"since,omitempty"`
	Problem   string       `json:"problem,omitempty"`
	// Unread lists the kinds that the caller may not read or the cluster lacks, and the questions that this leaves open.
	Unread []string `json:"unread,omitempty"`
}

// Summary is the overview, as event "summary" of the list stream.
type Summary struct {
	volumes.Status
	Drivers []DriverSummary `json:"drivers"`
	// Changes holds the latest changes of the last hour, the latest last. It is nil before the first complete look.
	Changes []Change `json:"changes"`
	// Leaks holds the reports of the leak checks, by driver.
	Leaks []LeakSummary `json:"leaks,omitempty"`
}

// LeakSummary is the result of one driver's leak check. Its suspects are rows of kind volume.
type LeakSummary struct {
	Driver   string `json:"driver"`
	Headline string `json:"headline"`
	// Suspected and Bytes are the number and the total size of the suspects.
	Suspected int   `json:"suspected"`
	Bytes     int64 `json:"bytes"`
}

// Object is the whole view of one object, as event "object" of its stream, which is sent at each change.
type Object struct {
	Row
	// Exists is false for an object that is gone. The other fields then hold its last seen state.
	Exists bool `json:"exists"`
	// Unread is the reason why the object could not be read, empty if it was. The other fields, and Exists, then hold its
	// last seen state, and an object that was never seen may exist.
	Unread string `json:"unread,omitempty"`
	// Explanation is the result of kubectl reclaim explain; nil for kinds without one.
	Explanation *explain.Explanation `json:"explanation,omitempty"`
	Graph       Graph                `json:"graph"`
}

type Graph struct {
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges"`
}

type Node struct {
	ID string `json:"id"`
	Ref
	// Label is the name for people, and Details are the lines below it, such as "Released, Delete".
	Label   string   `json:"label"`
	Details []string `json:"details,omitempty"`
	// Finalizers keep the object.
	Finalizers []NodeFinalizer `json:"finalizers,omitempty"`
	Severity   Severity        `json:"severity"`
	// Subject marks the object that the graph is about. Open: the object has a page of its own.
	Subject bool `json:"subject,omitempty"`
	Open    bool `json:"open,omitempty"`
}

// NodeFinalizer is a finalizer of an object in a graph. Text says who removes it, and when.
type NodeFinalizer struct {
	Name     string   `json:"name"`
	Text     string   `json:"text,omitempty"`
	Severity Severity `json:"severity"`
}

type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Label is the verb of the relation, such as "is bound to", "uses", "attaches" or "keeps".
	Label string `json:"label"`
	// Holds: From keeps To in the cluster.
	Holds bool `json:"holds,omitempty"`
}

// Entry is a moment in the life of an object. Event "timeline" of its stream holds a list of entries, the oldest
// first. An entry replaces an earlier one with the same ID, because Events are counted.
type Entry struct {
	ID   string      `json:"id"`
	Time metav1.Time `json:"time"`
	// Source is the reporter of an Event, or "watch" for a change of the object.
	Source string `json:"source"`
	Type   string `json:"type"`
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text"`
	// About is the object of an Event in words, such as "Node n"; the Text of a change names its object.
	About string `json:"about,omitempty"`
	// Count is the number of occurrences of an Event.
	Count int `json:"count,omitempty"`
}
