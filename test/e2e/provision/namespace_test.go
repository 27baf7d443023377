//go:build unix

package provision

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestProvisionWithinResourceQuota fills the quota of a namespace with one claim: csi-reclaimer's own objects do not
// count.
func TestProvisionWithinResourceQuota(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(fixture.FastRetries()...)
	class := env.CreateStorageClass()
	users := env.inOtherNamespace()
	quotas := env.Client.CoreV1().ResourceQuotas(users.Namespace)
	_, err := quotas.Create(env.Ctx, &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec: v1.ResourceQuotaSpec{Hard: v1.ResourceList{
			v1.ResourcePersistentVolumeClaims: resource.MustParse("1"), v1.ResourceRequestsStorage: resource.MustParse("1Mi"),
		}}}, metav1.CreateOptions{})
	env.Must(err)
	// The admission of claims observes the quota with a watch of its own.
	admits := func(size string) bool {
		_, err := env.Client.CoreV1().PersistentVolumeClaims(users.Namespace).Create(env.Ctx, &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "probe"},
			Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class,
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{
					v1.ResourceStorage: resource.MustParse(size)}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil
	}
	env.Eventually("the quota is in force", func() bool { return !admits("2Mi") })
	for range 2 { // one after another
		claim := users.CreateClaim(class)
		if _, err := users.TryCreateClaim(class); !apierrors.IsForbidden(err) {
			t.Fatalf("a second claim: %v, want it refused by the quota", err)
		}
		vol := users.WaitBound(claim)
		users.MustDeleteClaim(claim)
		env.Must(vol.WaitGone(env.WithTimeout()))
		users.WaitClaim(claim, "gone", fixture.ClaimIsGone)
		users.ExpectNothingLeft(claim)
		env.Eventually("the quota is free", func() bool { return admits("1Mi") })
	}
	refused, err := env.Plane.AuditEventsOf(env.User, func(e controlplane.AuditEvent) bool { return e.Code == 403 })
	env.Must(err)
	if len(refused) > 0 {
		t.Errorf("refused: %+v", refused)
	}
}

// TestProvisionInTerminatingNamespace deletes a namespace during CreateVolume.
func TestProvisionInTerminatingNamespace(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	t.Run("nothing is left", func(t *testing.T) {
		t.Parallel()
		env := newEnvironment(t)
		env.StartSidecar(fixture.FastRetries()...)
		users, class := env.inOtherNamespace(), env.CreateStorageClass()
		users.WaitBound(users.CreateClaim(class))
		env.Must(env.MockDriver.SetFaults(env.Ctx, fixture.BlockCreateVolume(true)))
		var claims []*objects.Claim
		for range 8 {
			claims = append(claims, users.CreateClaim(class))
		}
		env.Eventually("some volumes are there, unseen", func() bool { return len(env.VolumesOnDisk()) > 2 })
		users.DeleteNamespace()
		users.WaitNamespaceGone()
		env.Must(env.MockDriver.ClearFaults(env.Ctx))
		for _, claim := range claims {
			users.waitVolumeGone(claim)
		}
		env.Eventually("all volumes are gone", func() bool { return len(env.VolumesOnDisk()) == 0 })
	})
	t.Run("a Secret deleted first delays the in-flight volume, not the namespace",
		func(t *testing.T) {
			suite.Deep(t, suite.Variant)
			t.Parallel()
			env := newForRole(t, "owner", mockdriver.Options{Args: []string{"--require-secret=password=hunter2"}})
			car := env.StartSidecar(fixture.FastRetries()...)
			users, vault := env.inOtherNamespace(), env.inOtherNamespace()
			vault.secret("credentials", map[string]string{"password": "hunter2"})
			class := env.CreateStorageClass(func(class *objects.Class) {
				class.Parameters = map[string]string{
					"csi.storage.k8s.io/provisioner-secret-name":      "credentials",
					"csi.storage.k8s.io/provisioner-secret-namespace": vault.Namespace,
				}
			})
			env.Must(env.MockDriver.SetFaults(env.Ctx, loseCreateAnswers()))
			claim := users.CreateClaim(class)
			env.Eventually("the volume is on the disk", func() bool { return len(env.VolumesOnDisk()) == 1 })
			secrets := env.Client.CoreV1().Secrets(vault.Namespace)
			env.Must(secrets.Delete(env.Ctx, "credentials", metav1.DeleteOptions{}))
			users.DeleteNamespace()
			users.WaitNamespaceGone()
			env.Must(env.MockDriver.ClearFaults(env.Ctx))
			// No Event can be made in a namespace that is gone. The log of the program shows the reason.
			env.Must(car.WaitLog(env.WithTimeout(), `reason="`+string(provisioningOutcomeUnknown)+`"`))
			if !env.IsInFlight(claim) || len(env.VolumesOnDisk()) != 1 {
				t.Fatal("the entry was closed while the volume is left, or the volume was deleted without its Secret")
			}
			_, err := secrets.Create(env.Ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "credentials"},
				StringData: map[string]string{"password": "hunter2"}}, metav1.CreateOptions{})
			env.Must(err)
			env.waitSettled(claim)
			env.waitVolumeGone(claim)
		})
}

// provisioningOutcomeUnknown is the reason while it is not known whether a volume was made.
const provisioningOutcomeUnknown = "ProvisioningOutcomeUnknown"

// secret makes a Secret that the sidecar may read wherever it lies, so that it is gone for no other reason than that it
// is gone.
func (env *environment) secret(name string, values map[string]string) {
	env.T.Helper()
	_, err := env.Client.CoreV1().Secrets(env.Namespace).Create(env.Ctx,
		&v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: values}, metav1.CreateOptions{})
	env.Must(err)
	roles, bindings := env.Client.RbacV1().ClusterRoles(), env.Client.RbacV1().ClusterRoleBindings()
	role := "secrets-" + env.Namespace
	_, err = roles.Create(env.Ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name}, Verbs: []string{"get"}},
		}}, metav1.CreateOptions{})
	env.Must(err)
	env.T.Cleanup(func() { _ = roles.Delete(env.CleanupContext(), role, metav1.DeleteOptions{}) })
	_, err = bindings.Create(env.Ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: env.User}},
	}, metav1.CreateOptions{})
	env.Must(err)
	env.T.Cleanup(func() { _ = bindings.Delete(env.CleanupContext(), role, metav1.DeleteOptions{}) })
}

// loseCreateAnswers has the driver create volumes and lose its answers.
func loseCreateAnswers() faults.Plan {
	return faults.Plan{Rules: []faults.Rule{{Method: "CreateVolume", Action: faults.Fail, AfterWork: true,
		Code: "DeadlineExceeded"}}}
}
