package nodes

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// ListFacts is what was read of all NodeFences.
type ListFacts struct {
	// Now is when the reads were made.
	Now    time.Time
	Fences []*v1alpha1.NodeFence
	// On is what was read of the nodes of the fences, by name: Pods, Node, Lease and Attachments.
	On map[string]Facts
}

// List is the fences of a cluster.
type List struct {
	// Fences are sorted by the names of their nodes.
	Fences []Row `json:"fences"`
	// Unread is what could not be read, and so is missing from the rest.
	Unread []string `json:"unread,omitempty"`
}

// Row is one fence of a List.
type Row struct {
	Node string `json:"node"`
	UID  string `json:"uid"`
	// Phase is how far the fence is, and Reason why volume-guard does what it does next, the word of Events and metrics.
	Phase  string `json:"phase"`
	Reason string `json:"reason"`
	// WaitsFor is what has to happen first, for people.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Agent is the one that has proven that the node is fenced, or else the one that was tried last. Attempts is how
	// many of all agents were made.
	Agent    string `json:"agent,omitempty"`
	Attempts int    `json:"attempts"`
	// Covers is what is proven, empty for nothing, and Drivers the CSI drivers for coverage Volumes.
	Covers  string   `json:"covers,omitempty"`
	Drivers []string `json:"drivers,omitempty"`
	// Held is how many held pods on the node are terminating, and Detaching how many of its volumes are to be detached;
	// nil where that could not be read.
	Held      *int `json:"held,omitempty"`
	Detaching *int `json:"detaching,omitempty"`
	// AskedBy is who asked for the fence, and Because why.
	AskedBy string      `json:"askedBy"`
	Because string      `json:"because"`
	Since   metav1.Time `json:"since"`
}

// ListOf lists the fences. It is a pure function.
func ListOf(f ListFacts) List {
	l := List{Fences: []Row{}}
	var s explain.Explanation
	for _, fence := range f.Fences {
		on := f.On[fence.Name]
		l.Fences = append(l.Fences, on.row(fence, f.Now))
		explain.NoteUnread(&s, on.Node, "Node "+fence.Name, "what its fence waits for")
		explain.NoteUnread(&s, on.Lease, "Lease of node "+fence.Name, "what its fence waits for")
		explain.NoteUnread(&s, on.Pods, "Pods on node "+fence.Name, "which of them are held")
		explain.NoteUnread(&s, on.Attachments, "VolumeAttachments", "which volumes are attached to node "+fence.Name)
	}
	slices.SortFunc(l.Fences, func(a, b Row) int { return cmp.Compare(a.Node, b.Node) })
	l.Unread = s.Unread
	return l
}

// row returns the fence of the node.
func (f Facts) row(fence *v1alpha1.NodeFence, now time.Time) Row {
	remaining := remainingOf(f.Pods, f.Attachments)
	facts := fenceFacts(fence, f.OnNode, remaining, now)
	d := fencing.Decide(facts, now)
	e := decisionOf(d)
	row := Row{Node: fence.Name, UID: string(fence.UID), Phase: string(phaseOf(fence)), Reason: e.Reason,
		AskedBy: askedBy(fence), Because: oneLine(fence.Spec.Reason), Since: fence.CreationTimestamp,
		WaitsFor: "not known: not all could be read"}
	if e.Reason == string(d.Reason) {
		row.WaitsFor = waitsFor(facts, d, now)
	}
	if last := lastAttempt(fence.Status); last != nil {
		row.Agent, row.Attempts = last.Agent, int(last.Number)
	}
	if p := fence.Status.Proof; p != nil {
		row.Agent, row.Covers = p.Agent, string(p.Covers)
		for _, of := range p.Volumes {
			if !slices.Contains(row.Drivers, of.Driver) {
				row.Drivers = append(row.Drivers, of.Driver)
			}
		}
	}
	if remaining.OK() {
		row.Held, row.Detaching = &remaining.Value.Leaving.Pods, &remaining.Value.Leaving.VolumeAttachments
	}
	return row
}
