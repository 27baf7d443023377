//go:build unix

package singlenode

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
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

const (
	// controller is the controller under test, and podSafety holds its pods.
	controller, podSafety = "single-node", "pod-safety"
	// unmountGrace is volume-guard's wait for an unmount that it cannot see.
	unmountGrace = time.Second
	// sideBySide is how many scenarios of one test run at a time: they wait most of the time.
	sideBySide = 6
	// poolLabel is on the nodes that all scenarios share.
	poolLabel = "pool"
	// nodes is the number of nodes.
	nodes = 3
)

// shared is the volume-guard of the shared control plane, and recorded its history.
var (
	shared   guard.Shared
	recorded *history
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// environment is the environment of a test: a driver without attachments, and a namespace.
type environment struct {
	*guard.Environment
	history *history
	// class is a StorageClass of the driver, where that provisions volumes.
	class string
	// guard is volume-guard's user.
	guard string
	// excused are the changes by hand in the history of the namespace.
	excused *excuses
	// watchesEnded means that the API server was away, so that the history lacks versions.
	watchesEnded bool
}

// newEnvironment returns an environment on the shared control plane, where volume-guard and the nodes run. The driver
// has no program: its volumes exist already, as an administrator's do.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	return joinShared(fixture.NewWithoutDriver(t, driverName()))
}

// newProvisioningEnvironment is newEnvironment with a driver that provisions volumes.
func newProvisioningEnvironment(t *testing.T) *environment {
	t.Helper()
	env := joinShared(fixture.New(t))
	env.StartSidecar(fixture.FastRetries()...)
	env.class = env.CreateStorageClass()
	return env
}

func driverName() string { return "e2e-" + rand.String(8) + ".csi-reclaimer.io" }

// joinShared returns an environment that uses the programs of the shared control plane.
func joinShared(of *fixture.Environment) *environment {
	env := &environment{Environment: &guard.Environment{Environment: of, Flags: flags()}, excused: &excuses{}}
	env.Must(shared.Start(env.Environment, func(of *guard.Environment) (err error) {
		recorded, err = prepare(of, fixture.AtEnd)
		return err
	}, podSafety, controller))
	env.history, env.guard = recorded, shared.User
	env.InstallDriver(nil)
	return env
}

// prepare records the history of a control plane, and gives it nodes and an operator's manifests. stop receives the
// functions that end the started programs.
func prepare(env *guard.Environment, stop func(func() error)) (*history, error) {
	h, err := record(env.Ctx, env.Client, stop)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		_, end, err := fakenode.Play(env.Ctx, env.Plane, fmt.Sprintf("node-%d", i),
			fakenode.Config{Labels: map[string]string{poolLabel: "shared"}})
		if err != nil {
			return nil, err
		}
		stop(end)
	}
	return h, applyManifests(env, stop)
}

// flags returns volume-guard's flags in all tests: it runs the controller and the controller's requirement, with short
// times.
func flags() []string {
	return append(guard.Flags(podSafety, controller), "--unmount-grace="+unmountGrace.String())
}

// applyManifests applies an operator's manifests for this version.
func applyManifests(env *guard.Environment, stop func(func() error)) error {
	account := []string{guard.Account, env.User}
	for _, file := range []string{manifests.PodSafetyCRD, manifests.NodeFencingCRD} {
		env.ApplyManifest(file)
	}
	for _, file := range []string{manifests.PodSafetyPolicies, manifests.SingleNodePolicies} {
		env.ApplyManifest(file, account...)
	}
	if env.Plane.Version().Before(controlplane.V1_36) {
		return startWebhooks(env, stop)
	}
	env.ApplyManifest(manifests.PodSafetyHold)
	env.ApplyManifest(manifests.SingleNodeGate, account...)
	return nil
}

// startWebhooks starts a volume-guard that answers the webhooks and does nothing else, so that those under test can
// fail without that pods are refused.
func startWebhooks(env *guard.Environment, stop func(func() error)) error {
	namespace, err := env.Plane.CreateNamespace(env.Ctx, "webhooks-")
	if err != nil {
		return err
	}
	g, err := suite.AnswerWebhooks(env.Ctx, env.Plane, namespace, manifests.PodSafetyHoldWebhook,
		manifests.SingleNodeGateWebhook)
	if g != nil {
		stop(g.Stop)
	}
	return err
}

// newOwnEnvironment returns an environment on a control plane of its own, without volume-guard. Its account is the
// environment's.
func newOwnEnvironment(t *testing.T) *environment {
	t.Helper()
	env := &environment{excused: &excuses{}, Environment: guard.New(t, fixture.Version(),
		controlplane.Options{Scheduler: true}, podSafety, controller)}
	env.guard, env.Flags = env.User, flags()
	var err error
	env.history, err = prepare(env.Environment, func(end func() error) { t.Cleanup(func() { env.Must(end()) }) })
	env.Must(err)
	env.Driver = driverName()
	env.InstallDriver(nil)
	return env
}

// scenario returns the environment for a subtest, in a namespace of its own that asks for nothing.
func (env *environment) scenario(t *testing.T) *environment {
	t.Helper()
	sub := *env
	sub.Environment = env.ForSubtest(t).InOtherNamespace()
	sub.excused = &excuses{}
	return &sub
}

// The labels of a namespace, and its modes.
const (
	safetyLabel = "csi-reclaimer.io/pod-safety"
	modeLabel   = "csi-reclaimer.io/single-node"
	modeAll     = "all"
	modeSelect  = "selected"
)

// ask has the namespace ask for a mode, "" for none, and waits until pods are created accordingly.
func (env *environment) ask(mode string) {
	env.T.Helper()
	env.Namespaces().Label(env.Namespace, map[string]string{safetyLabel: "enforce", modeLabel: mode})
	env.Eventually("pods are held, and gated as the namespace asks", func() bool {
		made, err := env.Pods().DryRun(podOf("probe", "probe"))
		return err == nil && isHeld(made) && isGated(made) == (mode != "")
	})
}

// scenario is one subtest.
type scenario struct {
	name string
	mode string
	play func(*environment)
}

// run plays scenarios side by side, each in a namespace of its mode, and judges their histories. Only make
// test-full plays the deep ones.
func (env *environment) run(quick []scenario, deep ...scenario) {
	env.T.Helper()
	fixture.SideBySide(env.T, sideBySide, quick, deep, func(s scenario) string { return s.name },
		func(t *testing.T, s scenario) { env.scenario(t).play(s) })
}

// play plays a scenario in the namespace of the environment, and judges its history.
func (env *environment) play(s scenario) {
	env.T.Helper()
	if s.mode != "" {
		env.ask(s.mode)
	}
	s.play(env)
	env.finish()
}

// finish deletes the remaining objects of the namespace, waits until they are gone, and judges the history.
func (env *environment) finish() {
	env.T.Helper()
	env.deleteAll()
	v := env.judge()
	for _, violation := range v.violations {
		env.T.Error(violation)
	}
	if v.scheduled == 0 {
		env.T.Error("the history has no pod that was scheduled with a lock: nothing was judged")
	}
}

// machine is a node of one scenario, which goes away and comes back. Only pods that select it run there.
type machine struct {
	*environment
	name    string
	silence func()
}

// machine starts a node.
func (env *environment) machine() *machine {
	env.T.Helper()
	m := &machine{environment: env, name: "machine-" + rand.String(5)}
	m.resume()
	m.Eventually("pods can be scheduled to node "+m.name,
		func() bool { return len(m.Nodes().Get(m.name).Spec.Taints) == 0 })
	return m
}

// resume brings the node back unchanged, like a node that was cut off.
func (m *machine) resume() {
	m.T.Helper()
	_, m.silence = fakenode.ForTest(m.T, m.Plane, m.name, fakenode.Config{})
}

// lose has the node fall silent, and be found unreachable at once, which takes the controller manager 40 s.
func (m *machine) lose() {
	m.T.Helper()
	m.silence()
	m.Nodes().Patch(m.name, `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`, "status")
}
