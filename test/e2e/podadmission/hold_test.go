//go:build unix

package podadmission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

func ephemeralVolume() v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
		VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: ptr.To("none"),
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		}},
	}}}
}

// controlledBy has a pod be owned by something of a kind.
func controlledBy(kind string, controller bool) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: kind, Name: "owner", UID: "owner", Controller: &controller}}
	}
}

// TestNewPodsAreHeld expects the finalizer in the write that creates a pod, from the policy or, on a Kubernetes without
// it, from the webhook.
func TestNewPodsAreHeld(t *testing.T) {
	namespaces := map[string]string{enforce: namespace(t, enforce), warn: namespace(t, warn), "off": namespace(t, "")}
	waitHolds(t, namespaces[enforce])
	const grace = 30
	mirror := map[string]string{v1.MirrorPodAnnotationKey: "x"}
	claims := []v1.Volume{claimVolume("c")}
	for sentence, c := range map[string]struct {
		change func(*v1.Pod)
		held   bool
		grace  int64
	}{
		"with a claim":             {func(p *v1.Pod) { p.Spec.Volumes = claims }, true, grace},
		"with an ephemeral volume": {func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{ephemeralVolume()} }, true, grace},
		"with a claim among other volumes": {func(p *v1.Pod) {
			p.Spec.Volumes = append([]v1.Volume{{Name: "e"}}, claims...)
		}, true, grace},
		"with a claim and another finalizer": {func(p *v1.Pod) {
			p.Spec.Volumes, p.Finalizers = claims, []string{"example.com/other"}
		}, true, grace},
		"with the finalizer already": {func(p *v1.Pod) {
			p.Spec.Volumes, p.Finalizers = claims, []string{podsafety.Finalizer}
		}, true, grace},
		"bound from the start":        {func(p *v1.Pod) { p.Spec.Volumes, p.Spec.NodeName = claims, ownNode }, true, grace},
		"with a claim, without grace": {func(p *v1.Pod) { p.Spec.Volumes = claims; bornWithoutGrace(p) }, true, 1},
		"of a StatefulSet":            {controlledBy("StatefulSet", true), true, grace},
		"owned by a StatefulSet":      {controlledBy("StatefulSet", false), false, grace},
		"of a ReplicaSet":             {controlledBy("ReplicaSet", true), false, grace},
		"without a volume":            {func(*v1.Pod) {}, false, grace},
		"with other volumes":          {func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{{Name: "e"}} }, false, grace},
		"without volumes, nor grace":  {bornWithoutGrace, false, 1},
		"with a grace period of 1": {func(p *v1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
		}, false, 1},
		"mirror of a static pod": {func(p *v1.Pod) {
			p.Spec.Volumes, p.Annotations, p.Spec.NodeName = claims, mirror, ownNode
		}, false, grace},
		"mirror of one without grace": {func(p *v1.Pod) {
			p.Annotations, p.Spec.NodeName = mirror, ownNode
			bornWithoutGrace(p)
		}, false, 1},
		"named by the API server": {func(p *v1.Pod) {
			p.Spec.Volumes, p.Name, p.GenerateName = claims, "", "generated-"
		}, true, grace},
	} {
		for mode, namespace := range namespaces {
			pod := podOf(namespace, "pod", "")
			c.change(pod)
			wantGrace, sent := c.grace, pod.Spec.TerminationGracePeriodSeconds
			if mode != enforce && sent != nil {
				wantGrace = *sent
			}
			held := c.held && mode == enforce || slices.Contains(pod.Finalizers, podsafety.Finalizer)
			others := slices.DeleteFunc(slices.Clone(pod.Finalizers), func(f string) bool { return f == podsafety.Finalizer })
			pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			must(t, err)
			got, want := fmt.Sprint(pod.Finalizers, *pod.Spec.TerminationGracePeriodSeconds), others
			if held {
				want = append(want, podsafety.Finalizer)
			}
			if want := fmt.Sprint(want, wantGrace); got != want {
				t.Errorf("%s, pod safety %s: finalizers and grace period %s, want %s", sentence, mode, got, want)
			}
		}
	}
}

// An empty list in a request is no list that the finalizer can be appended to.
func TestPodWithEmptyFinalizersIsHeld(t *testing.T) {
	namespace := namespace(t, enforce)
	waitHolds(t, namespace)
	var made v1.Pod
	must(t, client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Param("dryRun", metav1.DryRunAll).
		SetHeader("Content-Type", "application/json").Body([]byte(`{"apiVersion": "v1", "kind": "Pod",
			"metadata": {"name": "pod", "finalizers": []}, "spec": {"containers": [{"name": "c", "image": "i"}],
			"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}`)).Do(t.Context()).Into(&made))
	if got := fmt.Sprint(made.Finalizers); got != "["+podsafety.Finalizer+"]" {
		t.Errorf("finalizers %s", got)
	}
}

// restoreAtEnd creates the objects again that RemoveAdmission deletes.
func restoreAtEnd(t *testing.T) {
	t.Helper()
	adds := holdFile
	if cluster.Version().Before(controlplane.V1_36) {
		adds = holdWebhookFile
	}
	var all []object
	for _, o := range append(manifest(t, adds), manifest(t, policiesFile)...) {
		if o.GetName() == podsafety.Name || o.GetName() == podsafety.StaysName {
			all = append(all, live(t, o)) // with the certificate's authority
		}
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { must(t, apply(ctx, all...)) })
}

// After RemoveAdmission, new pods are not held, and an administrator can remove the finalizer.
func TestRemoveAdmission(t *testing.T) {
	ctx, namespace := t.Context(), namespace(t, enforce)
	t.Cleanup(func() { forget(t, namespace) })
	waitHolds(t, namespace)
	restoreAtEnd(t)
	pod := podOf(namespace, "pod", "")
	pod.Spec.Volumes = []v1.Volume{claimVolume("c")}
	pods := client.CoreV1().Pods(namespace)
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	as := newUser(t, cluster.Admin())
	// The API server begins with each policy at a time of its own.
	trying := &user{Clientset: as.Clientset, dryRun: []string{metav1.DryRunAll}}
	until(t, "the finalizer to stay", func() bool {
		return judge(patches(removesOurs)(ctx, trying, pod), nil).refusedBy == holdStays
	})
	if v := judge(patches(removesOurs)(ctx, as, pod), nil); v.refusedBy != holdStays {
		t.Fatalf("with the admission in force: %v", v)
	}
	adds := "mutatingadmissionpolicybinding/"
	if cluster.Version().Before(controlplane.V1_36) {
		adds = "mutatingwebhookconfiguration/"
	}
	want := adds + podsafety.Name + " validatingadmissionpolicybinding/" + podsafety.StaysName
	for _, want := range []string{want, ""} { // the second time finds nothing to delete
		deleted, err := podsafety.RemoveAdmission(ctx, cluster.Admin())
		must(t, err)
		if got := strings.Join(deleted, " "); got != want {
			t.Errorf("deleted %q, want %q", got, want)
		}
	}
	until(t, "pods not to be held", func() bool {
		pod := podOf(namespace, "probe", "")
		pod.Spec.Volumes = []v1.Volume{claimVolume("c")}
		made, err := pods.Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		must(t, err)
		return len(made.Finalizers) == 0
	})
	until(t, "the finalizer to be removed", func() bool { return patches(removesOurs)(ctx, as, pod) == nil })
}
