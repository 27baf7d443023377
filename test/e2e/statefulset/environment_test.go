//go:build unix

package statefulset

import (
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
)

const (
	// controller is the one under test.
	controller = "statefulset-claims"
	// sideBySide is how many scenarios of one test run at a time: they wait most of the time.
	sideBySide = 6
)

// The played nodes of each control plane. On the slow one, pods take some time to end.
const (
	node     = "node"
	slowNode = "slow-node"
	ending   = 2 * time.Second
)

// builtIn reports whether the control planes of the tests have the policy. Versions that can disable it run without it.
func builtIn() bool { return !canDisable(fixture.Version()) }

// canDisable reports whether Kubernetes can disable the policy: from 1.32 on, its gate is locked.
func canDisable(v controlplane.Version) bool { return v.Before(controlplane.V1_32) }

// gate is the flag that enables or disables the policy in components of a Kubernetes that can disable it.
func gate(enabled bool) string {
	return fmt.Sprintf("--feature-gates=StatefulSetAutoDeletePVC=%v", enabled)
}

// withoutBuiltIn disables the policy in a control plane that can disable it.
func withoutBuiltIn(v controlplane.Version, o *controlplane.Options) {
	if canDisable(v) {
		o.APIServerArgs = append(o.APIServerArgs, gate(false))
		o.ControllerManagerArgs = append(o.ControllerManagerArgs, gate(false))
	}
}

// shared is the volume-guard of the shared control plane.
var shared guard.Shared

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, withoutBuiltIn)) }

// playNodes plays the nodes of the shared control plane.
func playNodes(env *guard.Environment) error {
	for name, config := range nodeConfigs() {
		_, stop, err := fakenode.Play(env.Ctx, env.Plane, name, config)
		if err != nil {
			return err
		}
		fixture.AtEnd(stop)
	}
	return nil
}

func nodeConfigs() map[string]fakenode.Config {
	return map[string]fakenode.Config{node: {WaitForClaims: true}, slowNode: {WaitForClaims: true, Ending: ending}}
}

// flags returns volume-guard's flags in all tests: it runs only the controller, with short times.
func flags() []string { return append(guard.Flags(controller), "--scale-down-grace=1s") }

// environment is the environment of a test: a driver with its provisioner, a namespace and the nodes.
type environment struct {
	*guard.Environment
	class string
	// field means that Kubernetes has the policy, as a field of the set.
	field bool
	// guard is volume-guard's user in the audit log.
	guard string
	// kept are the disks that must be there at the end of the test.
	kept *disks
}

// newEnvironment returns an environment on the shared control plane with its running volume-guard.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	env := &environment{Environment: &guard.Environment{Environment: fixture.New(t), Flags: flags()}, field: builtIn(),
		kept: &disks{}}
	env.Must(shared.Start(env.Environment, playNodes, controller))
	env.guard = shared.User
	env.startProvisioner()
	return env
}

// newOwnEnvironment returns an environment on a control plane of its own, without volume-guard. Its account is the
// environment's.
func newOwnEnvironment(t *testing.T) *environment {
	t.Helper()
	options := controlplane.Options{Scheduler: true}
	withoutBuiltIn(fixture.Version(), &options)
	return newEnvironmentWith(t, options)
}

func newEnvironmentWith(t *testing.T, options controlplane.Options) *environment {
	t.Helper()
	env := &environment{Environment: guard.New(t, fixture.Version(), options, controller), field: builtIn(),
		kept: &disks{}}
	env.Flags = flags()
	env.guard = env.User
	kubeconfig := env.Kubeconfig
	env.UseDriver(mockdriver.Options{Name: "e2e-" + rand.String(8) + ".csi-reclaimer.io"})
	env.CreateServiceAccount("csi-reclaimer")
	env.GrantRole("owner")
	env.startProvisioner()
	env.User, env.Kubeconfig = env.guard, kubeconfig
	for name, config := range nodeConfigs() {
		fakenode.ForTest(t, env.Plane, name, config)
	}
	return env
}

// startProvisioner starts csi-reclaimer beside the driver. The driver's volumes need no attaching.
func (env *environment) startProvisioner() {
	env.T.Helper()
	_, err := env.MakeDriver(env.Ctx, nil)
	env.Must(err)
	env.StartSidecar(fixture.FastRetries()...)
	env.class = env.CreateStorageClass()
}

// scenario returns the environment for a subtest, in a namespace of its own.
func (env *environment) scenario(t *testing.T) *environment {
	t.Helper()
	sub := *env
	sub.Environment = env.ForSubtest(t).InOtherNamespace()
	return &sub
}

// scenario is one subtest.
type scenario struct {
	name string
	play func(*environment)
}

// run plays scenarios side by side, and checks at the end that the kept disks exist. Only make test-full plays the deep
// ones.
func (env *environment) run(quick []scenario, deep ...scenario) {
	env.T.Helper()
	fixture.SideBySide(env.T, sideBySide, quick, deep, func(s scenario) string { return s.name },
		func(t *testing.T, s scenario) { s.play(env.scenario(t)) })
	env.finish()
}
