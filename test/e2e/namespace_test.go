//go:build unix

package e2e

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// elsewhere is the same stage with claims in a namespace of their own, which may go while the sidecar works.
func (s *stage) elsewhere() *stage {
	s.t.Helper()
	namespace, err := s.plane.CreateNamespace(s.ctx, "e2e-users-")
	s.must(err)
	sub := *s
	sub.Namespace = namespace
	return &sub
}

func (s *stage) deleteNamespace() {
	s.t.Helper()
	s.must(s.client.CoreV1().Namespaces().Delete(s.ctx, s.Namespace, metav1.DeleteOptions{}))
}

func (s *stage) waitNamespaceGone() {
	s.t.Helper()
	s.eventually("namespace "+s.Namespace+" is gone", func() bool {
		_, err := s.client.CoreV1().Namespaces().Get(s.ctx, s.Namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// TestProvisionWithinAQuota has a namespace be full with one claim: what csi-reclaimer writes counts for nothing.
func TestProvisionWithinAQuota(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	class := s.class()
	users := s.elsewhere()
	quotas := s.client.CoreV1().ResourceQuotas(users.Namespace)
	_, err := quotas.Create(s.ctx, &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: v1.ResourceQuotaSpec{Hard: v1.ResourceList{
		v1.ResourcePersistentVolumeClaims: resource.MustParse("1"), v1.ResourceRequestsStorage: resource.MustParse("1Mi"),
	}}}, metav1.CreateOptions{})
	s.must(err)
	s.eventually("the quota is in force", func() bool {
		now, err := quotas.Get(s.ctx, "full", metav1.GetOptions{})
		return err == nil && len(now.Status.Hard) == 2
	})
	for range 2 { // one after another
		claim := users.claim(class)
		if _, err := users.tryClaim(class); !apierrors.IsForbidden(err) {
			t.Fatalf("a second claim: %v, want it refused by the quota", err)
		}
		vol := users.bound(claim)
		users.deleteClaim(claim)
		s.must(vol.WaitGone(s.soon()))
		users.waitClaim(claim, "gone", noClaim)
		users.nothingLeft(claim)
		s.eventually("the quota is free", func() bool {
			now, err := quotas.Get(s.ctx, "full", metav1.GetOptions{})
			used := now.Status.Used[v1.ResourcePersistentVolumeClaims]
			return err == nil && used.IsZero()
		})
	}
	refused, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool { return e.Code == 403 })
	s.must(err)
	if len(refused) > 0 {
		t.Errorf("refused: %+v", refused)
	}
}

// TestProvisionInANamespaceThatGoes deletes a namespace while the volumes of its claims are made.
func TestProvisionInANamespaceThatGoes(t *testing.T) {
	t.Parallel()
	t.Run("nothing is left", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		s.sidecar(eager()...)
		users, class := s.elsewhere(), s.class()
		users.bound(users.claim(class))
		s.must(s.driver.SetFaults(s.ctx, slowly(true, 2*time.Second)))
		var claims []*storage.Claim
		for range 8 {
			claims = append(claims, users.claim(class))
		}
		s.eventually("some volumes are there, unseen", func() bool { return len(s.onDiskAll()) > 2 })
		users.deleteNamespace()
		users.waitNamespaceGone()
		for _, claim := range claims {
			users.gone(claim)
		}
		s.eventually("all volumes are gone", func() bool { return len(s.onDiskAll()) == 0 })
	})
	t.Run("the Secret went first: the namespace goes, and what is in flight is finished when the Secret is back", func(t *testing.T) {
		t.Parallel()
		s := newStageAs(t, "owner", mockdriver.Options{Args: []string{"--require-secret=password=hunter2"}})
		car := s.sidecar(eager()...)
		users, vault := s.elsewhere(), s.elsewhere()
		vault.secret("credentials", map[string]string{"password": "hunter2"})
		class := s.class(func(class *storage.Class) {
			class.Parameters = map[string]string{
				"csi.storage.k8s.io/provisioner-secret-name": "credentials", "csi.storage.k8s.io/provisioner-secret-namespace": vault.Namespace,
			}
		})
		s.must(s.driver.SetFaults(s.ctx, lostAnswers()))
		claim := users.claim(class)
		s.eventually("the volume is on the disk", func() bool { return len(s.onDiskAll()) == 1 })
		secrets := s.client.CoreV1().Secrets(vault.Namespace)
		s.must(secrets.Delete(s.ctx, "credentials", metav1.DeleteOptions{}))
		users.deleteNamespace()
		users.waitNamespaceGone()
		s.must(s.driver.ClearFaults(s.ctx))
		// No Event can be made in a namespace that is gone. The log of the program shows the reason.
		s.must(car.WaitLog(s.soon(), `reason="`+string(provisioningOutcomeUnknown)+`"`))
		if !s.inFlight(claim) || len(s.onDiskAll()) != 1 {
			t.Fatal("the entry was closed while the volume is left, or the volume was deleted without its Secret")
		}
		_, err := secrets.Create(s.ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "credentials"}, StringData: map[string]string{"password": "hunter2"}}, metav1.CreateOptions{})
		s.must(err)
		s.settled(claim)
		s.gone(claim)
	})
}

// provisioningOutcomeUnknown is the reason while it is not known whether a volume was made.
const provisioningOutcomeUnknown = "ProvisioningOutcomeUnknown"

// secret makes a Secret that the sidecar may read wherever it lies, so that it is gone for no other reason than that it is gone.
func (s *stage) secret(name string, values map[string]string) {
	s.t.Helper()
	_, err := s.client.CoreV1().Secrets(s.Namespace).Create(s.ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: values}, metav1.CreateOptions{})
	s.must(err)
	roles, bindings, role := s.client.RbacV1().ClusterRoles(), s.client.RbacV1().ClusterRoleBindings(), "secrets-"+s.Namespace
	_, err = roles.Create(s.ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name}, Verbs: []string{"get"}},
	}}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() { _ = roles.Delete(s.clean(), role, metav1.DeleteOptions{}) })
	_, err = bindings.Create(s.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: s.user}},
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() { _ = bindings.Delete(s.clean(), role, metav1.DeleteOptions{}) })
}

// lostAnswers has volumes be made, and nobody be told.
func lostAnswers() faults.Plan {
	return faults.Plan{Rules: []faults.Rule{{Method: "CreateVolume", Action: faults.Fail, AfterWork: true, Code: "DeadlineExceeded"}}}
}
