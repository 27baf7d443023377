//go:build controlplane && unix

package authorization

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// The filter runs with the shipped permissions.
func TestRealAPIServer(t *testing.T) {
	plane, err := controlplane.Start(t.Context(), controlplane.Newest, controlplane.Options{NoControllerManager: true,
		Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			_ = plane.Stop()
		}
	})
	w := &world{t: t, plane: plane, at: testclock.NewFakeClock(time.Now())}
	must := w.must
	w.client, err = kubernetes.NewForConfig(plane.Admin())
	must(err)
	w.namespace, err = plane.CreateNamespace(t.Context(), "authorization-")
	must(err)
	own, err := plane.ServiceAccount(t.Context(), w.namespace, "program")
	must(err)
	f, err := New(own)
	must(err)
	f.reviews = newReviews(f.reviews.api, w.at) // no part of it takes the real clock
	w.filter = f

	good := w.token("viewer")
	w.expect(good, http.StatusServiceUnavailable, "system:auth-delegator") // it lacks its permissions
	missing, err := f.MissingPermissions(t.Context())
	must(err)
	if len(missing) != 2 || !strings.Contains(missing[0].String(), `resources: ["tokenreviews"]`) {
		t.Errorf("missing are %v", missing)
	}
	_, err = rbac.GrantHTTPAuthorization(t.Context(), w.client, w.namespace, "program")
	must(err)
	w.eventually("it may ask", func() bool {
		missing, err := f.MissingPermissions(t.Context())
		return err == nil && len(missing) == 0
	})
	if permissions := Permissions(); !onlyCreate(permissions) {
		t.Errorf("permissions are %v", permissions)
	}
	w.expect("", http.StatusUnauthorized, "a token is required")
	w.expect("invented", http.StatusUnauthorized, "not valid")
	w.expect(good+"x", http.StatusUnauthorized, "not valid") // another signature
	w.expect(w.tokenFor("viewer", "somebody-else"), http.StatusUnauthorized, "not valid")
	w.expect(good, http.StatusForbidden, `user "system:serviceaccount:`+w.namespace+`:viewer" may not get /web/`)
	w.at.Step(refusedFor)
	must(rbac.GrantHTTP(t.Context(), w.client, "volume-guard-web-viewer", w.namespace, "viewer"))
	w.eventually("the role is in force", func() bool {
		w.at.Step(refusedFor)
		return w.ask(good).Code == http.StatusOK
	})
	// A group instead of a user: all service accounts of the namespace.
	other := w.token("member")
	w.expect(other, http.StatusForbidden, "")
	w.bindGroup("system:serviceaccounts:" + w.namespace)
	w.eventually("the group is let in", func() bool {
		w.at.Step(refusedFor)
		return w.ask(other).Code == http.StatusOK
	})
	must(w.client.RbacV1().ClusterRoleBindings().Delete(t.Context(), "group", metav1.DeleteOptions{}))
	w.expect(other, http.StatusOK, "") // cached for a minute
	w.eventually("the role is removed", func() bool {
		w.at.Step(allowedFor)
		return w.ask(other).Code == http.StatusForbidden
	})
	t.Run("a token whose account is gone is not valid", func(t *testing.T) {
		suite.Deep(t, suite.WaitsForClock) // the API server caches a valid token for 10 seconds
		must(w.client.CoreV1().ServiceAccounts(w.namespace).Delete(t.Context(), "member", metav1.DeleteOptions{}))
		w.eventually("the token is refused", func() bool {
			w.at.Step(refusedFor)
			return w.ask(other).Code == http.StatusUnauthorized
		})
	})

	stopped = true
	must(plane.Stop())
	w.at.Step(allowedFor)
	w.expect(good, http.StatusServiceUnavailable, "try again")
}

func onlyCreate(all []permission.Permission) bool {
	for _, one := range all {
		if one.Verb != "create" {
			return false
		}
	}
	return len(all) == 2
}

type world struct {
	t         *testing.T
	plane     *controlplane.ControlPlane
	client    kubernetes.Interface
	namespace string
	filter    *Filter
	at        *testclock.FakeClock
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// eventually allows for a machine that stalls any process for half a minute.
func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("waited in vain: " + what)
		}
	}
}

// token returns a token of a new service account for the API server.
func (w *world) token(account string) string {
	w.t.Helper()
	config, err := w.plane.ServiceAccount(w.t.Context(), w.namespace, account)
	w.must(err)
	return config.BearerToken
}

// tokenFor returns a token for another audience.
func (w *world) tokenFor(account, audience string) string {
	w.t.Helper()
	token, err := w.client.CoreV1().ServiceAccounts(w.namespace).CreateToken(w.t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}},
		metav1.CreateOptions{})
	w.must(err)
	return token.Status.Token
}

func (w *world) bindGroup(group string) {
	w.t.Helper()
	_, err := w.client.RbacV1().ClusterRoleBindings().Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "group"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "volume-guard-web-viewer"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	}, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) ask(token string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/web/", http.NoBody)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer := httptest.NewRecorder()
	w.filter.Handler("/web/", http.NotFoundHandler()).ServeHTTP(answer, r)
	if answer.Code == http.StatusNotFound { // it passed
		answer.Code = http.StatusOK
	}
	return answer
}

func (w *world) expect(token string, status int, text string) {
	w.t.Helper()
	if answer := w.ask(token); answer.Code != status || !strings.Contains(answer.Body.String(), text) {
		w.t.Errorf("token %.8q: %d %q, want %d and %q", token, answer.Code, answer.Body, status, text)
	}
}
