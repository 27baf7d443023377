//go:build unix

package upgrade

import (
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// The permissions that are missing in the test of the wrong order: claims can neither be read nor found, and no PV can
// be created.
const (
	rightsOfClaims = `resources: ["persistentvolumeclaims"]
  verbs: ["get", "list", "watch", "patch", "update"]`
	noRightsOfClaims = `resources: ["persistentvolumeclaims"]
  verbs: ["patch", "update"]`
	rightsOfPVs   = `verbs: ["get", "list", "watch", "create", "patch", "delete"]`
	noCreateOfPVs = `verbs: ["get", "list", "watch", "patch", "delete"]`
)

// In TestNewBinaryBeforePermissions today's csi-reclaimer takes over without some of its permissions. It names them,
// deletes and leaks nothing, and continues without a restart once they are granted.
func TestNewBinaryBeforePermissions(t *testing.T) {
	t.Parallel()
	from, to := before(t), today(t)
	env, old := start(t, from, to)
	finish := []func(){bound(env), terminatingBound(env), attached(env), creationUnclear(env)}
	released := env.protected()
	env.Must(old.Terminate())

	// As a release before has them that needs less.
	env.applyRights(to, rightsOfPVs, noCreateOfPVs, rightsOfClaims, noRightsOfClaims)
	env.Eventually("the permissions are gone", func() bool {
		return !env.IsAllowed("get", "", "persistentvolumeclaims") && !env.IsAllowed("create", "", "persistentvolumes")
	})
	next := env.launch(to, "next")
	for _, missing := range []string{"get persistentvolumeclaims", "list persistentvolumeclaims",
		"create persistentvolumes"} {
		env.Must(next.WaitLog(env.WithTimeout(), "Preflight: may not "+missing))
	}
	env.Eventually("/readyz names a missing permission", func() bool {
		_, err := next.Get(env.Ctx, "/readyz")
		return err != nil && strings.Contains(err.Error(), "persistentvolumeclaims")
	})
	env.Must(released.DeleteClaim(env.Ctx))
	env.WaitPVEvent(released, "APIReadFailed", "persistentvolumeclaims")
	claim := env.CreateClaim(env.CreateStorageClass())
	late := env.MakeVolume(objects.Spec{})
	env.WaitProtected(late) // it needs none of these permissions
	env.ExpectKept(released)
	if n := len(env.CreateCalls(claim)); n > 0 {
		t.Errorf("%d volumes are made for a claim that cannot be read", n)
	}
	if n := fixture.Sum(env.DeleteCallCounts()); n > 0 {
		t.Errorf("WRONG DELETE: %d calls of DeleteVolume", n)
	}

	env.applyRights(to)
	env.Must(next.WaitReady(env.WithTimeout()))
	env.expectDeletedOnce(released)
	env.expectDeletedByClaim(claim)
	for _, end := range finish {
		end()
	}
	env.judge()
}
