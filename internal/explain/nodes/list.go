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

// ListFacts holds the results of all reads about NodeFences.
type ListFacts struct {
	// Now is the time at the end of the reads.
	Now    time.Time
	Fences []*v1alpha1.NodeFence
	// On holds the facts of the fences' nodes, by name. Only Pods, Node, Lease and Attachments are set.
	On map[string]Facts
}

type List struct {
	// Fences are sorted by node name.
	Fences []Row `json:"fences"`
	// Unread lists the reads that failed, and the questions they leave open.
	Unread []string `json:"unread,omitempty"`
}

type Row struct {
	Node string `json:"node"`
	UID  string `json:"uid"`
	// Phase is the fence's phase. Reason is the word of Events and metrics for volume-guard's next step.
	Phase  string `json:"phase"`
	Reason string `json:"reason"`
	// WaitsFor tells people the next condition that the fence waits for.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Agent is the agent whose proof counts, or else the agent of the last attempt. Attempts counts the attempts of all
	// agents.
	Agent    string `json:"agent,omitempty"`
	Attempts int    `json:"attempts"`
	// Covers is the coverage of the proof, empty without a proof. Drivers lists the CSI drivers for coverage Volumes.
	Covers  string   `json:"covers,omitempty"`
	Drivers []string `json:"drivers,omitempty"`
	// Held counts the node's terminating pods that are held, and Detaching its volumes that are to be detached. Both are
	// nil if they could not be read.
	Held      *int `json:"held,omitempty"`
	Detaching *int `json:"detaching,omitempty"`
	// AskedBy is the FencePolicy or the field manager that created the fence. Because is its spec.reason.
	AskedBy string      `json:"askedBy"`
	Because string      `json:"because"`
	Since   metav1.Time `json:"since"`
}

// ListOf is a pure function that lists the fences.
func ListOf(f ListFacts) List {
	l := List{Fences: []Row{}}
	var s explain.Explanation
	for _, fence := range f.Fences {
		on := f.On[fence.Name]
		l.Fences = append(l.Fences, on.row(fence, f.Now))
		explain.NoteUnread(&s, on.Node, "Node "+fence.Name, "why its fence waits")
		explain.NoteUnread(&s, on.Lease, "Lease of node "+fence.Name, "why its fence waits")
		explain.NoteUnread(&s, on.Pods, "Pods on node "+fence.Name, "which of them are held")
		explain.NoteUnread(&s, on.Attachments, "VolumeAttachments", "which volumes are attached to node "+fence.Name)
	}
	slices.SortFunc(l.Fences, func(a, b Row) int { return cmp.Compare(a.Node, b.Node) })
	l.Unread = s.Unread
	return l
}

func (f Facts) row(fence *v1alpha1.NodeFence, now time.Time) Row {
	f.Now = now
	facts := f.fenceFacts(fence)
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
	if remaining := f.remains(); remaining.OK() {
		row.Held, row.Detaching = &remaining.Value.Leaving.Pods, &remaining.Value.Leaving.VolumeAttachments
	}
	return row
}
