//go:build unix

package deploy

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
)

// docsSet is the pages' StatefulSet. It has no pods, so no claim is created for it.
const docsSet = "web"

// addStatefulSets adds the pages' commands for the claims of StatefulSets.
func (s *shell) addStatefulSets(plays map[string]play) {
	add := func(command, want string) {
		plays["kubectl "+command] = play{scene: s.makeStatefulSet, with: []string{"NAMESPACE", docsHome, "NAME", docsSet},
			want: want}
	}
	const set = " statefulset NAME -n NAMESPACE "
	add("get"+set+"-o jsonpath='{.spec.persistentVolumeClaimRetentionPolicy}'", `"whenScaled":"Retain"`)
	add("patch"+set+`-p '{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete"}}}'`, "patched")
	add("patch"+set+`--type=merge -p '{"spec":{"persistentVolumeClaimRetentionPolicy":null}}'`, "patched")
	add("annotate"+set+statefulset.PolicyAnnotation+`='{"whenScaled":"Delete"}'`, "annotated")
	add("annotate"+set+statefulset.PolicyAnnotation+"-", "annotated")
	add("annotate"+set+statefulset.GraceAnnotation+"=10m", "annotated")
	plays["kubectl annotate pvc NAME -n NAMESPACE "+statefulset.HoldAnnotation+`="why"`] = play{
		with: []string{"NAMESPACE", docsHome, "NAME", docsPV}, want: "annotated"}
	plays["kubectl delete pvc NAME -n NAMESPACE"] = play{with: []string{"NAMESPACE", docsHome, "NAME", docsPV},
		also: "--dry-run=server", want: "deleted"}
	plays["kubectl delete pvc"] = play{also: docsPV + " -n " + docsHome + " --dry-run=server", want: "deleted"}
	plays["kubectl reclaim preview sts/cache -n shop --replicas=1"] = play{scene: s.makeStatefulSet,
		with: []string{"cache", docsSet}, want: "StatefulSet shop/" + docsSet}
	plays["kubectl reclaim explain sts/db -n shop"] = play{scene: s.makeStatefulSet,
		with: []string{"/db", "/" + docsSet}, want: "StatefulSet shop/" + docsSet + " has"}
	plays["kubectl reclaim preview statefulset/db --replicas=1 -n shop"] = play{scene: s.makeStatefulSet,
		with: []string{"/db", "/" + docsSet}, want: "StatefulSet shop/" + docsSet}
	plays["kubectl reclaim explain pvc/data-db-2 -n shop"] = play{with: []string{"data-db-2", docsPV},
		want: "Claim " + docsHome + "/" + docsPV}
	plays["kubectl delete pvc -n shop data-old-0 data-db-2"] = play{with: []string{"data-old-0", docsPV, "data-db-2", ""},
		also: "--dry-run=server", want: "deleted"}
	for _, command := range []string{"kubectl reclaim status --retained", "kubectl reclaim status --retained -n shop",
		"kubectl reclaim status --retained -A"} {
		plays[command] = play{}
	}
	plays["kubectl apply -f deploy/manifests/statefulset-claims-warn.yaml"] = play{also: "--dry-run=server",
		want: "(server dry run)"}
}

// makeStatefulSet creates the pages' set.
func (s *shell) makeStatefulSet(t *testing.T) {
	t.Helper()
	s.makeHome(t)
	labels := map[string]string{"app": docsSet}
	sets := client.AppsV1().StatefulSets(docsHome)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: docsSet}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: docsSet,
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}}}},
		VolumeClaimTemplates: []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				Resources: v1.VolumeResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}}}}},
	}}
	if _, err := sets.Create(patiently(t), set, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	forget(t, func(ctx context.Context) error { return sets.Delete(ctx, docsSet, metav1.DeleteOptions{}) })
}
