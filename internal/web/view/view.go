// Package view has what the page shows: rows of tables, and for one object its explanation, a graph of what holds
// what, and a timeline. It makes them from facts that others have read. All of its functions are pure.
//
// The types are the JSON that the page's modules in internal/web/page read. Times are RFC 3339, sizes are bytes.
package view

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

// Kind is a kind of object that the page has rows and pages of.
type Kind string

// The kinds. A Volume is one that only the driver knows: a suspected leak. An InFlight is an entry of the in-flight
// log.
const (
	KindPV        Kind = "pv"
	KindClaim     Kind = "claim"
	KindPod       Kind = "pod"
	KindNode      Kind = "node"
	KindFence     Kind = "fence"
	KindVolume    Kind = "volume"
	KindInFlight  Kind = "inflight"
	KindFinalizer Kind = "finalizer"
	KindAttach    Kind = "attachment"
)

// Severity is how much a row wants a person's attention.
type Severity string

// The severities: nothing to do; it waits, and something is about to end that; a person has to do something.
const (
	SeverityNone      Severity = "none"
	SeverityWaits     Severity = "waits"
	SeverityAttention Severity = "attention"
)

// Ref names an object.
type Ref struct {
	Kind Kind `json:"kind"`
	// Namespace is empty for objects that have none.
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

// Row is one object in the tables.
type Row struct {
	ID string `json:"id"`
	Ref
	// Driver is the CSI driver, or in-tree plugin.
	Driver string `json:"driver,omitempty"`
	// Phase is the phase of a PV, claim, pod or fence, and Terminating since when it is being deleted.
	Phase       string       `json:"phase,omitempty"`
	Terminating *metav1.Time `json:"terminating,omitempty"`
	// Waits: it is to go, or to come, and does not yet. Reason is why, the word of Events and metrics; Text says it for
	// people.
	Waits    bool     `json:"waits"`
	Reason   string   `json:"reason,omitempty"`
	Text     string   `json:"text,omitempty"`
	Severity Severity `json:"severity"`
	// Since is since when it waits, nil where that is not known; for a leak since when it is seen.
	Since *metav1.Time `json:"since,omitempty"`
	// Policy is the reclaim policy of a PV.
	Policy string `json:"policy,omitempty"`
	// Claim is that of a PV, as "NAMESPACE/NAME"; PV that of a claim; Node that of a pod.
	Claim string `json:"claim,omitempty"`
	PV    string `json:"pv,omitempty"`
	Node  string `json:"node,omitempty"`
	// Bytes is the size, 0 where it is not known.
	Bytes int64 `json:"bytes,omitempty"`
}

// Rows is what changed in the tables: event "rows" of the stream of lists. With Reset, Set is all there is.
type Rows struct {
	Reset  bool     `json:"reset,omitempty"`
	Set    []Row    `json:"set,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// State is how current the page is: event "state" of both streams, sent first and at each change.
type State struct {
	// Cluster names the cluster: the context of the kubeconfig, or the API server's address.
	Cluster string `json:"cluster"`
	// Version is that of the program that serves the page.
	Version string `json:"version"`
	// Synced: all that can be read was read once. Until then tables are not complete.
	Synced bool `json:"synced"`
	// Connected: the watches are up. Where they are not, Since is since when, and Problem says why.
	Connected bool         `json:"connected"`
	Since     *metav1.Time `json:"since,omitempty"`
	Problem   string       `json:"problem,omitempty"`
	// Unread is what the caller may not read, or what does not exist in the cluster, and what is open because of it.
	Unread []string `json:"unread,omitempty"`
}

// Summary is what stands above the tables: event "summary" of the stream of lists.
type Summary struct {
	explain.Status
	// Leaks are the reports of the leak checks, by driver.
	Leaks []LeakSummary `json:"leaks,omitempty"`
}

// LeakSummary is what the leak check of one driver reports. Its suspects are rows of kind volume.
type LeakSummary struct {
	Driver   string `json:"driver"`
	Headline string `json:"headline"`
	// Suspected and Bytes are the number and size of the suspects.
	Suspected int   `json:"suspected"`
	Bytes     int64 `json:"bytes"`
}

// Object is all that is shown of one object: event "object" of its stream, sent at each change.
type Object struct {
	Row
	// Exists is false for an object that is gone. The rest is then what was seen last.
	Exists bool `json:"exists"`
	// Explanation is that of kubectl reclaim explain; nil for kinds that have none.
	Explanation *explain.Explanation `json:"explanation,omitempty"`
	Graph       Graph                `json:"graph"`
}

// Graph is what holds what.
type Graph struct {
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges"`
}

// Node is an object, a finalizer or a volume in a Graph.
type Node struct {
	ID string `json:"id"`
	Ref
	// Label is what it is called for people, Details are lines below, such as "Released, Delete".
	Label    string   `json:"label"`
	Details  []string `json:"details,omitempty"`
	Severity Severity `json:"severity"`
	// Subject is the object that the graph is about. Open: the page has a page of it.
	Subject bool `json:"subject,omitempty"`
	Open    bool `json:"open,omitempty"`
}

// Edge says what one node is to another.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Label is the verb: "is bound to", "uses", "is attached to", "keeps".
	Label string `json:"label"`
	// Holds: From keeps To from going.
	Holds bool `json:"holds,omitempty"`
}

// Entry is a moment in the life of an object: event "timeline" of its stream, as a list, oldest first. Entries with an
// ID that was sent before replace that one: Events are counted.
type Entry struct {
	ID   string      `json:"id"`
	Time metav1.Time `json:"time"`
	// Source is who says so: the reporter of an Event, or "watch" for a change of the object.
	Source string `json:"source"`
	// Type is Normal, Warning, or Change.
	Type   string `json:"type"`
	Reason string `json:"reason,omitempty"`
	Text   string `json:"text"`
	// Count is how many times it happened.
	Count int `json:"count,omitempty"`
}
