package fencing

import (
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// boundPod is a pod with a claim that runs on a node.
func boundPod(alter ...func(*v1.Pod)) *v1.Pod {
	o := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-0", UID: "uid-1", Labels: map[string]string{"app": "db"}},
		Spec: v1.PodSpec{NodeName: "node-1", Containers: []v1.Container{{Name: "c"}}, Volumes: []v1.Volume{{Name: "data",
			VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
	for _, change := range alter {
		change(o)
	}
	return o
}

func isHeld(o *v1.Pod)        { o.Finalizers = []string{objects.RunningFinalizer} }
func isTerminating(o *v1.Pod) { o.DeletionTimestamp = &metav1.Time{} }
func isClaimless(o *v1.Pod)   { o.Spec.Volumes = nil }
func hasSucceeded(o *v1.Pod) {
	o.Status.Phase = v1.PodSucceeded
	o.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c",
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
}

func TestWaitingOf(t *testing.T) {
	owned := func(kind string) func(*v1.Pod) {
		return func(o *v1.Pod) { o.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: ptr.To(true)}} }
	}
	tolerates := func(key string, seconds ...*int64) func(*v1.Pod) {
		return func(o *v1.Pod) {
			for _, s := range seconds {
				o.Spec.Tolerations = append(o.Spec.Tolerations, v1.Toleration{Key: key, Operator: v1.TolerationOpExists,
					Effect: v1.TaintEffectNoExecute, TolerationSeconds: s})
			}
		}
	}
	limit := ptr.To[int64](300)
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"running":                           {boundPod(), true},
		"of a ReplicaSet":                   {boundPod(owned("ReplicaSet")), true},
		"of a DaemonSet":                    {boundPod(owned("DaemonSet")), false},
		"of a kubelet":                      {boundPod(mirrored), false},
		"one without a claim":               {boundPod(isClaimless), false},
		"ended":                             {boundPod(hasSucceeded), false},
		"ended and held":                    {boundPod(isHeld, hasSucceeded), false},
		"ended and terminating":             {boundPod(isTerminating, hasSucceeded), false},
		"ended, terminating and held":       {boundPod(isHeld, isTerminating, hasSucceeded), true},
		"terminating and held":              {boundPod(isHeld, isTerminating), true},
		"it stays for ever":                 {boundPod(tolerates(v1.TaintNodeUnreachable, nil)), false},
		"it was deleted since":              {boundPod(tolerates(v1.TaintNodeUnreachable, nil), isTerminating), true},
		"it stays for some time":            {boundPod(tolerates(v1.TaintNodeUnreachable, limit)), true},
		"it stays for the shorter of two":   {boundPod(tolerates(v1.TaintNodeUnreachable, nil, limit)), true},
		"it tolerates something else alone": {boundPod(tolerates(v1.TaintNodeNotReady, nil)), true},
	} {
		got, waits := WaitingOf(c.pod)
		if waits != c.want {
			t.Errorf("%s: waits %t", name, waits)
		}
		if waits && (got.namespace != "ns" || got.labels["app"] != "db" ||
			got.terminating != (c.pod.DeletionTimestamp != nil)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func mirrored(o *v1.Pod) { o.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} }
