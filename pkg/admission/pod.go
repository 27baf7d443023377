package admission

import (
	"slices"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podFields are the fields of a pod that the webhooks use. An empty volume of a v1.Pod takes 90 times the memory of its
// text, and an empty container more.
type podFields struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		NodeName                      string                 `json:"nodeName"`
		SchedulingGates               []v1.PodSchedulingGate `json:"schedulingGates"`
		TerminationGracePeriodSeconds *int64                 `json:"terminationGracePeriodSeconds"`
		Volumes                       []claimVolume          `json:"volumes"`
	} `json:"spec"`
}

// claimVolume is a volume of a pod that may be a claim's.
type claimVolume struct {
	Name                  string                                `json:"name"`
	PersistentVolumeClaim *v1.PersistentVolumeClaimVolumeSource `json:"persistentVolumeClaim"`
	// Ephemeral is not nil for a generic ephemeral volume.
	Ephemeral *struct{} `json:"ephemeral"`
}

// decodePod reads a pod of a review, with the fields of podFields and the volumes of claims alone.
func decodePod(raw []byte) (*v1.Pod, error) {
	var fields podFields
	if err := decode(raw, &fields); err != nil {
		return nil, err
	}
	pod := &v1.Pod{ObjectMeta: fields.Metadata}
	pod.Spec.NodeName, pod.Spec.SchedulingGates = fields.Spec.NodeName, fields.Spec.SchedulingGates
	pod.Spec.TerminationGracePeriodSeconds = fields.Spec.TerminationGracePeriodSeconds
	claims := slices.DeleteFunc(fields.Spec.Volumes, func(v claimVolume) bool {
		return v.PersistentVolumeClaim == nil && v.Ephemeral == nil
	})
	pod.Spec.Volumes = make([]v1.Volume, len(claims))
	for i, v := range claims {
		to := &pod.Spec.Volumes[i]
		to.Name, to.PersistentVolumeClaim = v.Name, v.PersistentVolumeClaim
		if v.Ephemeral != nil {
			to.Ephemeral = &v1.EphemeralVolumeSource{}
		}
	}
	return pod, nil
}
