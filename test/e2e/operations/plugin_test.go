//go:build unix

package operations

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// install makes the CSIDriver object that every driver has which is installed.
func (env *environment) install() {
	env.T.Helper()
	env.CSIDrivers().CreateForTest(&storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: env.Driver}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(true)},
	})
}

func TestPluginExplain(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	env.install()
	env.StartSidecar(fixture.FastRetries()...)

	attached, bound := env.MakeVolume(objects.Spec{Dynamic: true}), env.MakeVolume(objects.Spec{})
	kept := env.MakeVolume(objects.Spec{Policy: v1.PersistentVolumeReclaimRetain})
	env.WaitProtected(attached)
	env.WaitProtected(bound)
	env.Attach(attached)
	env.DeletePVFirst(attached)
	env.Must(kept.DeleteClaim(env.Ctx))
	env.WaitPVEvent(attached, "Attached", "")
	env.WaitPV(kept, "released", fixture.IsReleased)
	gone := "gone-" + rand.String(8) + ".csi-reclaimer.io"
	stuck := env.MakeVolume(objects.Spec{Handle: "vol-of-a-driver-that-is-gone", Unclaimed: true,
		Change: func(pv *v1.PersistentVolume) {
			pv.Spec.CSI.Driver = gone
			pv.Finalizers = []string{"external-attacher/" + strings.ReplaceAll(gone, ".", "-")}
		}})
	env.Must(stuck.DeletePV(env.Ctx))

	output := env.RunPlugin("explain", "pv/"+attached.Name)
	env.ExpectOutput(output, "PV "+attached.Name+" has been terminating for", "waits (Attached)",
		"VolumeAttachment csi-"+attached.Name,
		"node a-node-of-another-cluster (gone from the cluster)", env.Namespace+"/"+attached.Name+", gone",
		volume.Finalizer+": csi-reclaimer", "Events ")
	output = env.RunPlugin("explain", "pv/"+kept.Name)
	env.ExpectOutput(output, "is released (PolicyKeepsVolume)", "To delete the volume too: kubectl patch pv "+kept.Name,
		"spec.volumeName: "+kept.Name)
	output = env.RunPlugin("explain", "pv/"+stuck.Name)
	env.ExpectOutput(output, "is stuck: no program removes external-attacher/", "driver "+gone+" is gone",
		"kubectl patch pv "+stuck.Name)
	output = env.RunPlugin("explain", "pvc/"+bound.ClaimName)
	env.ExpectOutput(output, "Claim "+env.Namespace+"/"+bound.ClaimName+" is bound, with PV "+bound.Name,
		"PV "+bound.Name+" is bound (Bound)")

	output, err := env.WaitExit(env.StartPlugin("explain", "pv/nobody-has-this-name"))
	if err == nil {
		t.Errorf("a PV that is not there is explained:\n%s", output)
	}
	env.ExpectOutput(output, `read PV "nobody-has-this-name"`, "not found", "next: ")

	env.status(attached)
	env.explainWithFewPermissions(bound)
	env.explainWithDocumentedPermissions(bound)
}

// status checks the report on the environment's driver: of three PVs, one is kept and one waits.
func (env *environment) status(waiting *objects.Volume) {
	env.T.Helper()
	var status volumes.Status
	env.Must(json.Unmarshal([]byte(env.RunPlugin("status", "--driver="+env.Driver, "-o", "json")), &status))
	if len(status.Drivers) != 1 {
		env.T.Fatalf("status reports %+v", status.Drivers)
	}
	d := status.Drivers[0]
	if d.PVs != 3 || d.Protected != 2 || d.Unprotected != 0 || d.Terminating != 1 || len(d.Waiting) != 1 ||
		d.Waiting["Attached"] != 1 ||
		d.Oldest == nil || d.Oldest.PV != waiting.Name || len(status.Unread) != 0 {
		env.T.Errorf("status reports %+v", d)
	}
	env.ExpectOutput(env.RunPlugin("status", "--driver="+env.Driver, "-o", "wide"), "OLDEST TERMINATING", "ROLE",
		env.Driver, "Attached 1", waiting.Name)

	p := env.StartPlugin("status", "--driver="+env.Driver, "--watch", "--interval=50ms", "-o", "yaml")
	env.Must(p.WaitLog(env.WithTimeout(), "pvs: 3"))
	env.VolumeAttachments().Delete("csi-" + waiting.Name)
	env.Must(p.WaitLog(env.WithTimeout(), "pvs: 2"))
	env.Must(p.Stop(fixture.WaitTimeout))
}

// explainWithFewPermissions runs the plugin as a user who may read only PVs.
func (env *environment) explainWithFewPermissions(vol *objects.Volume) {
	env.T.Helper()
	kube := env.grantReader("few", []rbacv1.PolicyRule{{APIGroups: []string{""},
		Resources: []string{"persistentvolumes"}, Verbs: []string{"get"}}})
	env.ExpectOutput(env.askUntilGranted(kube, "explain", "pv/"+vol.Name), "PV "+vol.Name+" is bound (Bound)", "Not read",
		"VolumeAttachments: ", "So it is not known whether the volume is attached", "not readable here")
	output, err := env.WaitExit(env.StartPluginAs(kube, "status"))
	if err == nil {
		env.T.Errorf("a status without the right to list PVs:\n%s", output)
	}
	env.ExpectOutput(output, "list PVs", "next: ask for the permission")
}

// explainWithDocumentedPermissions runs the plugin as a user with the ClusterRole of
// docs/reference/kubectl-reclaim-permissions.md, who can read everything.
func (env *environment) explainWithDocumentedPermissions(vol *objects.Volume) {
	env.T.Helper()
	kube := env.grantReader("docs", env.documentedRules("reference/kubectl-reclaim-permissions.md"))
	var explained string
	env.Eventually("the permissions are granted", func() bool {
		var err error
		explained, err = env.WaitExit(env.StartPluginAs(kube, "explain", "pvc/"+vol.ClaimName))
		return err == nil && !strings.Contains(explained, "Not read")
	})
	env.ExpectOutput(explained, "PV "+vol.Name+" is bound (Bound)")
	output, err := env.WaitExit(env.StartPluginAs(kube, "status", "--driver="+env.Driver, "-o", "json"))
	env.Must(err)
	if strings.Contains(output, "unread") {
		env.T.Errorf("not all is read:\n%s", output)
	}
}

// grantReader makes a service account with these rights in the whole cluster, and returns the path of a kubeconfig file
// for it.
func (env *environment) grantReader(account string, rules []rbacv1.PolicyRule) string {
	env.T.Helper()
	env.Grant(account+"-"+env.Namespace, account, rules...)
	config, err := env.Plane.ServiceAccount(env.Ctx, env.Namespace, account)
	env.Must(err)
	kube := filepath.Join(env.T.TempDir(), "kubeconfig")
	env.Must(controlplane.WriteKubeconfig(kube, config))
	return kube
}

func TestPluginRelease(t *testing.T) {
	env := begin(t, suite.WaitsForClock, fixture.AboutProgram)
	env.install()
	car := env.StartSidecar(append(fixture.FastRetries(), "--leader-election",
		"--leader-election-namespace="+env.Namespace)...)
	const count = 40
	vols := env.MakeVolumes(count, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	release := func(more ...string) (string, error) {
		return env.WaitExit(env.StartPlugin(append([]string{"release", "--driver=" + env.Driver}, more...)...))
	}
	refused := func(why string, more ...string) {
		t.Helper()
		output, err := release(more...)
		if err == nil {
			t.Fatalf("it is not refused:\n%s", output)
		}
		env.ExpectOutput(output, why)
		env.WaitAllPVs(vols, "still protected", fixture.IsProtected)
	}
	refused("still runs for "+env.Driver, "--yes")
	env.Must(car.Terminate())

	output, err := release("--dry-run")
	env.Must(err)
	env.ExpectOutput(output, fmt.Sprintf("%d PVs of %s would lose the finalizer", count, env.Driver), "and 30 more")
	env.WaitAllPVs(vols, "still protected", fixture.IsProtected)
	refused("not confirmed")
	refused("--driver is missing", "--driver=", "--yes")

	// It takes most of a minute, so that the interruption comes in the middle, also on a busy machine.
	p := env.StartPlugin("release", "--driver="+env.Driver, "--yes", "--workers=1", "--qps=1")
	env.Must(p.WaitLog(env.WithTimeout(), "of 40 released"))
	env.Must(p.Signal(syscall.SIGINT))
	output, err = env.WaitExit(p)
	if err == nil {
		t.Fatalf("it was not interrupted:\n%s", output)
	}
	env.ExpectOutput(output, "interrupted: run the same command again")
	left := 0
	for _, pv := range env.PVsOfDriver() {
		if fixture.HasFinalizer(pv) {
			left++
		}
	}
	if left == 0 || left == count {
		t.Fatalf("%d of %d are left after the interruption", left, count)
	}
	output, err = release("--yes")
	env.Must(err)
	env.ExpectOutput(output, plural.Count(left, "PV")+" "+plural.Verb(left, "was", "were")+" released")
	env.WaitAllPVs(vols, "without our finalizer", fixture.WithoutFinalizer)
	env.ExpectKept(vols...)
	env.ExpectOutput(env.RunPlugin("release", "--driver="+env.Driver), "0 PVs of")
}

// TestPluginReleaseUpdatesAdmissionPolicy expects the release to remove the driver from the policy first.
func TestPluginReleaseUpdatesAdmissionPolicy(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	env := &environment{fixture.NewWithAdmissionPolicy(t)}
	vol := env.MakeVolume(objects.Spec{Dynamic: true})
	env.WaitPV(vol, "protected", fixture.IsProtected)
	env.ExpectOutput(env.RunPlugin("status", "--driver="+env.Driver, "-o", "json"), `"admission": "yes"`)
	const object = "mutatingadmissionpolicy/" + admission.PolicyName
	env.ExpectOutput(env.RunPlugin("release", "--driver="+env.Driver, "--dry-run"), object+" lists "+env.Driver)
	env.WaitAdmissionInForce(true) // nothing was changed
	output, err := env.WaitExit(env.StartPlugin("release", "--role=owner", "--driver="+env.Driver, "--yes"))
	env.Must(err)
	env.ExpectOutput(output, env.Driver+" was removed from "+object, "1 PV was released")
	env.AnnotatePV(vol, "e2e.csi-reclaimer.io/touched", "yes")
	env.WaitPV(vol, "without our finalizer", fixture.WithoutFinalizer)
	env.ExpectOutput(env.RunPlugin("status", "--driver="+env.Driver, "-o", "json"), `"admission": "no"`)
}

// makeSet creates a StatefulSet without replicas, to which a volume's claim can belong.
func (env *environment) makeSet(name, template string) {
	env.T.Helper()
	labels := map[string]string{"app": name}
	env.StatefulSets().Create(&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}}}},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: template},
				Spec: objects.ClaimFor("none")}}},
	})
}

// TestPluginClaims runs the plugin on a StatefulSet as users with different permissions. TestPreview of
// test/e2e/statefulset compares previews with the actual changes.
func TestPluginClaims(t *testing.T) {
	env := begin(t)
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
	kube := env.grantReader("docs", env.documentedRules("reference/kubectl-reclaim-permissions.md"))
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
	kube := env.grantReader("namespaced", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: []string{"get", "list"}},
	})
	var output string
	env.Eventually("claims alone are missing", func() bool {
		var err error
		output, err = env.WaitExit(env.StartPluginAs(kube, "preview", "sts/"+set, "--delete"))
		return err != nil && strings.Contains(output, `list claims of namespace "`+env.Namespace+`"`)
	})
	env.ExpectOutput(output, "next: ask for the permission")
	kube = env.grantReader("claims", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "persistentvolumeclaims"}, Verbs: []string{"list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets"}, Verbs: []string{"get", "list"}},
	})
	output = env.askUntilGranted(kube, "preview", "sts/"+set, "--delete")
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
