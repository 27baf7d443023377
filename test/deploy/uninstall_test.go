//go:build unix

package deploy

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestChartAfterConflictAndFailedUninstall has helm meet objects that others changed or deleted, as
// docs/how-to/remove.md says: a released driver, and an uninstall whose Job does not end.
func TestChartAfterConflictAndFailedUninstall(t *testing.T) {
	suite.Deep(t, suite.OwnControlPlane)
	const driver = "disk.csi.example.com"
	env, tree := newCharts(t), filepath.Dir(inDeploy(t))
	c := installed{name: guard, namespace: guardHome, values: []string{"podSafety.enabled=true", "singleNode.enabled=true",
		"admissionPolicy.enabled=true", `protectedDrivers.disk\.csi\.example\.com=owner`}}
	env.run(append([]string{"install", guard, c.of(tree), "--namespace", guardHome, "--create-namespace"},
		sets(c.values)...)...)
	want := env.render(c, tree)
	env.expectInstalled(want, nil)

	done, err := admission.RemoveDrivers(env.Ctx, env.Plane.Admin(), []string{driver})
	env.Must(err)
	if len(done.Objects) == 0 {
		t.Fatalf("%s is in no list", driver)
	}
	upgrade := []string{"upgrade", guard, c.of(tree), "--namespace", guardHome, "--reset-then-reuse-values"}
	expectRefused(t, "matchConditions", env.with(upgrade)...)
	env.run(append(upgrade, "--force-conflicts")...)
	env.expectInstalled(want, nil)

	// No kubelet runs here, so the Job of the uninstall does not end.
	expectRefused(t, "", env.with([]string{"uninstall", guard, "--namespace", guardHome, "--timeout", "2s"})...)
	env.expectInstalled(want, nil)
	deleted := 0
	for _, o := range want {
		if strings.HasSuffix(o.GetKind(), "PolicyBinding") {
			env.remove(o)
			deleted++
		}
	}
	if deleted == 0 {
		t.Fatal("the chart has no bindings, which the Job deletes last")
	}
	expectRefused(t, "no deployed releases", env.with(upgrade)...)
	env.run("rollback", guard, strconv.Itoa(env.revision("uninstalling")), "--namespace", guardHome)
	env.expectInstalled(want, nil)
}

// revision returns the revision of volume-guard with this status.
func (env *charts) revision(status string) int {
	env.T.Helper()
	var all []struct {
		Revision int
		Status   string
	}
	out := env.run("history", guard, "--namespace", guardHome, "-o", "json")
	env.Must(json.Unmarshal([]byte(out), &all))
	for _, r := range all {
		if r.Status == status {
			return r.Revision
		}
	}
	env.T.Fatalf("no revision is %s: %s", status, out)
	return 0
}

// remove deletes an object.
func (env *charts) remove(o *unstructured.Unstructured) {
	env.T.Helper()
	env.Must(ignoreNotFound(env.resource(o).Delete(env.Ctx, o.GetName(), metav1.DeleteOptions{})))
}
