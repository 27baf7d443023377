//go:build unix

package deploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// The claim, the pod that has its lock, and the names of other objects that the pages of single-node speak of.
const (
	docsClaim  = "data"
	docsHolder = "web-5f7c"
	docsOther  = "single-node-docs"
)

// addSingleNode adds the pages' commands for the locks of claims. No volume-guard works on the locks.
func (s *shell) addSingleNode(plays map[string]play) {
	const label = "csi-reclaimer.io/single-node"
	add := func(command, name, also, want string, scene func(*testing.T)) {
		plays["kubectl "+command] = play{scene: scene, also: also, want: want,
			with: []string{"NAMESPACE", docsHome, "NAME", name}}
	}
	for _, file := range []string{"policies", "gate", "gate-webhook"} {
		add("apply -f deploy/manifests/single-node-"+file+".yaml", "", "--dry-run=server", "(server dry run)", nil)
	}
	add("delete -f deploy/manifests/single-node-gate.yaml -f deploy/manifests/single-node-policies.yaml", "",
		"--ignore-not-found", "", nil)
	add("label storageclass NAME "+label+"=true", docsOther, "", "labeled", s.makeClass)
	add("label storageclass NAME "+label+"-", docsOther, "", docsOther, s.makeClass)
	add("label --overwrite namespace NAMESPACE csi-reclaimer.io/pod-safety=enforce "+label+"=selected", "",
		"--dry-run=server", "labeled", s.makeHome)
	add("label namespace NAMESPACE "+label+"-", "", "", docsHome, s.makeHome)
	add(`patch deployment NAME -n NAMESPACE -p '{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}'`,
		docsOther, "", "patched", s.makeDeployment)
	add("rollout restart deployment NAME -n NAMESPACE", docsOther, "", "restarted", s.makeDeployment)

	add("reclaim locks -n NAMESPACE", "", "", docsHolder, s.makeLock)
	add("reclaim locks -n shop", "", "", docsHolder, s.makeLock)
	add("reclaim locks -A", "", "", docsHolder, s.makeLock)
	add("reclaim locks", "", "-n "+docsHome, docsHolder, s.makeLock)
	add("delete pod", "", docsHolder+" -n "+docsHome+" --wait=false", "deleted", s.makeLock)
	add("reclaim explain pvc/data -n shop", "", "", "Lock         pod "+docsHolder, s.makeLock)
	add("reclaim confirm pvc/data -n shop", "", "--yes", "was confirmed and force-deleted", s.makeLock)
	add("reclaim confirm pvc/NAME -n NAMESPACE", docsClaim, "--yes", "was confirmed and force-deleted", s.makeLock)
	add("reclaim confirm pvc/NAME", docsClaim, "-n "+docsHome+" --yes", "was confirmed and force-deleted", s.makeLock)
	add("describe pod NAME -n NAMESPACE", docsHolder, "", docsHolder, s.makeLock)
	add("delete pod NAME -n NAMESPACE --wait=false", docsHolder, "", "deleted", s.makeLock)
	plays["kubectl get pod NAME -o jsonpath='{.metadata.uid}'"] = play{scene: s.makeLock, also: "-n " + docsHome,
		with: []string{"NAME", docsHolder}, want: "-"}
	plays["kubectl annotate pod NAME -n NAMESPACE csi-reclaimer.io/confirm-force-delete=UID"] = play{scene: s.makeLock,
		with: []string{"NAMESPACE", docsHome, "NAME", docsHolder, "UID", "u"}, want: "annotated"}
	add(`patch pod NAME -n NAMESPACE -p '{"spec":{"schedulingGates":[{"name":"csi-reclaimer.io/volume",`+
		`"$patch":"delete"}]}}'`, docsOther, "", "patched", s.makeGated)
}

// TestLabelsAreRemovedInOrder removes the labels of a namespace in the order of the page, while the policy that relates
// both is in force.
func TestLabelsAreRemovedInOrder(t *testing.T) {
	const policy = "csi-reclaimer-single-node-namespace"
	ctx, must := patiently(t), mustOf(t)
	for _, d := range manifests(t) {
		if d.file == "single-node-policies.yaml" && d.GetName() == policy {
			must(apply(ctx, d, d.text, "", false))
		}
	}
	forget(t, func(ctx context.Context) error {
		api := client.AdmissionregistrationV1()
		return errors.Join(
			ignoreNotFound(api.ValidatingAdmissionPolicyBindings().Delete(ctx, policy, metav1.DeleteOptions{})),
			ignoreNotFound(api.ValidatingAdmissionPolicies().Delete(ctx, policy, metav1.DeleteOptions{})))
	})
	keys := map[string]string{"csi-reclaimer.io/pod-safety": "enforce", "csi-reclaimer.io/single-node": "all"}
	namespaces := client.CoreV1().Namespaces()
	made, err := namespaces.Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "labels-",
		Labels: keys}}, metav1.CreateOptions{})
	must(err)
	forget(t, func(ctx context.Context) error { return namespaces.Delete(ctx, made.Name, metav1.DeleteOptions{}) })
	label := func(key, value string, dryRun ...string) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)
		_, err := namespaces.Patch(ctx, made.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRun})
		return err
	}
	inForce := func(context.Context) (bool, error) {
		return apierrors.IsForbidden(label("csi-reclaimer.io/single-node", `"invalid"`, metav1.DryRunAll)), nil
	}
	must(wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, inForce))
	var removed []string
	for _, c := range commands(t) {
		key, is := strings.CutPrefix(c.text, "kubectl label namespaces --all ")
		if !is || c.page != "docs/how-to/remove.md" {
			continue
		}
		if err := label(strings.TrimSuffix(key, "-"), "null"); err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
		removed = append(removed, key)
	}
	if len(removed) != len(keys) {
		t.Errorf("the page removes the labels %q", removed)
	}
}

func (s *shell) makeClass(t *testing.T) {
	t.Helper()
	classes := client.StorageV1().StorageClasses()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: docsOther}, Provisioner: docsDriver}
	if _, err := classes.Create(patiently(t), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	forget(t, func(ctx context.Context) error { return classes.Delete(ctx, docsOther, metav1.DeleteOptions{}) })
}

func (s *shell) makeDeployment(t *testing.T) {
	t.Helper()
	s.makeHome(t)
	labels, none := map[string]string{"app": docsOther}, int32(0)
	all := client.AppsV1().Deployments(docsHome)
	_, err := all.Create(patiently(t), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: docsOther},
		Spec: appsv1.DeploymentSpec{Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: docsPod().Spec}}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	forget(t, func(ctx context.Context) error { return all.Delete(ctx, docsOther, metav1.DeleteOptions{}) })
}

// docsPod is a pod with the claim.
func docsPod() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: docsHolder}, Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "main", Image: "none"}},
		Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: docsClaim}}}},
	}}
}

// makeGated makes a pod with the gate.
func (s *shell) makeGated(t *testing.T) {
	t.Helper()
	s.makeHome(t)
	pod := docsPod()
	pod.Name, pod.Spec.SchedulingGates = docsOther, []v1.PodSchedulingGate{{Name: "csi-reclaimer.io/volume"}}
	s.makeDocsPod(t, pod)
}

// makeDocsPod makes a pod, which is gone after the test with its finalizers.
func (s *shell) makeDocsPod(t *testing.T, pod *v1.Pod) *v1.Pod {
	t.Helper()
	pods := client.CoreV1().Pods(docsHome)
	made, err := pods.Create(patiently(t), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	forget(t, func(ctx context.Context) error {
		err := pods.Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
		if err == nil {
			_, err = pods.Patch(ctx, pod.Name, types.MergePatchType, []byte(noFinalizers), metav1.PatchOptions{})
		}
		return ignoreNotFound(err)
	})
	return made
}

// noFinalizers is a patch that ends a terminating object. Before its deletion, Kubernetes would add finalizers again.
const noFinalizers = `{"metadata":{"finalizers":null}}`

// makeLock makes a claim, and a pod that has its lock, is held, and was deleted.
func (s *shell) makeLock(t *testing.T) {
	t.Helper()
	s.makeHome(t)
	held := docsPod()
	held.Finalizers = []string{"csi-reclaimer.io/running"}
	pod := s.makeDocsPod(t, held)
	claims := client.CoreV1().PersistentVolumeClaims(docsHome)
	_, err := claims.Create(patiently(t), &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: docsClaim, Finalizers: []string{"csi-reclaimer.io/single-node"},
			Annotations: map[string]string{"csi-reclaimer.io/used-by": fmt.Sprintf("%s %s", pod.UID, pod.Name)}},
		Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceStorage: resource.MustParse("1Gi")}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	forget(t, func(ctx context.Context) error {
		err := claims.Delete(ctx, docsClaim, metav1.DeleteOptions{})
		if err == nil {
			_, err = claims.Patch(ctx, docsClaim, types.MergePatchType, []byte(noFinalizers), metav1.PatchOptions{})
		}
		return ignoreNotFound(err)
	})
	if err := client.CoreV1().Pods(docsHome).Delete(patiently(t), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
