//go:build unix

package singlenodeadmission

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestControllersCreateGatedPods expects each controller's pods with a claim to be gated and held, and to have no node.
func TestControllersCreateGatedPods(t *testing.T) {
	ctx, p := t.Context(), prepared{key: realKey}
	namespace := p.makeNamespace(t, map[string]string{podSafety: enforce, realKey: "all"})
	waitGates(t, namespace)
	fakenode.ForTest(t, cluster, "node-"+rand.String(8), fakenode.Config{})
	template := func(app string, change ...func(*v1.Pod)) (v1.PodTemplateSpec, *metav1.LabelSelector) {
		pod := podOf("", "", change...)
		pod.Labels = map[string]string{"app": app}
		return v1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}, &metav1.LabelSelector{MatchLabels: pod.Labels}
	}
	named := func(app string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: app} }
	of, selector := template("replicaset")
	_, err := client.AppsV1().ReplicaSets(namespace).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: named("replicaset"),
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1), Selector: selector, Template: of}}, metav1.CreateOptions{})
	must(t, err)
	of, selector = template("daemonset")
	_, err = client.AppsV1().DaemonSets(namespace).Create(ctx, &appsv1.DaemonSet{ObjectMeta: named("daemonset"),
		Spec: appsv1.DaemonSetSpec{Selector: selector, Template: of}}, metav1.CreateOptions{})
	must(t, err)
	of, _ = template("job", func(pod *v1.Pod) { pod.Spec.RestartPolicy = v1.RestartPolicyNever })
	_, err = client.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{ObjectMeta: named("job"),
		Spec: batchv1.JobSpec{Template: of}}, metav1.CreateOptions{})
	must(t, err)
	of, selector = template("statefulset", with())
	_, err = client.AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{ObjectMeta: named("statefulset"),
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1), Selector: selector, Template: of,
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{ObjectMeta: named("v"), Spec: objects.ClaimFor("none")}}},
	}, metav1.CreateOptions{})
	must(t, err)
	of, selector = template("ephemeral", with(objects.EphemeralVolume("v", "none")))
	_, err = client.AppsV1().ReplicaSets(namespace).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: named("ephemeral"),
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](1), Selector: selector, Template: of}}, metav1.CreateOptions{})
	must(t, err)

	for _, app := range []string{"replicaset", "daemonset", "job", "statefulset", "ephemeral"} {
		pod := firstPod(t, namespace, app)
		if !hasGate(pod) || !slices.Contains(pod.Finalizers, podsafety.Finalizer) || pod.Spec.NodeName != "" {
			t.Errorf("%s: gates %q, finalizers %q, node %q", app, gatesOf(pod), pod.Finalizers, pod.Spec.NodeName)
		}
		if app == "ephemeral" { // its claim does not wait for a node
			until(t, "the claim of the ephemeral volume", func() bool {
				_, err := client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, pod.Name+"-v", metav1.GetOptions{})
				return err == nil
			})
		}
	}
}

// firstPod waits for a pod of a controller.
func firstPod(t *testing.T, namespace, app string) (pod *v1.Pod) {
	t.Helper()
	until(t, "a pod of the "+app, func() bool {
		list, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		must(t, err)
		if len(list.Items) > 0 {
			pod = &list.Items[0]
		}
		return pod != nil
	})
	return pod
}

// TestControllerManagerWritesToLockedClaims has kube-controller-manager bind a locked claim and remove its own
// finalizer from it. The lock stays.
func TestControllerManagerWritesToLockedClaims(t *testing.T) {
	ctx, all, p := t.Context(), users(t), prepared{key: realKey}
	namespace := p.makeNamespace(t, map[string]string{podSafety: enforce, realKey: "all"})
	waitGates(t, namespace)
	claims := client.CoreV1().PersistentVolumeClaims(namespace)
	spec := objects.ClaimFor("")
	spec.VolumeName = namespace
	_, err := claims.Create(ctx, &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: spec},
		metav1.CreateOptions{})
	must(t, err)
	guard := all[guard].CoreV1().PersistentVolumeClaims(namespace)
	_, err = guard.Patch(ctx, "c", types.MergePatchType, []byte(fmt.Sprintf(
		`{"metadata":{"annotations":{%q:"uid web-0"},"finalizers":["kubernetes.io/pvc-protection",%q]}}`, usedBy,
		lockFinalizer)), metav1.PatchOptions{})
	must(t, err)
	makeVolume(t, namespace, "c")
	untilLocked(t, namespace, "bound", func(c *v1.PersistentVolumeClaim) bool {
		return c.Status.Phase == v1.ClaimBound && c.Annotations["pv.kubernetes.io/bind-completed"] != ""
	})
	must(t, claims.Delete(ctx, "c", metav1.DeleteOptions{}))
	untilLocked(t, namespace, "without the finalizer of Kubernetes", func(c *v1.PersistentVolumeClaim) bool {
		return slices.Equal(c.Finalizers, []string{lockFinalizer})
	})
	_, err = guard.Patch(ctx, "c", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{})
	must(t, err)
	until(t, "the claim to be gone", func() bool {
		_, err := claims.Get(ctx, "c", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// untilLocked waits for a condition of the claim c, which has a lock all the time.
func untilLocked(t *testing.T, namespace, what string, is func(c *v1.PersistentVolumeClaim) bool) {
	t.Helper()
	until(t, "the claim to be "+what, func() bool {
		c, err := client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "c", metav1.GetOptions{})
		must(t, err)
		if c.Annotations[usedBy] != "uid web-0" || !slices.Contains(c.Finalizers, lockFinalizer) {
			t.Fatalf("%s: the lock is %q, the finalizers are %q", what, c.Annotations[usedBy], c.Finalizers)
		}
		return is(c)
	})
}

// makeVolume makes a volume, of the namespace's name, for a claim.
func makeVolume(t *testing.T, namespace, claim string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	_, err := client.CoreV1().PersistentVolumes().Create(ctx, &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: v1.PersistentVolumeSpec{
			Capacity:               v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
			AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			ClaimRef:               &v1.ObjectReference{Namespace: namespace, Name: claim},
			PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/none"}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, client.CoreV1().PersistentVolumes().Delete(ctx, namespace, metav1.DeleteOptions{})) })
}

// After RemoveGateAdmission, pods are created without the gate, also with a node, and an administrator can remove gates
// and locks.
func TestRemoveGateAdmission(t *testing.T) {
	ctx, p := t.Context(), prepare(t, realKey, gateStays, lockStays)
	waitGates(t, p.namespace)
	restoreAtEnd(t)
	as := user{Clientset: client}
	want := []string{"validatingadmissionpolicybinding/" + gateRequired, adder() + "/" + podsafety.GateName,
		"validatingadmissionpolicybinding/" + gateStays, "validatingadmissionpolicybinding/" + lockStays}
	for _, want := range [][]string{want, nil} { // the second time finds nothing to delete
		deleted, err := podsafety.RemoveGateAdmission(ctx, cluster.Admin())
		must(t, err)
		if !slices.Equal(deleted, want) {
			t.Errorf("deleted %q, want %q", deleted, want)
		}
	}
	until(t, "pods not to be gated", func() bool {
		pod, err := client.CoreV1().Pods(p.namespace).Create(ctx, podOf(p.namespace, "probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if suite.Judge(err).RefusedBy == gateRequired { // the API server observes each deletion at a time of its own
			return false
		}
		must(t, err)
		return !hasGate(pod)
	})
	for what, send := range map[string]func(context.Context, user, *prepared) error{
		"a pod with a node":    creates(onNode),
		"a gate to be removed": patches(waits, types.MergePatchType, replacesGates),
		"a lock to be removed": ofClaim(locked, `{"metadata":{"annotations":null,"finalizers":null}}`),
	} {
		until(t, what, func() bool { return send(ctx, as, p) == nil })
	}
}

// adder returns the kind of the object that adds the gate in this version.
func adder() string {
	if cluster.Version().Before(controlplane.V1_36) {
		return "mutatingwebhookconfiguration"
	}
	return "mutatingadmissionpolicybinding"
}

// restoreAtEnd creates the objects again that RemoveGateAdmission deletes.
func restoreAtEnd(t *testing.T) {
	t.Helper()
	c, err := dynamic.NewForConfig(cluster.Admin())
	must(t, err)
	ctx := context.WithoutCancel(t.Context())
	for resource, names := range map[string][]string{
		"validatingadmissionpolicybindings": {gateRequired, gateStays, lockStays}, adder() + "s": {podsafety.GateName},
	} {
		all := c.Resource(admissionregistration.WithResource(resource))
		for _, name := range names {
			o, err := all.Get(ctx, name, metav1.GetOptions{}) // with the certificate's authority
			must(t, err)
			o.SetResourceVersion("")
			o.SetUID("")
			o.SetManagedFields(nil)
			t.Cleanup(func() {
				_, err := all.Create(ctx, o, metav1.CreateOptions{})
				must(t, err)
			})
		}
	}
}
