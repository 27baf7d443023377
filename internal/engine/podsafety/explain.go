package podsafety

import (
	"fmt"
	"strings"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Explanation describes the next step for a pod, and its reason.
type Explanation struct {
	Decision Decision
	// Text is for people: the sentence of the reason, and the details of this pod.
	Text string
	// Waits reports that the pod has the finalizer, is terminating, and is held back.
	Waits bool
	// Proven reports that there is evidence that no process of the pod runs.
	Proven bool
	// NodeDown reports that the node of the pod is not Ready, or does not exist.
	NodeDown bool
	// Missing lists, for a terminating and held pod, why each kind of evidence is missing.
	Missing []Missing
	// Risks are the risks of a confirmed force deletion, empty if evidence makes one safe.
	Risks []string
}

// Missing is one kind of evidence, and the reason why it does not count.
type Missing struct {
	Evidence Reason
	Text     string
}

// Explain returns the decision of [Decide] on these facts, with its explanation. It is a pure function; now is the time
// for judging the age of reads.
func Explain(f Facts, now time.Time) Explanation {
	d := Decide(f, now)
	// A read with such a reason is for evidence that is not complete.
	proven := Evidence(d.Reason) && d.Action.Kind() != session.Reads
	e := Explanation{Decision: d, Text: d.Reason.Sentence(), Proven: proven, NodeDown: f.nodeDown(),
		Waits: f.Pod.Held && f.Pod.Terminating && d.Action == Wait}
	if more := f.Detail(d.Reason); more != "" {
		e.Text += " " + more
	}
	if f.Pod.Held && f.Pod.Terminating && !proven {
		e.Missing = f.missing(now)
		e.Risks = f.risks()
	}
	return e
}

// nodeDown reports whether the node is known to be not Ready, or gone.
func (f Facts) nodeDown() bool {
	if f.NodeRead.Order > 0 {
		return f.Pod.Node != "" && (!f.Node.Found || f.Node.Ready != objects.ReadyTrue)
	}
	return f.NodeSeen == objects.NodeNotReady || f.NodeSeen == objects.NodeAbsent
}

func (f Facts) missing(now time.Time) []Missing {
	return []Missing{
		{ReasonFinished, f.whyNotFinished(now)},
		{ReasonNodeGone, f.whyNotGone()},
		{ReasonOutOfService, f.whyNotOutOfService()},
		{ReasonNodeFenced, f.whyNotFenced()},
		{ReasonConfirmed, f.whyNotConfirmed()},
	}
}

func (f Facts) whyNotFinished(now time.Time) string {
	pod := f.Pod
	switch {
	case pod.Finished() && f.hindered(now):
		return "A fence keeps the node from volumes, or may: nothing shows that the volumes of the pod are unmounted."
	case pod.Finished() && !pod.GraceZero:
		return "The kubelet has not removed the pod yet, which it does once the volumes are unmounted."
	case pod.Finished():
		if f.Sight.FinishedSince.IsZero() {
			return "Nothing shows that the volumes are unmounted; volume-guard waits for that for a while."
		}
		return fmt.Sprintf("Nothing shows that the volumes are unmounted; volume-guard waits for that for %s more.",
			max(f.unmountIn(now), 0).Round(time.Second))
	case !pod.Final:
		return "The phase of the pod is neither Succeeded nor Failed."
	case pod.Running:
		return "A container still has the state running."
	case pod.ObservedGeneration != 0 && pod.ObservedGeneration != pod.Generation:
		return "The kubelet has not seen the deletion: the condition ContainersReady has another observedGeneration than " +
			"the pod."
	case pod.Refused:
		return "The kubelet refused the pod. If volume-guard has watched pod and node from the start, it releases the pod " +
			"after the kubelet's next report of its Node."
	case !pod.Reported:
		return "A container has no status, or the kubelet does not find it (ContainerStatusUnknown)."
	}
	return "Nothing shows that it was the kubelet that reported the end of the pod."
}

func (f Facts) whyNotGone() string {
	switch {
	case f.NodeRead.Order == 0:
		return "The Node could not be read."
	case f.Node.Found:
		return "The Node exists."
	case f.Pod.Ending():
		return "The Node does not exist, but its kubelet was ending the pod: without a Node it is silent, whether it works " +
			"or not."
	case f.LeaseRead.Order == 0:
		return "The Lease of the node could not be read."
	}
	return fmt.Sprintf("The Node does not exist. Its kubelet has %s to show that it runs, by its Lease or by the end of "+
		"the pod.", f.Rules.leaseDuration())
}

func (f Facts) whyNotOutOfService() string {
	switch {
	case f.NodeRead.Order == 0:
		return "The Node could not be read."
	case !f.Node.Found:
		return "The Node does not exist."
	case f.Node.OutOfService:
		return "The Node has the taint node.kubernetes.io/out-of-service, and is not known to be down."
	case f.Node.OwnTaint:
		return "The taint node.kubernetes.io/out-of-service is from csi-reclaimer, for which the fence counts."
	}
	return "The Node does not have the taint node.kubernetes.io/out-of-service."
}

func (f Facts) whyNotFenced() string {
	switch {
	case f.FenceRead.Order == 0:
		return "The NodeFence could not be read."
	case !f.Fence.InForce:
		return "No fence of the node is in force."
	case f.NodeRead.Order == 0:
		return "The Node could not be read."
	case f.Fence.MayEndPod() && f.Node.MayRun():
		return "A fence of the node is in force, but its Node is not known to be down."
	case f.Fence.MayEndPod():
		return "A fence of the node is in force, but the boot ID of its Node is missing or differs from the fence's: the " +
			"node was powered on since, and may have started the pod again."
	case f.Fence.Coverage == v1alpha1.CoversVolumes:
		return "The fence keeps the node from volumes; the processes run on."
	case f.Fence.Coverage == v1alpha1.CoversReboot:
		return "The node was rebooted before the pod was deleted, so that its kubelet may have started it again."
	}
	return "The coverage of the fence is not known."
}

func (f Facts) whyNotConfirmed() string {
	switch f.Pod.Confirmation {
	case objects.ConfirmedThis:
		return "The pod was deleted with a grace period, which has not passed."
	case objects.ConfirmedOther:
		return "The annotation " + objects.ConfirmAnnotation + " does not have the UID of this pod."
	default:
		return "No force deletion was confirmed."
	}
}

func (f Facts) risks() []string {
	var risks []string
	switch node := f.Pod.Node; {
	case f.Pod.Finished():
		risks = append(risks, "The processes have ended, but the volumes may still be mounted on node "+node+".")
	case f.NodeRead.Order == 0:
		risks = append(risks, "The state of node "+node+" is not known; the processes may run there.")
	case !f.Node.Found:
		risks = append(risks, "Node "+node+" was deleted; if its machine runs, the processes may run there.")
	case f.Node.Ready == objects.ReadyTrue:
		risks = append(risks, "Node "+node+" is Ready: the processes most likely run, and its kubelet ends them.")
	default:
		risks = append(risks, "Node "+node+" is not Ready: nothing shows whether the processes run there.")
	}
	if claims := strings.Join(f.Pod.Claims, ", "); claims != "" {
		risks = append(risks, "A replacement can write to the volumes while the processes do, which destroys data: "+
			claims+".")
	}
	return risks
}
