//go:build unix

package confirm

import (
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/commandline"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// operatorRules returns the rules of the ClusterRole for people who fence nodes.
func operatorRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	for _, o := range must.Get(manifests.Read(manifests.NodeFencingRoles))(t) {
		if o.GetName() == "csi-reclaimer-fencing-operator" {
			var role rbacv1.ClusterRole
			must.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
			return role.Rules
		}
	}
	t.Fatal("the role was not found")
	return nil
}

// allowed reports whether rules allow a request.
func allowed(rules []rbacv1.PolicyRule, r *http.Request) bool {
	group, parts := "", strings.Split(r.URL.Path, "/")[3:] // after /api/v1 or /apis/GROUP
	if strings.HasPrefix(r.URL.Path, "/apis/") {
		group, parts = strings.Split(r.URL.Path, "/")[2], parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	verb := map[string]string{"POST": "create", "PATCH": "patch", "DELETE": "delete", "GET": "list"}[r.Method]
	if verb == "list" && len(parts) > 1 {
		verb = "get"
	}
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, parts[0]) &&
			slices.Contains(rule.Verbs, verb)
	})
}

// TestOperatorRoleSuffices refuses each request that the role does not allow. The lists that are refused only show
// Events, and how policies act.
func TestOperatorRoleSuffices(t *testing.T) {
	unneeded := []string{"events", "namespaces", "nodes", "poddisruptionbudgets"}
	rules := operatorRules(t)
	for args, change := range map[string]func(*fenceServer){
		"fence n1 --reason=r --yes": func(*fenceServer) {}, "fence n1 --reason=r --manual --yes": (*fenceServer).ended,
		"unfence n1 --yes": (*fenceServer).exists, "confirm node/n1 --because=off --yes": (*fenceServer).exists,
	} {
		t.Run(args, func(t *testing.T) {
			s := newFenceServer()
			change(s)
			limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if allowed(rules, r) {
					s.ServeHTTP(w, r)
					return
				}
				if !slices.Contains(unneeded, path.Base(r.URL.Path)) {
					t.Errorf("the role does not allow %s of %s", r.Method, r.URL.Path)
				}
				commandline.Refuse(w, http.StatusForbidden)
			})
			typed := commandline.Person("", s, &s.mu, nil)
			if _, err := root.Against(t, limited, typed, strings.Split(args, " ")...); err != nil || len(s.writes) == 0 {
				t.Errorf("it writes %q: %v", s.writes, err)
			}
		})
	}
}
