package nodes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Images that each node has. Nothing can be pulled.
const (
	// PauseImage holds a pod's namespaces.
	PauseImage = "localhost/pause:test"
	// WriterImage writes stamps to the directories in its arguments; see [WriterSpec] and package stamps. With the
	// arguments "pause" it does nothing, and with "exit" and a status it ends.
	WriterImage = "localhost/writer:test"
	// FencerImage is an agent that fences nodes: see [FencerSpec].
	FencerImage = "localhost/fencer:test"
)

// WriterSpec is the spec of a pod that writes stamps to these claims, every 20 ms until it is ended, for a Pod or the
// template of a controller's pods. The container is called "writer". Its volumes are called volume-0 and so on.
func WriterSpec(claims ...string) corev1.PodSpec {
	spec := corev1.PodSpec{
		// The network is the machine's, and the pod needs no token of a service account.
		HostNetwork:                   true,
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](5),
	}
	container := corev1.Container{Name: "writer", Image: WriterImage, ImagePullPolicy: corev1.PullNever,
		Env: []corev1.EnvVar{
			fromField("POD_UID", "metadata.uid"), fromField("POD_NAME", "metadata.name"),
			fromField("NODE_NAME", "spec.nodeName"),
		}}
	for i, claim := range claims {
		name := fmt.Sprintf("volume-%d", i)
		container.Args = append(container.Args, "/"+name)
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		if claim == "" { // a template of claims brings the volume
			continue
		}
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	spec.Containers = []corev1.Container{container}
	return spec
}

// FencerSpec is the spec of a pod that sends the variables FENCE_* of its environment to a URL (POST, a form), and ends
// with status 0 if the answer is 200, and with 1 after any other.
func FencerSpec(url string) corev1.PodSpec {
	spec := WriterSpec()
	spec.RestartPolicy = corev1.RestartPolicyNever
	spec.Containers = []corev1.Container{{Name: "fencer", Image: FencerImage, ImagePullPolicy: corev1.PullNever,
		Args: []string{url}}}
	return spec
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name,
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}
