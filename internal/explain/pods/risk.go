package pods

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

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

func (f Facts) attachmentsOf(pv string) (all []storagev1.VolumeAttachment) {
	for _, a := range f.Attachments.Value {
		if name := a.Spec.Source.PersistentVolumeName; name != nil && *name == pv {
			all = append(all, a)
		}
	}
	return all
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
	if len(attachments) == 0 && !shared(claim) {
		risks = append(risks, fmt.Sprintf("No VolumeAttachment keeps another node from the volume of claim %s.", name))
	}
	return risks
}

// shared reports whether an access mode of the claim allows several nodes.
func shared(claim *v1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(slices.Concat(claim.Status.AccessModes, claim.Spec.AccessModes),
		func(m v1.PersistentVolumeAccessMode) bool { return m == v1.ReadWriteMany || m == v1.ReadOnlyMany })
}
