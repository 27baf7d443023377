//go:build unix

package volumeguard

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
)

// TestVolumeGuardReportsMissingPermissions also covers a dry run.
func TestVolumeGuardReportsMissingPermissions(t *testing.T) {
	fixture.NewestOnly(t, fixture.OwnVersions)
	t.Parallel()
	env := newWithVolumeGuard(t, controlplane.V1_30, controlplane.Options{HostPathProvisioner: true})
	env.Driver = "kubernetes.io/host-path"
	mayListPods := []string{"pvc-protection-", "pod-safety-", "single-node-", "statefulset-claims-", "node-fencing-"}
	for _, role := range mayListPods {
		role = "volume-guard-" + role
		env.Must(env.Client.RbacV1().ClusterRoleBindings().Delete(env.Ctx, role+env.Namespace, metav1.DeleteOptions{}))
	}
	env.Eventually("lists of pods are denied", func() bool { return !env.IsAllowed("list", "", "pods") })
	g := env.Launch(protecting()...)
	const lacking = `may not list pods: no claim loses its finalizer, because a pod may use it. ` +
		`Add to the ClusterRole: {apiGroups: [""], resources: ["pods"], verbs: ["list"]}`
	env.Must(g.WaitLog(env.WithTimeout(), "Preflight: may not list pods"))
	env.Eventually("the health endpoint says so", func() bool {
		_, err := g.Get(env.Ctx, "/readyz")
		return err != nil && strings.Contains(err.Error(), lacking)
	})
	if output, err := env.Release(protecting()...); err == nil || !strings.Contains(output, "may not list pods") {
		t.Errorf("--release-finalizers without its rights: %v, %q", err, output)
	}
	env.Must(g.Terminate())

	began := time.Now()
	g = env.Start("--dry-run")
	vol := env.inTreeVolume(env.CreateStorageClass())
	env.Must(g.WaitLog(env.WithTimeout(), "Would do AddFinalizer"))
	if pv, err := vol.PV(env.Ctx); err != nil || guarded(pv) {
		t.Errorf("%v: protected in a dry run", err)
	}
	events, err := env.Plane.AuditEventsOf(env.User, func(e controlplane.AuditEvent) bool {
		return e.Received.After(began) && e.APIGroup != "authorization.k8s.io" &&
			!slices.Contains([]string{"get", "list", "watch"}, e.Verb)
	})
	env.Must(err)
	if len(events) > 0 {
		t.Errorf("a dry run wrote: %+v", events)
	}
}
