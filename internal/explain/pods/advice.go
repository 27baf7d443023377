package pods

import (
	"fmt"
	"strings"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
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
		s.AddWait("%s", unheldWaitsFor(explain.Pod{Pod: pod.Pod}, e.NodeDown))
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
	if held && f.Guards.OK() && !explain.Led(f.Guards.Value, f.Now) {
		s.Advise("Start volume-guard: without it, held pods stay, even with evidence")
	}
	switch enough := adviseByReason(s, pod, e.Decision.Reason, of); {
	case enough, podsafety.Evidence(e.Decision.Reason):
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
	if !pod.Ending() {
		s.Advise("If its machine does not exist any more: kubectl delete node %s", node)
	}
	adviseForce(s, of)
}

func adviseForce(s *explain.Explanation, of string) {
	s.Advise("Only if you know that its processes cannot run, and nothing else helps: "+
		"kubectl reclaim delete-pod %s --force", of)
}
