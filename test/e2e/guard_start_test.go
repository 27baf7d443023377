//go:build unix

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
)

// TestVolumeGuardSaysWhatItMayNotDo, and in a dry run what it would do.
func TestVolumeGuardSaysWhatItMayNotDo(t *testing.T) {
	t.Parallel()
	s := newGuardStage(t, controlplane.V1_30, controlplane.Options{HostPathProvisioner: true})
	s.Driver = "kubernetes.io/host-path"
	s.must(s.client.RbacV1().ClusterRoleBindings().Delete(s.ctx, "volume-guard-pvc-protection-"+s.Namespace, metav1.DeleteOptions{}))
	g := s.launchGuard(protecting()...)
	const lacking = `may not list pods: no claim is let go, for nobody can tell whether a pod uses it. Add to the ClusterRole: {apiGroups: [""], resources: ["pods"], verbs: ["list"]}`
	s.must(g.WaitLog(s.soon(), "Preflight: may not list pods"))
	s.eventually("the health endpoint says so", func() bool {
		_, err := g.Get(s.ctx, "/readyz")
		return err != nil && strings.Contains(err.Error(), lacking)
	})
	if said, err := s.releaseGuard(protecting()...); err == nil || !strings.Contains(said, "may not list pods") {
		t.Errorf("--release-finalizers without its rights: %v, %q", err, said)
	}
	s.must(g.Terminate())

	began := time.Now()
	g = s.guard("--dry-run")
	vol := s.inTreeVolume(s.class())
	s.must(g.WaitLog(s.soon(), "Would do Protect"))
	if pv, err := vol.PV(s.ctx); err != nil || guarded(pv) {
		t.Errorf("%v: protected in a dry run", err)
	}
	events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Received.After(began) && e.APIGroup != "authorization.k8s.io" && !slices.Contains([]string{"get", "list", "watch"}, e.Verb)
	})
	s.must(err)
	if len(events) > 0 {
		t.Errorf("a dry run wrote: %+v", events)
	}
}
