//go:build unix

package operations

import (
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// TestLeakDetectionNeedsListVolumes expects the program to report a driver that cannot list volumes.
func TestLeakDetectionNeedsListVolumes(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	env := newLeakEnvironment(t, mockdriver.Options{Profile: "no-list"})
	car := env.StartSidecar(append(fixture.FastRetries(), "--leak-check-interval=50ms")...)
	env.Must(car.WaitLog(env.WithTimeout(), "does not advertise LIST_VOLUMES: no leak check runs"))
	const missing = "does not advertise LIST_VOLUMES"
	if r := env.report(car); !strings.Contains(r.Off, missing) || len(r.Volumes) > 0 {
		t.Errorf("%+v", r)
	}
	text, err := car.Get(env.Ctx, "/leaks")
	env.Must(err)
	env.ExpectOutput(text, "No leak checks are made: driver "+env.Driver+" "+missing)
	env.Barrier() // all else continues
}

// TestLeakDetectionPermissions uses the role with the fewest rules; missing permissions are reported.
func TestLeakDetectionPermissions(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutRequests)
	t.Parallel()
	env := newForRole(t, "observer", mockdriver.Options{})
	car := env.StartSidecar("--role=observer", "--leak-check-interval=100ms", "--leader-election",
		"--leader-election-namespace="+env.Namespace)
	env.Eventually("it says that it may not",
		func() bool { return strings.Contains(env.report(car).Failure, "forbidden") })
	env.WaitEvent(v1.ObjectReference{Kind: "Lease", Name: env.LeaseName() + "-reclaimer"}, "LeakCheckFailed")
	env.Must(rbac.GrantLeakCheck(env.Ctx, env.Client, env.Namespace, "csi-reclaimer"))
	t.Cleanup(func() {
		_ = env.Client.RbacV1().ClusterRoleBindings().Delete(env.CleanupContext(), "csi-reclaimer-leaks-"+env.Namespace,
			metav1.DeleteOptions{})
	})
	env.Eventually("a leak check is complete",
		func() bool { r := env.report(car); return r.Failure == "" && !r.Completed.IsZero() })
	rules, err := rbac.AuditRules()
	env.Must(err)
	env.Eventually("all that is granted is used", func() bool {
		used := map[string]bool{}
		events, err := env.Plane.AuditEventsOf(env.User,
			func(e controlplane.AuditEvent) bool { return e.Code != http.StatusForbidden })
		env.Must(err)
		for _, e := range events {
			used[e.Verb+" "+e.Resource] = true
		}
		for _, rule := range rules {
			if len(rule.Resources) != 1 || len(rule.Verbs) != 1 || !used[rule.Verbs[0]+" "+rule.Resources[0]] {
				return false
			}
		}
		return true
	})
}
