package pods

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

func addWaits(s *explain.Explanation, pod explain.Pod, hold podsafety.Facts, e podsafety.Explanation) {
	if !pod.Terminating {
		return
	}
	if pod.Held {
		if words := heldWaitsFor(hold, e.Decision); words != "" {
			s.AddWait("%s", words)
		}
	} else if !pod.GraceZero {
		s.AddWait("%s", unheldWaitsFor(pod, e.NodeDown))
	}
	for _, finalizer := range pod.Finalizers {
		s.AddWait("finalizer %s", finalizer)
	}
}

// heldWaitsFor returns the phrase after "waits for" of a terminating pod that is held.
func heldWaitsFor(f podsafety.Facts, d podsafety.Decision) string {
	if d.Action.Kind() == session.Reads {
		return "not known: not all could be read"
	}
	node := "node " + f.Pod.Node
	switch d.Reason {
	case podsafety.ReasonProcessesMayRun, podsafety.ReasonEndOverdue:
		return "its kubelet on " + node + " to end its processes"
	case podsafety.ReasonEndNotReported:
		return "its kubelet on " + node + " to confirm the end of its processes"
	case podsafety.ReasonWaitsForUnmount, podsafety.ReasonUnmountOverdue, podsafety.ReasonVolumesFenced:
		return "its volumes to be unmounted on " + node
	case podsafety.ReasonNodeUnreachable:
		return node + " to return, or evidence that its processes cannot run"
	case podsafety.ReasonNodeRecentlyGone:
		return fmt.Sprintf("no sign of the kubelet of %s, which was deleted, for %s", node, podsafety.LeaseDuration)
	case podsafety.ReasonNodeGoneDuringEnd:
		return "its kubelet on " + node + ", which was deleted, to report its end"
	case podsafety.ReasonOutOfServiceNodeReady:
		return node + " to be shut down, or its taint out-of-service to be removed"
	case podsafety.ReasonConfirmationMismatch:
		return "evidence: the confirmation is for another pod"
	case podsafety.ReasonGracePeriodRunning:
		return "the end of its grace period, " + f.Pod.GraceEnds.UTC().Format("15:04:05Z")
	default:
	}
	if d.Action != podsafety.Wait {
		return "volume-guard to release it"
	}
	return ""
}

// unheldWaitsFor is heldWaitsFor for a pod that is not held. It is empty if nothing is known to keep the pod.
func unheldWaitsFor(pod explain.Pod, nodeDown bool) string {
	switch {
	case len(pod.Finalizers) > 0 && pod.GraceZero:
		return "finalizer " + strings.Join(pod.Finalizers, ", ")
	case pod.Node == "" || pod.GraceZero:
		return ""
	case nodeDown:
		return "node " + pod.Node + " to return"
	}
	return "its kubelet on node " + pod.Node + " to end its processes"
}

// addAdvice adds the actions open to a person. It does not repeat the reason's sentence.
func addAdvice(s *explain.Explanation, f Facts, pod explain.Pod, e podsafety.Explanation) {
	of := fmt.Sprintf("%s -n %s", pod.Name, pod.Namespace)
	held := pod.Held && pod.Terminating
	if held && explain.GuardIsAway(f.Guards, f.Now) {
		s.Advise("Start volume-guard: without it, held pods stay, even with evidence")
	}
	switch enough := adviseByReason(s, pod, e.Decision.Reason, of); {
	case enough, e.Proven:
	case e.NodeDown:
		adviseDown(s, f, pod, of)
	case held && e.Decision.Action == podsafety.Wait && e.Decision.After == 0:
		adviseForce(s, of)
	}
	for _, finalizer := range pod.Finalizers {
		if pod.Terminating && finalizer != jobTracking {
			s.Advise("Find out who removes finalizer %s. volume-guard does not", finalizer)
		}
	}
}

// adviseByReason adds the advice that follows from the reason alone, and reports whether that is enough.
func adviseByReason(s *explain.Explanation, pod explain.Pod, reason podsafety.Reason, of string) (enough bool) {
	switch reason {
	case podsafety.ReasonProcessesMayRun:
		s.Advise("Wait until the kubelet has ended the processes")
		return true
	case podsafety.ReasonEndOverdue:
		s.Advise("Look at the log of the kubelet on node %s. A process that waits for storage does not end", pod.Node)
		return true
	case podsafety.ReasonUnmountOverdue:
		s.Advise("Look at the logs of the kubelet and of the driver's plugin on node %s", pod.Node)
	case podsafety.ReasonVolumesFenced:
		s.Advise("Cordon node %s, and reboot it, which ends the fence", pod.Node)
		s.Advise("If the fence goes on after a reboot: kubectl reclaim unfence %s", pod.Node)
	case podsafety.ReasonEndNotReported:
		s.Advise("If it takes long, look at status.reason of the pod and at the log of the kubelet on node %s", pod.Node)
	case podsafety.ReasonOutOfServiceNodeReady:
		s.Advise("If the machine runs: kubectl taint nodes %s %s-", pod.Node, v1.TaintNodeOutOfService)
		s.Advise("To remove the machine: shut it down. The taint counts once the node is not Ready")
		return true
	case podsafety.ReasonConfirmationMismatch:
		s.Advise("To remove the annotation: kubectl annotate pod %s %s-", of, objects.ConfirmAnnotation)
	case podsafety.ReasonGracePeriodRunning:
		s.Advise("To end it now: kubectl delete pod %s --force", of)
		s.Advise("To take the confirmation back while it waits: kubectl annotate pod %s %s-", of, objects.ConfirmAnnotation)
		return true
	default:
	}
	return false
}

// adviseDown covers a node that is down, the safest action first.
func adviseDown(s *explain.Explanation, f Facts, pod explain.Pod, of string) {
	node := pod.Node
	if f.Node.OK() && f.Node.Value == nil && pod.Ending() {
		s.Advise("If the machine still runs, restart its kubelet: it creates the Node again, and ends the pod")
		adviseForce(s, of)
		return
	}
	if f.Node.OK() && f.Node.Value == nil {
		s.Advise("Wait: the pod is released when nothing has been heard of the kubelet for %s", podsafety.LeaseDuration)
		s.Advise("If the machine still runs, bring its kubelet back: it creates the Node again, and ends the pod")
		return
	}
	s.Advise("Bring node %s back: its kubelet ends the pods that were deleted, and work continues by itself", node)
	switch fence := f.Fence.Value; {
	case fence != nil && !explain.FenceEnded(fence):
		s.Advise("See why its fence waits: kubectl reclaim explain node/%s", node)
	case f.Fence.OK():
		s.Advise("See who can fence it, so that it is proven that nothing runs there: kubectl reclaim explain node/%s", node)
	}
	s.Advise("If its machine is off, and stays off until you remove the taint: kubectl taint nodes %s "+
		"%s=nodeshutdown:NoExecute", node, v1.TaintNodeOutOfService)
	// The reads of one pod do not show whether another held pod is ending there, for which the Node has to stay.
	s.Advise("If its machine does not exist any more, see whether its Node may be deleted: "+
		"kubectl reclaim explain node/%s", node)
	adviseForce(s, of)
}

func adviseForce(s *explain.Explanation, of string) {
	s.Advise("Only if you know that its processes cannot run, and nothing else helps: "+
		"kubectl reclaim delete-pod %s --force", of)
}

// addClaims reports the pod's claims: their access modes, locks and attachments.
func addClaims(s *explain.Explanation, f Facts, pod explain.Pod) {
	for _, name := range names(pod.Claims) {
		explain.NoteUnread(s, f.Claims[name], "Claim "+name, "which volume it has, and how that may be used")
		s.AddFact("Claim", "%s", f.claimState(name)+f.lockState(pod, name))
	}
	if len(pod.Claims) > 0 {
		explain.NoteUnread(s, f.Pods, "Pods", "which other pods use the claims")
		explain.NoteUnread(s, f.Attachments, "VolumeAttachments", "where the volumes are attached")
	}
}

func (f Facts) claimState(name string) string {
	read := f.Claims[name]
	switch {
	case !read.OK():
		return name + ", not readable here"
	case read.Value == nil:
		return name + ", gone"
	}
	claim := read.Value
	text := name
	if modes := accessModes(claim); len(modes) > 0 {
		text += " (" + strings.Join(modes, ", ") + ")"
	}
	if claim.DeletionTimestamp != nil {
		text += ", terminating"
	}
	pv := claim.Spec.VolumeName
	if pv == "" {
		return text + ", not bound"
	}
	text += ", PV " + pv
	if !f.Attachments.OK() {
		return text
	}
	var nodes []string
	for _, a := range f.attachmentsOf(pv) {
		nodes = append(nodes, a.Spec.NodeName)
	}
	if len(nodes) == 0 {
		return text + ", no VolumeAttachment"
	}
	return text + ", attached to node " + strings.Join(nodes, ", ")
}

// lockState describes the holder of a claim's lock, empty if the claim has no lock or is unknown.
func (f Facts) lockState(pod explain.Pod, claim string) string {
	read := f.Claims[claim]
	if read.Value == nil {
		return ""
	}
	switch c := singlenode.ClaimOf(read.Value); {
	case !c.Locked:
		return ""
	case c.Lock.UID == pod.UID:
		return ", locked by this pod"
	case c.Lock.Name == "":
		return ", with a lock that names no pod"
	default:
		return ", locked by pod " + c.Lock.Name
	}
}

func accessModes(claim *v1.PersistentVolumeClaim) (modes []string) {
	all := claim.Status.AccessModes
	if len(all) == 0 {
		all = claim.Spec.AccessModes
	}
	for _, mode := range all {
		modes = append(modes, string(mode))
	}
	return modes
}

func (f Facts) attachmentsOf(pv string) []storagev1.VolumeAttachment {
	return explain.Filter(f.Attachments.Value, func(a storagev1.VolumeAttachment) bool {
		return ptr.Deref(a.Spec.Source.PersistentVolumeName, "") == pv
	})
}

// risks returns the risks of a force deletion of the pod, empty if there is evidence that its processes have ended.
func (f Facts) risks(pod explain.Pod, hold podsafety.Facts) []string {
	risks := podsafety.Explain(forced(hold, f.Now), f.Now).Risks
	if len(risks) == 0 {
		return nil
	}
	if owner := metav1.GetControllerOf(f.Pod); owner != nil && owner.Kind == "StatefulSet" {
		risks = append(risks, fmt.Sprintf("StatefulSet %s creates a pod of the same name as soon as this one is gone.",
			owner.Name))
	}
	for _, claim := range names(pod.Claims) {
		risks = append(risks, f.claimRisks(pod, claim)...)
	}
	return risks
}

// claimRisks returns the other pods and nodes that may write to the volume of a claim.
func (f Facts) claimRisks(pod explain.Pod, name string) (risks []string) {
	for _, other := range f.Pods.Value {
		if other.UID == pod.UID || !uses(other, name) {
			continue
		}
		where := "waits for a node"
		switch {
		case other.Gated:
			where = "may be scheduled once this pod is gone"
		case other.Node != "":
			where = "is on node " + other.Node
		}
		risks = append(risks, fmt.Sprintf("Pod %s uses claim %s too, and %s.", other.Name, name, where))
	}
	claim := f.Claims[name].Value
	if claim == nil || claim.Spec.VolumeName == "" || !f.Attachments.OK() {
		return risks
	}
	attachments := f.attachmentsOf(claim.Spec.VolumeName)
	for _, a := range attachments {
		if a.Spec.NodeName != pod.Node {
			risks = append(risks, fmt.Sprintf("The volume of claim %s is attached to node %s too (VolumeAttachment %s).", name,
				a.Spec.NodeName, a.Name))
		}
	}
	if len(attachments) == 0 && !objects.Shared(slices.Concat(claim.Status.AccessModes, claim.Spec.AccessModes)) {
		risks = append(risks, fmt.Sprintf("No VolumeAttachment keeps another node from the volume of claim %s.", name))
	}
	return risks
}
