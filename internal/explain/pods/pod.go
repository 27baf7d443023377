package pods

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Explain is a pure function that explains a pod.
func Explain(f Facts) explain.Explanation {
	pod, hold := explain.PodOf(f.Pod), f.hold()
	e := podsafety.Explain(hold, f.Now)
	s := explain.Explanation{Object: "pod " + pod.Namespace + "/" + pod.Name}
	d := f.decision(e)
	s.Decision = &d
	addPod(&s, f, pod)
	addNode(&s, f, pod)
	addClaims(&s, f, pod)
	s.AddGuards(f.Guards, f.Now)
	s.Finalizers = f.finalizers()
	for _, m := range e.Missing {
		s.Missing = append(s.Missing, explain.Missing{Evidence: string(m.Evidence), Text: m.Text})
	}
	s.Risks = f.risks(pod, hold)
	addWaits(&s, pod, hold, e)
	addAdvice(&s, f, pod, e)
	s.AddEvents(f.Events, f.Now)
	s.Headline = f.headline(pod, e, d)
	return s
}

// undecided is the text for a decision whose next step is a read that failed here.
const undecided = "A fact that the release depends on could not be read here, so whether the pod is released now is " +
	"not known."

func (f Facts) decision(e podsafety.Explanation) explain.Decision {
	d := explain.Decision{By: explain.VolumeGuard, Action: e.Decision.Action.String(), Reason: string(e.Decision.Reason),
		Text: e.Text}
	switch {
	case e.Decision.Action.Kind() == session.Reads:
		d.Action, d.Reason, d.Text = "", string(podsafety.ReasonAPIReadFailed), undecided
	case e.Decision.Action != podsafety.Wait && explain.GuardIsAway(f.Guards, f.Now):
		d.Text += " This needs volume-guard to run: " + explain.NoGuard + "."
	}
	return d
}

func (f Facts) headline(pod explain.Pod, e podsafety.Explanation, d explain.Decision) string {
	what := "Pod " + pod.Namespace + "/" + pod.Name
	why := fmt.Sprintf("(%s): %s", d.Reason, d.Text)
	switch {
	case pod.Terminating && !pod.Held:
		what += " has been terminating for " + explain.Age(f.Now, pod.TerminatingSince)
		if words := unheldWaitsFor(pod, e.NodeDown); words != "" {
			what += ", and waits for " + words
		}
		return what + ". volume-guard does not hold it."
	case pod.Terminating && e.Waits:
		return fmt.Sprintf("%s has been terminating for %s and waits %s", what, explain.Age(f.Now, pod.TerminatingSince), why)
	case pod.Terminating:
		return fmt.Sprintf("%s has been terminating for %s %s", what, explain.Age(f.Now, pod.TerminatingSince), why)
	}
	what += " is " + strings.ToLower(phase(pod))
	if e.NodeDown {
		what += ", and its node " + pod.Node + " is down"
	}
	return what + " " + why
}

func phase(pod explain.Pod) string { return string(cmp.Or(pod.Phase, v1.PodPending)) }

func addPod(s *explain.Explanation, f Facts, pod explain.Pod) {
	state := phase(pod)
	if pod.Terminating {
		state += ", terminating for " + explain.Age(f.Now, pod.TerminatingSince)
		switch {
		case pod.GraceZero:
			state += ", without a grace period"
		case f.Now.Before(pod.GraceEnds):
			state += fmt.Sprintf(", grace period ends in %s", explain.Age(pod.GraceEnds, f.Now))
		default:
			state += fmt.Sprintf(", grace period ended %s ago", explain.Age(f.Now, pod.GraceEnds))
		}
	}
	s.AddFact("Phase", "%s", state)
	if owner := metav1.GetControllerOf(f.Pod); owner != nil {
		s.AddFact("Owner", "%s %s", owner.Kind, owner.Name)
	}
	switch running := runningContainers(f.Pod.Status); {
	case len(running) > 0:
		s.AddFact("Containers", "%s: running, as the kubelet reported last", strings.Join(running, ", "))
	case len(f.Pod.Status.ContainerStatuses) == 0:
		s.AddFact("Containers", "no kubelet has reported on them")
	default:
		s.AddFact("Containers", "none was running when the kubelet reported last")
	}
	if pod.Terminating && pod.ObservedGeneration != 0 {
		text := "has seen the deletion"
		if pod.ObservedGeneration < pod.Generation {
			text = "has not reported since the deletion"
		}
		s.AddFact("Kubelet", "%s (generation %d of %d)", text, pod.ObservedGeneration, pod.Generation)
	}
	addMode(s, f, pod)
}

func addMode(s *explain.Explanation, f Facts, pod explain.Pod) {
	explain.NoteUnread(s, f.Namespace, "Namespace "+pod.Namespace, "whether it asks for pod safety")
	if f.Namespace.OK() {
		mode := map[podsafety.Mode]string{podsafety.ModeEnforce: "on: pods with a claim or of a StatefulSet are held",
			podsafety.ModeWarn: "warnings only: no pod is held"}[f.mode()]
		if mode == "" {
			mode = "off in this namespace"
		}
		s.AddFact("Pod safety", "%s", mode)
	}
	switch pod.Confirmation {
	case objects.ConfirmedThis:
		s.AddFact("Confirmed", "by the annotation %s: its processes cannot run", objects.ConfirmAnnotation)
	case objects.ConfirmedOther:
		s.AddFact("Confirmed", "no: the annotation %s has the UID of another pod", objects.ConfirmAnnotation)
	case objects.NotConfirmed:
	}
}

// runningContainers returns the names of the containers whose last reported state is running.
func runningContainers(status v1.PodStatus) (running []string) {
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses,
		status.EphemeralContainerStatuses) {
		if c.State.Running != nil {
			running = append(running, c.Name)
		}
	}
	return running
}

func addNode(s *explain.Explanation, f Facts, pod explain.Pod) {
	if pod.Node == "" {
		s.AddFact("Node", "none: the pod was never bound to a node")
		return
	}
	AddNode(s, pod.Node, f.Node, f.Lease, f.Now)
	addFence(s, f, pod)
}

// AddNode reports the state of a node, its taints, and the age of its kubelet's last Lease renewal.
func AddNode(s *explain.Explanation, name string, read explain.Read[*v1.Node],
	heartbeat explain.Read[*coordinationv1.Lease], now time.Time) {
	explain.NoteUnread(s, read, "Node "+name, "whether it is Ready, tainted or gone")
	explain.NoteUnread(s, heartbeat, "Lease "+v1.NamespaceNodeLease+"/"+name, "whether its kubelet is alive")
	s.AddFact("Node", "%s, %s", name, nodeState(read, now))
	if node := read.Value; node != nil {
		var taints []string
		for _, t := range node.Spec.Taints {
			if strings.HasPrefix(t.Key, "node.kubernetes.io/") || objects.IsOwnTaint(t) {
				taints = append(taints, t.ToString())
			}
		}
		if len(taints) > 0 {
			s.AddFact("Taints", "%s", strings.Join(taints, ", "))
		}
	}
	switch lease := heartbeat.Value; {
	case !heartbeat.OK():
	case lease == nil:
		s.AddFact("Heartbeat", "no Lease %s/%s", v1.NamespaceNodeLease, name)
	case lease.Spec.RenewTime == nil:
		s.AddFact("Heartbeat", "never (Lease %s/%s)", v1.NamespaceNodeLease, name)
	default:
		s.AddFact("Heartbeat", "%s ago by the node's clock (Lease %s/%s)",
			explain.Age(now, lease.Spec.RenewTime.Time), v1.NamespaceNodeLease, name)
	}
}

// addFence reports the progress of the node's fence, which is evidence while it is in force.
func addFence(s *explain.Explanation, f Facts, pod explain.Pod) {
	explain.NoteUnread(s, f.Fence, "NodeFence "+pod.Node, "whether the node is fenced")
	if fence := f.Fence.Value; fence != nil && !explain.FenceEnded(fence) {
		s.AddFact("Fence", "%s (kubectl reclaim explain node/%s)", explain.FenceWords(fence, f.Now), pod.Node)
	}
}

// nodeState describes a node's state, and since when it is not Ready.
func nodeState(read explain.Read[*v1.Node], now time.Time) string {
	switch {
	case !read.OK():
		return "not readable here"
	case read.Value == nil:
		return "gone: no Node has this name"
	}
	ready := explain.ReadyOf(read.Value)
	switch {
	case ready == nil:
		return "NotReady: no kubelet has reported"
	case ready.Status == v1.ConditionTrue:
		return "Ready"
	}
	text := "NotReady"
	if since := ready.LastTransitionTime; !since.IsZero() {
		text += " for " + explain.Age(now, since.Time)
	}
	text += fmt.Sprintf(" (Ready is %s", ready.Status)
	if ready.Message != "" {
		text += ": " + strings.TrimSuffix(ready.Message, ".")
	}
	return text + ")"
}

func (f Facts) finalizers() []explain.Finalizer {
	all := make([]explain.Finalizer, 0, len(f.Pod.Finalizers))
	for _, name := range f.Pod.Finalizers {
		own := explain.Finalizer{Name: name, AddedBy: explain.AddedBy(f.Pod, name)}
		switch name {
		case objects.RunningFinalizer:
			own.Owner, own.When = explain.VolumeGuard, "when there is evidence that the processes of the pod have ended"
		case jobTracking:
			own.Owner, own.When = "kube-controller-manager (job controller)", "when it has counted the pod"
		case metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents:
			own.Owner = "kube-controller-manager (garbage collector)"
			own.When = "when the objects that the pod owns are deleted or orphaned"
		}
		all = append(all, own)
	}
	return all
}

// jobTracking is the finalizer of the job controller (batch/v1, JobTrackingFinalizer).
const jobTracking = "batch.kubernetes.io/job-tracking"
