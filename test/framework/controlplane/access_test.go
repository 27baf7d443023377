//go:build unix

package controlplane

import (
	"context"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestServiceAccountHasExactlyItsPermissions(t *testing.T) {
	cp := sharedControlPlane(t)
	ns := namespace(t, cp)
	config, err := cp.ServiceAccount(t.Context(), ns, "reclaimer")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cp.ServiceAccount(t.Context(), ns, "reclaimer"); err != nil {
		t.Errorf("again, existing: %v", err)
	}
	volumes := clientFor(t, config).CoreV1().PersistentVolumes()
	if _, err := volumes.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("list before the grant: %v, want Forbidden", err)
	}
	grantListOfVolumes(t, cp, ns, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "reclaimer"})
	eventuallyAllowed(t, "list after the grant", func(ctx context.Context) error {
		_, err := volumes.List(ctx, metav1.ListOptions{})
		return err
	})
	if err := volumes.Delete(t.Context(), "any", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete: %v, want Forbidden", err)
	}
}

func TestUsersMatchTheirKubeconfigs(t *testing.T) {
	cp := sharedControlPlane(t)
	ns := namespace(t, cp)
	account, err := cp.ServiceAccount(t.Context(), ns, "reclaimer")
	if err != nil {
		t.Fatal(err)
	}
	user, err := cp.ConfigFor("jane", "team-a", "team-b")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		config *rest.Config
		user   string
		groups string
	}{
		"admin":          {cp.Admin(), "admin", "system:masters system:authenticated"},
		"user in groups": {user, "jane", "team-a team-b system:authenticated"},
		"service account": {account, "system:serviceaccount:" + ns + ":reclaimer",
			"system:serviceaccounts system:serviceaccounts:" + ns + " system:authenticated"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := cp.Kubeconfig(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("kubeconfig has mode %o, want 600", info.Mode().Perm())
			}
			read, err := clientcmd.BuildConfigFromFlags("", path)
			if err != nil {
				t.Fatal(err)
			}
			for _, config := range []*rest.Config{tc.config, read} {
				review, err := clientFor(t, config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
					&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				got := review.Status.UserInfo
				if got.Username != tc.user || strings.Join(got.Groups, " ") != tc.groups {
					t.Errorf("is %s in %q, want %s in %q", got.Username, got.Groups, tc.user, tc.groups)
				}
			}
		})
	}
}

func TestAuditLogHasEachRequestOnce(t *testing.T) {
	cp := sharedControlPlane(t)
	ns := namespace(t, cp)
	config, err := cp.ServiceAccount(t.Context(), ns, "counted")
	if err != nil {
		t.Fatal(err)
	}
	config.UserAgent = "audit-test"
	user := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "counted"}
	grantListOfVolumes(t, cp, ns, user)
	volumes := clientFor(t, config).CoreV1().PersistentVolumes()
	eventuallyAllowed(t, "list", func(ctx context.Context) error {
		_, err := volumes.List(ctx, metav1.ListOptions{})
		return err
	})
	if _, err := volumes.Get(t.Context(), "absent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("get: %v, want NotFound", err)
	}
	if err := volumes.Delete(t.Context(), "absent", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("delete: %v, want Forbidden", err)
	}
	watch, err := volumes.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	logged := func() (codes map[string][]int) {
		events, err := cp.AuditEvents(func(e AuditEvent) bool {
			return e.User == "system:serviceaccount:"+ns+":counted" && e.UserAgent == "audit-test" &&
				e.Resource == "persistentvolumes"
		})
		if err != nil {
			t.Fatal(err)
		}
		codes = map[string][]int{}
		for _, e := range events {
			if e.ID == "" || e.Received.IsZero() || e.Answered.Before(e.Received) {
				t.Errorf("incomplete event: %+v", e)
			}
			if e.Verb == "list" && e.Code == 403 {
				continue // before the grant was known to the authorizer
			}
			codes[e.Verb+" "+e.Name] = append(codes[e.Verb+" "+e.Name], e.Code)
		}
		return codes
	}
	want := map[string]int{"list ": 200, "get absent": 404, "delete absent": 403, "watch ": 200}
	eventuallyAllowed(t, "all in the log", func(context.Context) error {
		if len(logged()) < len(want) {
			return errNotYet
		}
		return nil
	})
	watch.Stop()
	for request, codes := range logged() {
		if len(codes) != 1 || codes[0] != want[request] {
			t.Errorf("%s: answered %v, want once %d", request, codes, want[request])
		}
	}
}

// grantListOfVolumes lets subject list, watch and get PersistentVolumes.
func grantListOfVolumes(t *testing.T, cp *ControlPlane, name string, subject rbacv1.Subject) {
	t.Helper()
	rbac := clientFor(t, cp.Admin()).RbacV1()
	name = name + "-" + subject.Name
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get", "list", "watch"},
	}}}
	if _, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// eventuallyAllowed is eventually for a request that is Forbidden at first, because the API server's authorizer learns
// of a grant by a watch.
func eventuallyAllowed(t *testing.T, what string, question func(ctx context.Context) error) {
	t.Helper()
	eventually(t, what, func(ctx context.Context) error {
		if err := question(ctx); err != nil {
			return errNotYetBecause(err)
		}
		return nil
	})
}
