//go:build unix

package e2e

import (
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// stockRules are those of the stock sidecar (kubernetes-csi/external-provisioner,
// deploy/kubernetes/rbac.yaml), without what concerns capacity; patch on PVs came with KEP-2644.
func stockRules(pvVerbs ...string) []rbacv1.PolicyRule {
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	return []rbacv1.PolicyRule{
		rule("", "persistentvolumes", append([]string{"get", "list", "watch", "create", "delete"}, pvVerbs...)...),
		rule("", "persistentvolumeclaims", "get", "list", "watch", "update"),
		rule("storage.k8s.io", "storageclasses", "get", "list", "watch"),
		rule("", "events", "list", "watch", "create", "update", "patch"),
		rule("storage.k8s.io", "csinodes", "get", "list", "watch"),
		rule("", "nodes", "get", "list", "watch"),
		rule("storage.k8s.io", "volumeattachments", "get", "list", "watch"),
		rule("snapshot.storage.k8s.io", "volumesnapshots", "get", "list", "watch", "update"),
		rule("snapshot.storage.k8s.io", "volumesnapshotcontents", "get", "list"),
		rule("coordination.k8s.io", "leases", "get", "watch", "list", "delete", "update", "create"), // there for its namespace alone
	}
}

// allow sets what the account of a stage without a role may do in the whole cluster.
func (s *stage) allow(rules []rbacv1.PolicyRule) {
	s.t.Helper()
	roles := s.client.RbacV1().ClusterRoles()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "stock-" + s.Namespace}, Rules: rules}
	_, err := roles.Create(s.ctx, role, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = roles.Update(s.ctx, role, metav1.UpdateOptions{})
		s.must(err)
		return
	}
	s.must(err)
	s.t.Cleanup(func() { _ = roles.Delete(s.clean(), role.Name, metav1.DeleteOptions{}) })
	_, err = s.client.RbacV1().ClusterRoleBindings().Create(s.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.Namespace, Name: "csi-reclaimer"}},
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		_ = s.client.RbacV1().ClusterRoleBindings().Delete(s.clean(), role.Name, metav1.DeleteOptions{})
	})
	s.eventually("the rules are in force", func() bool { return s.may("list", "", "nodes") })
}

// may tells whether the stage's account may do something.
func (s *stage) may(verb, group, resource string) bool {
	s.t.Helper()
	review, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(s.ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: s.user, Groups: []string{"system:serviceaccounts", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	return review.Status.Allowed
}

func TestTheStockSidecarsRightsAreEnough(t *testing.T) {
	t.Parallel()
	s := newStageAs(t, "", mockdriver.Options{})
	s.allow(stockRules("patch"))
	car := s.sidecar(eager()...)
	s.fence()
	vol := s.make(storage.Spec{})
	s.waitProtected(vol)
	s.must(vol.DeletePV(s.ctx))
	s.must(vol.DeleteClaim(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	made := s.bound(s.claim(s.class()))
	s.deleteClaim(made.claim)
	s.must(made.WaitGone(s.soon()))
	s.nothingLeft(made.claim)
	// It does without what it has beyond that sidecar, and says so.
	s.must(car.WaitLog(s.soon(), "Preflight: may not patch persistentvolumeclaims: no claim is cloned"))
	for line := range strings.Lines(car.LogTail(500)) {
		if strings.Contains(line, "Preflight: may not") && !strings.Contains(line, "patch persistentvolumeclaims") && !strings.Contains(line, "get volumeattributesclasses") && !strings.Contains(line, "get mutatingadmissionpolic") {
			t.Errorf("something is missing: %s", line)
		}
	}
}

func TestAnOldStockSidecarsRightsLackProtection(t *testing.T) {
	t.Parallel()
	s := newStageAs(t, "", mockdriver.Options{})
	s.allow(stockRules())
	car := s.sidecar(eager()...) // ready: no deletion is unsafe
	s.must(car.WaitLog(s.soon(), `Preflight: may not patch persistentvolumes: no PV is protected`))
	if log := car.LogTail(200); !strings.Contains(log, `{apiGroups: [\"\"], resources: [\"persistentvolumes\"], verbs: [\"patch\"]}`) {
		t.Errorf("the rule to add is not named:\n%s", log)
	}
}

func TestReadinessIsRedWhereNoDeletionCanBeProven(t *testing.T) {
	t.Parallel()
	s := newStageAs(t, "", mockdriver.Options{})
	all := stockRules("patch")
	s.allow(append(all[:1:1], all[2:]...)) // no claims
	car := s.launch(eager()...)
	s.must(car.WaitLog(s.soon(), "Preflight: may not get persistentvolumeclaims"))
	if _, err := car.Get(s.ctx, "/readyz"); err == nil || !strings.Contains(err.Error(), "persistentvolumeclaims") {
		t.Errorf("/readyz: %v, want it red for the claims", err)
	}
	vol := s.make(storage.Spec{})
	s.waitProtected(vol) // protection needs no claims
	s.must(vol.DeleteClaim(s.ctx))
	s.waitEvent(vol, "Unreadable", "")
	s.expectKept(vol)
	s.allow(all)
	granted := time.Now()
	s.must(car.WaitReady(s.soon()))
	s.must(vol.WaitGone(s.soon()))
	s.expectDeleted(vol, 1)
	t.Logf("green and at work %v after the right was granted", time.Since(granted).Round(time.Second))
}

func TestADriverThatCannotDeleteIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newStageAs(t, "owner", mockdriver.Options{Profile: "static", Args: []string{"--static-volume=there"}})
	car := s.launch()
	s.must(car.WaitLog(s.soon(), "does not advertise CREATE_DELETE_VOLUME"))
	if _, err := car.Get(s.ctx, "/readyz"); err == nil || !strings.Contains(err.Error(), "CREATE_DELETE_VOLUME") {
		t.Errorf("/readyz: %v, want it red for the capability", err)
	}
	vol := s.make(storage.Spec{Handle: "there"})
	s.must(vol.DeletePV(s.ctx))
	s.must(vol.DeleteClaim(s.ctx))
	s.must(vol.WaitGone(s.soon())) // nothing of ours holds it for ever
	if events := s.writes(s.user, []*storage.Volume{vol}); len(events) > 0 {
		t.Errorf("wrote %v", events)
	}
}
