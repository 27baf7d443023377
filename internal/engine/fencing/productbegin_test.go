package fencing

import (
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// mayCover returns the reason why a proof may not cover more volumes, or "".
func mayCover(f Facts, proof v1alpha1.Proof) string {
	n := len(proof.Volumes) - 1
	if n != 1 || proof.Volumes[n].Agent != storage2 || f.Fence.Terminating || f.Node.BootID == "boot2" {
		return "no agent has proven more, or the node is back"
	}
	proof.Volumes = proof.Volumes[:n]
	if !reflect.DeepEqual(proof, *f.Fence.Status.Proof) {
		return "another proof"
	}
	return mayProve(f)
}

func mayBegin(f Facts) string {
	if p := f.Fence.Status.Proof; p != nil && p.Covers == v1alpha1.CoversVolumes {
		if len(f.Fence.Spec.Agents) != 2 || !inForce(f) || openAttempt(f) || f.Fence.Terminating || !nodeRead(f) ||
			!f.Node.Found || f.Node.BootID == "boot2" || f.Fence.GivenUp || f.Fence.Spec.PolicyName != "" && !isAway(f) {
			return "no further agent is wanted"
		}
		return ""
	}
	switch {
	case endedBy(f) || openAttempt(f) || f.Fence.GivenUp && !word(f):
		return "no agent is wanted"
	case f.Fence.Status.Proof != nil && !mayGoOn(f):
		return "the proof is enough"
	case !fresh(f.NodeRead) || !knowsPods(f):
		return "the node was not read"
	case !f.Node.Found || f.Node.ControlPlane || f.Fence.Status.Proof == nil && (f.Node.Tainted() || holds(f, "Released")):
		return "the node is not to be fenced"
	case f.Fence.Spec.PolicyName != "" && !isAway(f):
		return "the node came back"
	}
	return ""
}

// knowsPods reports whether the pods were listed while fence and node were as they are, knowsVolumes whether the
// VolumeAttachments are known as well.
func knowsPods(f Facts) bool {
	want := Basis{Found: f.Node.Found, BootID: f.Node.BootID, OwnTaint: f.Node.OwnTaint}
	if f.Fence.Status.Proof != nil {
		want.Attempt = f.Fence.Status.Proof.Attempt
	}
	return f.Remaining.Read.Order > 0 && f.Remaining.Basis == want
}
func knowsVolumes(f Facts) bool {
	return knowsPods(f) && !f.Remaining.PodsOnly && f.Remaining.AttachmentsListed
}

// mayGoOn reports whether a rebooted node stays away while a pod is held that was not terminating before, or one is not
// held that an agent can release, or while a person confirms.
func mayGoOn(f Facts) bool {
	p := f.Fence.Status.Proof
	left := slices.ContainsFunc(f.Remaining.Held, func(pod HeldPod) bool { return pod.UID != "pod" }) ||
		f.Remaining.Unheld > 0 && slices.ContainsFunc(f.Fence.Spec.Agents, func(a v1alpha1.Agent) bool {
			return a.Name == power
		})
	return inForce(f) && p.Covers == v1alpha1.CoversReboot && !f.Fence.GivenUp && nodeRead(f) &&
		isAway(f) && !wasRebooted(f) &&
		knowsPods(f) && (word(f) || left && now().Sub(p.ProvenAt.Time) >= 10*time.Minute)
}

// isNoEvidence reports whether the proof, which is not of volumes, shows nothing about pods of a Ready node: any tenant
// can keep such a pod terminating.
func isNoEvidence(f Facts) bool {
	return f.Node.Ready == objects.ReadyTrue && f.Fence.Status.Proof.Covers != v1alpha1.CoversVolumes
}

// vacated reports whether the fence no longer counts against limits.
func vacated(all []metav1.Condition) bool {
	c := meta.FindStatusCondition(all, "Fenced")
	return c.Reason == "NodeDeleted"
}

// missed returns a necessary step that never happens, or "".
func missed(f Facts, d Decision) string {
	asleep := []Reason{ReasonNoFence, ReasonControlPlane, ReasonHealthCheckGaveUp}
	switch {
	case f.Fence.GivenUp && openAttempt(f) && f.Run.State == Running && d.Reason == ReasonFencing:
		return "an agent that was given up is not stopped"
	case mayTaint(f) == "":
		return "a node that is fenced is never released"
	case mayShun(f) == "":
		return "new pods may join a node without its volumes"
	case d.Reason == ReasonFenced && word(f) && !f.Node.OwnTaint && mayBegin(f) == "":
		return "a person's confirmation is ignored"
	case d.Reason == ReasonRemainsOnNode && mayLeave(f) == "":
		return "the fence waits for nothing, or for pods that wait for its end"
	case d.After == 0 && !slices.Contains(asleep, d.Reason):
		return "nothing ends the wait"
	}
	return ""
}
