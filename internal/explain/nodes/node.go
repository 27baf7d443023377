package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Explain is a pure function that explains a node: the objects that it holds up, its fence, and the actions open to a
// person.
func Explain(f Facts) explain.Explanation {
	s := explain.Explanation{Object: "node " + f.Name}
	addNode(&s, f)
	addPods(&s, f)
	addVolumes(&s, f)
	d := addFence(&s, f)
	addPolicies(&s, f)
	s.AddGuards(f.Guards, f.Now)
	f.addMissing(&s)
	addAdvice(&s, f, d)
	s.AddEvents(f.Events, f.Now)
	s.Headline = f.headline(s.Decision)
	return s
}

func (f Facts) headline(d *explain.Decision) string {
	text := "Node " + f.Name + " " + f.state()
	if waits := f.standing(); waits != "" {
		text += ", and " + waits
	}
	text += "."
	switch fence := f.Fence.Value; {
	case explain.NoFencing(f.Fence):
		return text + " No node is fenced in this cluster."
	case !f.Fence.OK():
		return text + " Whether it has a fence is not known."
	case fence == nil:
		return text + " It has no fence."
	default:
		return text + fmt.Sprintf(" Its fence is %s (%s): %s", phaseOf(fence), d.Reason, d.Text)
	}
}

// state returns the phrase after the node's name, such as "is Ready".
func (f Facts) state() string {
	node := f.Node.Value
	switch {
	case !f.Node.OK():
		return "could not be read"
	case node == nil:
		return "does not exist"
	case explain.IsReady(node):
		return "is Ready"
	}
	since := explain.DownSince(node)
	if since.IsZero() {
		return "is NotReady"
	}
	return "has been NotReady for " + explain.Age(f.Now, since)
}

func (f Facts) standing() string {
	if !f.Pods.OK() {
		return "which pods are on it could not be read"
	}
	held := f.count(isHeld)
	waiting := f.count(func(p explain.Pod) bool { return holdsClaims(p) && !isHeld(p) })
	down := !explain.IsReady(f.Node.Value)
	more := fmt.Sprintf("%s with claims %s on it", plural.Count(waiting, "pod"), plural.Verb(waiting, "is", "are"))
	switch {
	case held > 0 && (!down || waiting == 0):
		return plural.Count(held, "held pod") + " " + plural.Verb(held, "waits", "wait") + " for it"
	case held > 0:
		return plural.Count(held, "held pod") + " " + plural.Verb(held, "waits", "wait") + " for it; " + more
	case down && waiting > 0:
		return more
	}
	return "nothing waits for it"
}

func phaseOf(o *v1alpha1.NodeFence) v1alpha1.Phase {
	return cmp.Or(o.Status.Phase, v1alpha1.PhaseRequested)
}

func addNode(s *explain.Explanation, f Facts) {
	pods.AddNode(s, f.Name, f.Node, f.Lease, f.Now)
	node := f.Node.Value
	if node == nil {
		return
	}
	if zone := node.Labels[v1.LabelTopologyZone]; zone != "" {
		s.AddFact("Zone", "%s", zone)
	}
	if controlPlane(node) {
		s.AddFact("Role", "control plane")
	}
	if boot := node.Status.NodeInfo.BootID; boot != "" {
		s.AddFact("Boot ID", "%s", boot)
	}
}

// maxRows limits the number of pods, and of volumes, that are listed one by one.
const maxRows = 20

// addPods reports the pods that the node holds up, or would hold up if it were lost.
func addPods(s *explain.Explanation, f Facts) {
	explain.NoteUnread(s, f.Pods, "Pods", "which are on the node, and which wait for it")
	if !f.Pods.OK() {
		return
	}
	rows := f.rows()
	for i, row := range rows {
		if i == maxRows {
			s.AddFact("Pod", "and %d more with claims", len(rows)-i)
			break
		}
		s.AddFact("Pod", "%s", rowWords(f, row))
	}
	others := f.count(func(p explain.Pod) bool { return !p.Final && !isHeld(p) && !holdsClaims(p) })
	if others > 0 {
		s.AddFact("Other pods", "%d without claims", others)
	}
}

// rows returns the pods that the node holds up, terminating pods that are held first.
func (f Facts) rows() (rows []pods.Row) {
	for _, pod := range f.Pods.Value {
		if isHeld(pod) || holdsClaims(pod) {
			rows = append(rows, pods.RowOf(pod, f.OnNode, f.Now))
		}
	}
	slices.SortStableFunc(rows, func(a, b pods.Row) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	waits := func(r pods.Row) bool { return r.Held && r.TerminatingSince != nil }
	return append(explain.Filter(rows, waits), slices.DeleteFunc(rows, waits)...)
}

// count returns the number of pods that fit.
func (f Facts) count(fits func(explain.Pod) bool) int { return len(explain.Filter(f.Pods.Value, fits)) }

func rowWords(f Facts, row pods.Row) string {
	text := row.Namespace + "/" + row.Name + ", " + row.Status
	if row.TerminatingSince != nil {
		text += " for " + explain.Age(f.Now, row.TerminatingSince.Time)
	}
	if row.Held {
		text += ", held by volume-guard (" + row.Reason + ")"
	}
	if len(row.Claims) > 0 {
		text += ", claim " + strings.Join(row.Claims, ", ")
	}
	return text
}

func addVolumes(s *explain.Explanation, f Facts) {
	explain.NoteUnread(s, f.Attachments, "VolumeAttachments", "which volumes are attached to the node")
	for i := range f.Attachments.Value {
		if i == maxRows {
			s.AddFact("Volume", "and %d more", len(f.Attachments.Value)-i)
			return
		}
		s.AddFact("Volume", "%s", attachmentWords(f, &f.Attachments.Value[i]))
	}
}

func attachmentWords(f Facts, a *storagev1.VolumeAttachment) string {
	what := "an inline volume"
	if pv := a.Spec.Source.PersistentVolumeName; pv != nil {
		what = "PV " + *pv
	}
	state := "not attached yet"
	switch {
	case a.DeletionTimestamp != nil:
		state = "detaching for " + explain.Age(f.Now, a.DeletionTimestamp.Time)
	case a.Status.Attached:
		state = "attached"
	}
	return fmt.Sprintf("%s, driver %s, %s (VolumeAttachment %s)", what, a.Spec.Attacher, state, a.Name)
}

func addFence(s *explain.Explanation, f Facts) fencing.Decision {
	if explain.NoFencing(f.Fence) {
		s.AddFact("Fence", "none: %v", f.Fence.Err)
		return fencing.Decision{}
	}
	explain.NoteUnread(s, f.Fence, "NodeFence "+f.Name, "whether the node is fenced")
	fence := f.Fence.Value
	if fence == nil {
		if f.Fence.OK() {
			s.AddFact("Fence", "none")
		}
		return fencing.Decision{}
	}
	s.AddFact("Fence", "%s", explain.FenceWords(fence, f.Now))
	s.AddFact("Asked for", "%s ago by %s: %q", explain.Age(f.Now, fence.CreationTimestamp.Time), askedBy(fence),
		oneLine(fence.Spec.Reason))
	switch {
	case fence.Spec.Confirmation == "":
	case fencing.FenceOf(fence).OwnWord():
		s.AddFact("Confirmed", "%q", oneLine(fence.Spec.Confirmation))
	default:
		s.AddFact("Confirmed", "no: %q was copied from another NodeFence, with UID %s",
			oneLine(fence.Spec.Confirmation), fence.Spec.ConfirmationUID)
	}
	s.AddFact("Ends", "%s", endsWords(fence))
	addNewPods(s, f.Node.Value, fencing.Evidence(fencing.FenceOf(fence), ""))
	for i := range fence.Spec.Agents {
		if agent := &fence.Spec.Agents[i]; !tried(fence, agent.Name) {
			s.AddFact("Agent", "%s (%s), not tried yet", agent.Name, agentWords(agent))
		}
	}
	for _, attempt := range fence.Status.Attempts {
		s.AddFact("Attempt", "%s", attemptWords(fence.Spec, attempt, f.Now))
	}
	facts := f.fenceFacts(fence)
	d := fencing.Decide(facts, f.Now)
	decision := decisionOf(d)
	s.Decision = &decision
	if waits := waitsFor(facts, d, f.Now); waits != "" && decision.Reason == string(d.Reason) {
		s.AddWait("%s", waits)
	}
	return d
}

// addNewPods reports for how long the node gets no new pods. The taint may also be from an earlier fence, or about to
// be removed.
func addNewPods(s *explain.Explanation, node *v1.Node, fence objects.Fence) {
	if node == nil || !objects.NodeOf(node).VolumesFenced {
		return
	}
	booted := node.Status.NodeInfo.BootID != "" && node.Status.NodeInfo.BootID != fence.BootID
	if fence.InForce && fence.Coverage == v1alpha1.CoversVolumes && !booted {
		s.AddFact("New pods", "none until the node has booted again, because they could not mount the fenced volumes "+
			"(taint %s)", objects.VolumesFencedTaint)
		return
	}
	s.AddFact("New pods", "none until volume-guard removes the taint %s", objects.VolumesFencedTaint)
}

func endsWords(fence *v1alpha1.NodeFence) string {
	switch {
	case fence.Spec.Unfence == v1alpha1.UnfenceNow:
		return "now: spec.unfence asks for it"
	case fence.Spec.Unfence == v1alpha1.UnfenceAbandon:
		return "now, and the agents undo nothing: spec.unfence asks for it"
	case fencing.FenceOf(fence).Ending():
		return "now: the NodeFence is being deleted"
	case fence.DeletionTimestamp != nil:
		return "when the node has booted again, and nothing from before needs it: the NodeFence is being deleted"
	case fence.Spec.Unfence == v1alpha1.UnfenceWhenReleased:
		return "the agents undo it when nothing from before remains on the node, and it ends when the node has booted again"
	}
	return "when the node has booted again, and nothing from before needs it"
}

func tried(fence *v1alpha1.NodeFence, agent string) bool {
	return slices.ContainsFunc(fence.Status.Attempts, func(a v1alpha1.Attempt) bool { return a.Agent == agent })
}

// addMissing adds the node's part of the evidence that the held pods still lack.
func (f Facts) addMissing(s *explain.Explanation) {
	for _, pod := range f.Pods.Value {
		if !isHeld(pod) {
			continue
		}
		for _, m := range pods.Judge(pod, f.OnNode, f.Now).Missing {
			missing := explain.Missing{Evidence: string(m.Evidence), Text: m.Text}
			ofNode := slices.Contains([]podsafety.Reason{podsafety.ReasonNodeGone, podsafety.ReasonOutOfService,
				podsafety.ReasonNodeFenced}, m.Evidence)
			if ofNode && !slices.Contains(s.Missing, missing) {
				s.Missing = append(s.Missing, missing)
			}
		}
	}
}

func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", " ") }
