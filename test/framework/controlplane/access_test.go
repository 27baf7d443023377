//go:build unix

package controlplane

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestServiceAccountHasExactlyItsPermissions(t *testing.T) {
	cp := sharedControlPlane(t)
	ns := namespace(t, cp)
	config := must.Get(cp.ServiceAccount(t.Context(), ns, "reclaimer"))(t)
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
	account := must.Get(cp.ServiceAccount(t.Context(), ns, "reclaimer"))(t)
	user := must.Get(cp.ConfigFor("jane", "team-a", "team-b"))(t)
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
			path := must.Get(cp.Kubeconfig(tc.config))(t)
			info := must.Get(os.Stat(path))(t)
			if info.Mode().Perm() != 0o600 {
				t.Errorf("kubeconfig has mode %o, want 600", info.Mode().Perm())
			}
			read := must.Get(clientcmd.BuildConfigFromFlags("", path))(t)
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
	config := must.Get(cp.ServiceAccount(t.Context(), ns, "counted"))(t)
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
	watch := must.Get(volumes.Watch(t.Context(), metav1.ListOptions{}))(t)
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

const (
	auditGet    = `{"kind":"Event","auditID":"1","stage":"ResponseComplete","verb":"get","responseStatus":{"code":200}}`
	auditStart  = `{"kind":"Event","auditID":"2","stage":"ResponseStarted","verb":"watch"}`
	auditFinish = `{"kind":"Event","auditID":"2","stage":"ResponseComplete","verb":"watch"}`
	auditDelete = `{"kind":"Event","auditID":"3","stage":"ResponseComplete","verb":"delete"}`
)

func TestReadAuditLog(t *testing.T) {
	for name, tc := range map[string]struct {
		log     string
		want    string
		wantErr string
	}{
		"empty":                         {},
		"whole lines":                   {log: auditGet + "\n" + auditDelete + "\n", want: "get delete"},
		"last line half written":        {log: auditGet + "\n" + auditDelete[:40], want: "get"},
		"last line without its newline": {log: auditGet + "\n" + auditDelete, want: "get"},
		"a watch counts once": {log: auditStart + "\n" + auditGet + "\n" + auditFinish + "\n",
			want: "watch get"},
		"cut by a kill, then continued":     {log: auditGet[:50] + auditDelete + "\n", want: "delete"},
		"the marker inside a value is text": {log: `{"kind":"Event","auditID":"4","verb":"get","userAgent":"{\"kind\":\"Event\""}` + "\n", want: "get"},
		"no audit log":                      {log: auditGet + "\nhello\n", wantErr: "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			must.OK(t, os.WriteFile(path, []byte(tc.log), 0o600))
			events, err := ReadAuditLog(path, nil)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var verbs []string
			for _, e := range events {
				verbs = append(verbs, e.Verb)
			}
			if got := strings.Join(verbs, " "); got != tc.want {
				t.Errorf("read %q, want %q", got, tc.want)
			}
		})
	}
}

// TestAuditLogReadingContinues writes lines between two readings, one of them in two parts.
func TestAuditLogReadingContinues(t *testing.T) {
	cp := &ControlPlane{options: Options{AuditLog: true}, folder: folder{path: t.TempDir()}}
	events := func(user string) string {
		t.Helper()
		list := must.Get(cp.AuditEventsOf(user, nil))(t)
		var verbs []string
		for _, e := range list {
			verbs = append(verbs, e.Verb)
		}
		return strings.Join(verbs, " ")
	}
	line := func(id, user, verb string) string {
		return `{"kind":"Event","auditID":"` + id + `","verb":"` + verb + `","user":{"username":"` + user + `"}}` + "\n"
	}
	second := line("2", "me", "patch")
	write := func(text string) {
		t.Helper()
		file := must.Get(os.OpenFile(cp.AuditLog(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600))(t)
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		must.OK(t, file.Close())
	}
	write(line("1", "me", "get") + second[:20])
	if got := events("me"); got != "get" {
		t.Errorf("read %q, want the whole line alone", got)
	}
	write(second[20:] + line("3", "other", "delete") + line("1", "me", "get"))
	if got := events("me"); got != "get patch" {
		t.Errorf("read %q, want each request once", got)
	}
	if got := events("other"); got != "delete" {
		t.Errorf("read %q of another user", got)
	}
	read := cp.audit.of["me"].offset
	if info, err := os.Stat(cp.AuditLog()); err != nil || info.Size() != read {
		t.Errorf("the log was read up to %d of %d bytes: %v", read, info.Size(), err)
	}
}
