//go:build unix

package operations

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

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
	attaches := true
	_, err := env.Client.StorageV1().CSIDrivers().Create(env.Ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: env.Driver}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attaches},
	}, metav1.CreateOptions{})
	env.Must(err)
	env.T.Cleanup(func() {
		_ = env.Client.StorageV1().CSIDrivers().Delete(env.CleanupContext(), env.Driver, metav1.DeleteOptions{})
	})
}

func TestPluginExplain(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	env.install()
	env.StartSidecar(fixture.FastRetries()...)

	attached, bound := env.MakeVolume(objects.Spec{Dynamic: true}), env.MakeVolume(objects.Spec{})
	kept := env.MakeVolume(objects.Spec{Policy: v1.PersistentVolumeReclaimRetain})
	env.WaitProtected(attached)
	env.WaitProtected(bound)
	env.Attach(attached)
	env.Must(attached.DeletePV(env.Ctx))
	env.Must(attached.DeleteClaim(env.Ctx))
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
		"/spec/claimRef")
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
	env.Must(env.Client.StorageV1().VolumeAttachments().Delete(env.Ctx, "csi-"+waiting.Name, metav1.DeleteOptions{}))
	env.Must(p.WaitLog(env.WithTimeout(), "pvs: 2"))
	env.Must(p.Stop(fixture.WaitTimeout))
}

// explainWithFewPermissions runs the plugin as a user who may read only PVs.
func (env *environment) explainWithFewPermissions(vol *objects.Volume) {
	env.T.Helper()
	env.grantReader("few", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"persistentvolumes"},
		Verbs: []string{"get"}}})
	kube := env.kubeconfigOf("few")
	var output string
	var err error
	env.Eventually("the right is granted", func() bool {
		output, err = env.WaitExit(env.StartPluginAs(kube, "explain", "pv/"+vol.Name))
		return err == nil
	})
	env.ExpectOutput(output, "PV "+vol.Name+" is bound (Bound)", "Not read", "VolumeAttachments: ",
		"So it is not known whether the volume is attached", "not readable here")
	output, err = env.WaitExit(env.StartPluginAs(kube, "status"))
	if err == nil {
		env.T.Errorf("a status without the right to list PVs:\n%s", output)
	}
	env.ExpectOutput(output, "list PVs", "next: ask for the permission")
}

// explainWithDocumentedPermissions runs the plugin as a user with the ClusterRole of
// docs/reference/kubectl-reclaim-permissions.md, who can read everything.
func (env *environment) explainWithDocumentedPermissions(vol *objects.Volume) {
	env.T.Helper()
	env.grantReader("docs", env.documentedRules("reference/kubectl-reclaim-permissions.md"))
	kube := env.kubeconfigOf("docs")
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

// grantReader makes a service account with these rights in the whole cluster.
func (env *environment) grantReader(account string, rules []rbacv1.PolicyRule) {
	env.T.Helper()
	name := account + "-" + env.Namespace
	rbac := env.Client.RbacV1()
	_, err := rbac.ClusterRoles().Create(env.Ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: rules}, metav1.CreateOptions{})
	env.Must(err)
	_, err = rbac.ClusterRoleBindings().Create(env.Ctx,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: env.Namespace,
				Name: account}}}, metav1.CreateOptions{})
	env.Must(err)
	env.T.Cleanup(func() {
		_ = rbac.ClusterRoleBindings().Delete(env.CleanupContext(), name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(env.CleanupContext(), name, metav1.DeleteOptions{})
	})
}

// kubeconfigOf returns the path of a kubeconfig file for a service account.
func (env *environment) kubeconfigOf(account string) string {
	env.T.Helper()
	config, err := env.Plane.ServiceAccount(env.Ctx, env.Namespace, account)
	env.Must(err)
	kube := filepath.Join(env.T.TempDir(), "kubeconfig")
	env.Must(controlplane.WriteKubeconfig(kube, config))
	return kube
}

func TestPluginRelease(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
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
	for _, vol := range vols {
		env.ExpectKept(vol)
	}
	env.ExpectOutput(env.RunPlugin("release", "--driver="+env.Driver), "0 PVs of")
}

// TestPluginReleaseUpdatesAdmissionPolicy expects the release to remove the driver from the policy first.
func TestPluginReleaseUpdatesAdmissionPolicy(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	env := newWithAdmissionPolicy(t)
	vol := env.MakeVolume(objects.Spec{Dynamic: true})
	env.WaitPV(vol, "protected", fixture.IsProtected)
	env.ExpectOutput(env.RunPlugin("status", "--driver="+env.Driver, "-o", "json"), `"admission": "yes"`)
	const object = "mutatingadmissionpolicy/" + admission.PolicyName
	env.ExpectOutput(env.RunPlugin("release", "--driver="+env.Driver, "--dry-run"), object+" lists "+env.Driver)
	env.WaitAdmissionInForce(true) // nothing was changed
	output, err := env.WaitExit(env.StartPlugin("release", "--driver="+env.Driver, "--yes"))
	env.Must(err)
	env.ExpectOutput(output, env.Driver+" was removed from "+object, "1 PV was released")
	env.AnnotatePV(vol, "e2e.csi-reclaimer.io/touched", "yes")
	env.WaitPV(vol, "without our finalizer", fixture.WithoutFinalizer)
	env.ExpectOutput(env.RunPlugin("status", "--driver="+env.Driver, "-o", "json"), `"admission": "no"`)
}
