//go:build unix

package operations

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// makeSet creates a StatefulSet without replicas, to which a volume's claim can belong.
func (env *environment) makeSet(name, template string) {
	env.T.Helper()
	labels := map[string]string{"app": name}
	_, err := env.Client.AppsV1().StatefulSets(env.Namespace).Create(env.Ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}}}},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: template},
				Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
					Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{
						v1.ResourceStorage: resource.MustParse("1Mi")}}}}}},
	}, metav1.CreateOptions{})
	env.Must(err)
}

// TestPluginClaims runs the plugin on a StatefulSet as users with different permissions. TestPreview of
// test/e2e/statefulset compares previews with the actual changes.
func TestPluginClaims(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	vol := env.MakeVolume(objects.Spec{Dynamic: true})
	at := strings.LastIndexByte(vol.ClaimName, '-')
	template, set := vol.ClaimName[:at], vol.ClaimName[at+1:]
	claim := env.MakeVolume(objects.Spec{Name: template + "-" + set + "-0", Dynamic: true})
	env.makeSet(set, template)

	env.ExpectOutput(env.RunPlugin("preview", "sts/"+set, "--replicas=1"), "scale from 0 to 1 replica", claim.ClaimName,
		"1 claim, 1Mi: 0 claims deleted; 0 volumes deleted (0), 1 kept")
	env.ExpectOutput(env.RunPlugin("status", "--retained"), claim.ClaimName+" (?)", "1 of them is only likely to be one")
	env.ExpectOutput(env.RunPlugin("explain", "pvc/"+claim.ClaimName), "StatefulSet  "+set+", ordinal 0, scaled away")

	output, err := env.WaitExit(env.StartPlugin("preview", "sts/nobody-has-this-name", "--delete"))
	if err == nil {
		t.Errorf("a set that is not there is previewed:\n%s", output)
	}
	env.ExpectOutput(output, `read StatefulSet "`+env.Namespace+`/nobody-has-this-name"`, "not found",
		"next: find its name: kubectl get pv, or kubectl get pvc,pod,statefulset -A")
	env.previewWithDocumentedPermissions(set)
	env.previewWithoutPVs(set, claim.ClaimName)
}

// previewWithDocumentedPermissions runs the preview as a user with the ClusterRole of
// docs/reference/kubectl-reclaim-permissions.md.
func (env *environment) previewWithDocumentedPermissions(set string) {
	env.T.Helper()
	env.grantReader("docs", env.documentedRules("reference/kubectl-reclaim-permissions.md"))
	kube := env.kubeconfigOf("docs")
	for _, args := range [][]string{{"preview", "sts/" + set, "--delete", "-o", "json"},
		{"status", "--retained", "-A", "-o", "json"}} {
		if output := env.askUntilGranted(kube, args...); strings.Contains(output, "unread") {
			env.T.Errorf("%q: not all is read:\n%s", args, output)
		}
	}
}

// previewWithoutPVs runs the preview as a user who may read only namespaced objects.
func (env *environment) previewWithoutPVs(set, claim string) {
	env.T.Helper()
	env.grantReader("namespaced", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: []string{"get", "list"}},
	})
	kube := env.kubeconfigOf("namespaced")
	var output string
	env.Eventually("claims alone are missing", func() bool {
		var err error
		output, err = env.WaitExit(env.StartPluginAs(kube, "preview", "sts/"+set, "--delete"))
		return err != nil && strings.Contains(output, `list claims of namespace "`+env.Namespace+`"`)
	})
	env.ExpectOutput(output, "next: ask for the permission")
	env.grantReader("claims", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "persistentvolumeclaims"}, Verbs: []string{"list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: []string{"get", "list"}},
	})
	output = env.askUntilGranted(env.kubeconfigOf("claims"), "preview", "sts/"+set, "--delete")
	env.ExpectOutput(output, claim, "Not read: PVs: ", "So it is not known whether the volumes are deleted")
	if strings.Contains(output, "Delete ") {
		env.T.Errorf("a reclaim policy is shown that could not be read:\n%s", output)
	}
}

// askUntilGranted runs the plugin until its user has the permissions that it was given.
func (env *environment) askUntilGranted(kube string, args ...string) (output string) {
	env.T.Helper()
	env.Eventually("the permissions are granted", func() bool {
		var err error
		output, err = env.WaitExit(env.StartPluginAs(kube, args...))
		return err == nil
	})
	return output
}
