//go:build unix

package volumeguard

import (
	"os"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
)

func TestMain(m *testing.M) {
	// The tests on the shared control plane say whether nodes are Ready, and no controller collects pods.
	os.Exit(fixture.Main(m, func(_ controlplane.Version, options *controlplane.Options) {
		options.Controllers = withoutPodCollection()
	}))
}

// withoutPodCollection are the controllers of a cluster in which no node becomes NotReady, and no pod is collected, by
// itself.
func withoutPodCollection() []string {
	return []string{"*", "-node-lifecycle-controller", "-pod-garbage-collector-controller"}
}

// environment is the environment of a test, with the helpers of this suite.
type environment struct{ *guard.Environment }

func of(env *fixture.Environment) *environment {
	return &environment{&guard.Environment{Environment: env}}
}

func newWithControlPlane(t *testing.T, v controlplane.Version, options controlplane.Options) *environment {
	t.Helper()
	return of(fixture.NewWithControlPlane(t, v, options))
}

func newWithAdmissionPolicy(t *testing.T) *environment {
	t.Helper()
	return of(fixture.NewWithAdmissionPolicy(t))
}

func (env *environment) inOtherNamespace() *environment { return &environment{env.InOtherNamespace()} }

func (env *environment) forSubtest(t *testing.T) *environment { return &environment{env.ForSubtest(t)} }
