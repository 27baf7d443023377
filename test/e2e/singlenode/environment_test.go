//go:build unix

package singlenode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

const (
	// controller is the controller under test, and podSafety holds its pods.
	controller, podSafety = "single-node", "pod-safety"
	// guardNamespace begins the name of the namespace that has the account of the shared volume-guard.
	guardNamespace = "guard-"
	// guardUser is volume-guard's account in the manifests.
	guardUser = "system:serviceaccount:csi-reclaimer:volume-guard"
	// unmountGrace is volume-guard's wait for an unmount that it cannot see.
	unmountGrace = time.Second
	// testTimeout bounds each test at many times its duration.
	testTimeout = 15 * time.Minute
	// sideBySide is how many scenarios of one test run at a time: they wait most of the time.
	sideBySide = 6
	// poolLabel is on the nodes that all scenarios share.
	poolLabel = "pool"
	// nodes is the number of nodes.
	nodes = 3
)

// shared is the common state of the tests on the shared control plane.
var shared struct {
	start   sync.Once
	stop    []func() error
	history *history
	err     error
}

func TestMain(m *testing.M) {
	code := fixture.Main(m)
	for _, stop := range slices.Backward(shared.stop) {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// environment is the environment of a test: a driver without attachments, and a namespace.
type environment struct {
	*fixture.Environment
	history *history
	// class is a StorageClass of the driver, where that provisions volumes.
	class string
	// guard is volume-guard's user.
	guard string
	// rules are volume-guard's permissions, on the test's own control plane.
	rules []rbacv1.PolicyRule
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
	env := &environment{Environment: of, excused: &excuses{}}
	env.long()
	shared.start.Do(func() { shared.err = env.startShared() })
	env.Must(shared.err)
	env.history = shared.history
	_, err := env.MakeDriver(env.Ctx, nil)
	env.Must(err)
	return env
}

// long gives a test the time that its scenarios take one after the other.
func (env *environment) long() {
	ctx, cancel := context.WithTimeout(env.T.Context(), testTimeout)
	env.T.Cleanup(cancel)
	env.Ctx = ctx
}

// startShared starts the common programs of the shared control plane. They end with TestMain.
func (env *environment) startShared() error {
	long := *env.Environment
	long.Ctx = context.WithoutCancel(env.Ctx)
	of := &environment{Environment: &long}
	stop := func(end func() error) { shared.stop = append(shared.stop, end) }
	var err error
	if shared.history, err = record(of.Ctx, env.Client, stop); err != nil {
		return err
	}
	if err := of.playNodes(stop); err != nil {
		return err
	}
	namespace, err := env.Plane.CreateNamespace(of.Ctx, guardNamespace)
	if err != nil {
		return err
	}
	of.guard = "system:serviceaccount:" + namespace + ":" + fixture.VolumeGuardName
	if err := of.applyManifests(stop); err != nil {
		return err
	}
	account, err := env.Plane.ServiceAccount(of.Ctx, namespace, fixture.VolumeGuardName)
	if err != nil {
		return err
	}
	if _, err := rbac.GrantGuardController(of.Ctx, env.Client, namespace, fixture.VolumeGuardName,
		podSafety, controller); err != nil {
		return err
	}
	kubeconfig, err := env.Plane.Kubeconfig(account)
	if err != nil {
		return err
	}
	return launch(of.Ctx, stop, append([]string{"--kubeconfig=" + kubeconfig, "--leader-election=false"}, flags()...)...)
}

// launch starts a volume-guard, and waits until it is ready.
func launch(ctx context.Context, stop func(func() error), args ...string) error {
	binary, err := fixture.VolumeGuardBinary(ctx)
	if err != nil {
		return err
	}
	g, err := program.Start(ctx, program.Options{Name: fixture.VolumeGuardName, Binary: binary, Args: args})
	if err != nil {
		return err
	}
	stop(g.Stop)
	ctx, cancel := context.WithTimeout(ctx, fixture.WaitTimeout)
	defer cancel()
	return g.WaitReady(ctx)
}

// flags returns volume-guard's flags in all tests: it runs the controller and the controller's requirement, with short
// times.
func flags(args ...string) []string {
	return append([]string{"--controllers=" + podSafety + "," + controller + ",-intree",
		"--unmount-grace=" + unmountGrace.String(), "--retry-interval-start=50ms", "--retry-interval-max=500ms"}, args...)
}

// playNodes starts the nodes that all scenarios share.
func (env *environment) playNodes(stop func(func() error)) error {
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		user, err := env.Plane.ConfigFor(fakenode.User(name), fakenode.Group)
		if err != nil {
			return err
		}
		n, err := fakenode.New(user, name, fakenode.Config{Labels: map[string]string{poolLabel: "shared"}})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(env.Ctx)
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		stop(func() error { cancel(); return <-ended })
		select {
		case <-n.Registered():
		case err := <-ended:
			return fmt.Errorf("node %s has ended: %w", name, err)
		}
	}
	return nil
}

// applyManifests applies an operator's manifests for this version.
func (env *environment) applyManifests(stop func(func() error)) error {
	account := []string{guardUser, env.guard}
	for _, file := range []string{"pod-safety-crd.yaml", "node-fencing-crd.yaml"} {
		env.ApplyManifest(file)
	}
	for _, file := range []string{"pod-safety-policies.yaml", "single-node-policies.yaml"} {
		env.ApplyManifest(file, account...)
	}
	if env.Plane.Version().Before(controlplane.V1_36) {
		return env.startWebhooks(stop)
	}
	env.ApplyManifest("pod-safety-hold.yaml")
	env.ApplyManifest("single-node-gate.yaml", account...)
	return nil
}

// startWebhooks starts a volume-guard that answers the webhooks and does nothing else, so that those under test can
// fail without that pods are refused.
func (env *environment) startWebhooks(stop func(func() error)) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err := errors.Join(err, l.Close()); err != nil {
		return err
	}
	// This machine has no Service.
	for _, file := range []string{"pod-safety-hold-webhook.yaml", "single-node-gate-webhook.yaml"} {
		env.ApplyManifest(file, "service:\n      namespace: csi-reclaimer\n      name: volume-guard\n      path: ",
			"url: https://localhost:"+port, "\n      port: 443", "")
	}
	namespace, err := env.Plane.CreateNamespace(env.Ctx, "webhooks-")
	if err != nil {
		return err
	}
	kubeconfig, err := env.Plane.Kubeconfig(env.Plane.Admin())
	if err != nil {
		return err
	}
	return launch(env.Ctx, stop, "--kubeconfig="+kubeconfig, "--leader-election-namespace="+namespace,
		"--leader-election=false", "--controllers=-intree", "--webhook-address=127.0.0.1:"+port, "--webhook-names=localhost")
}

// newOwnEnvironment returns an environment on a control plane of its own, without volume-guard. Its account is the
// environment's.
func newOwnEnvironment(t *testing.T) *environment {
	t.Helper()
	env := &environment{excused: &excuses{}, Environment: fixture.NewWithControlPlane(t, fixture.Version(),
		controlplane.Options{Scheduler: true})}
	env.guard = env.User
	env.long()
	var err error
	env.rules, err = rbac.GrantGuardController(env.Ctx, env.Client, env.Namespace, fixture.VolumeGuardName,
		podSafety, controller)
	env.Must(err)
	stop := func(end func() error) { t.Cleanup(func() { env.Must(end()) }) }
	env.history, err = record(env.Ctx, env.Client, stop)
	env.Must(err)
	env.Must(env.playNodes(stop))
	env.Must(env.applyManifests(stop))
	env.Driver = driverName()
	_, err = env.MakeDriver(env.Ctx, nil)
	env.Must(err)
	return env
}

// startVolumeGuard starts a volume-guard with the environment's account.
func (env *environment) startVolumeGuard(args ...string) *program.Program {
	env.T.Helper()
	binary, err := fixture.VolumeGuardBinary(env.Ctx)
	env.Must(err)
	g, err := program.Start(env.Ctx, program.Options{Name: fixture.VolumeGuardName, Binary: binary,
		Args: append([]string{"--kubeconfig=" + env.Kubeconfig, "--leader-election-namespace=" + env.DriverNamespace},
			flags(args...)...)})
	env.Must(err)
	env.StopAtEnd(g)
	env.Must(g.WaitReady(env.WithTimeout()))
	return g
}

// scenario returns the environment for a subtest, in a namespace of its own that asks for nothing.
func (env *environment) scenario(t *testing.T) *environment {
	t.Helper()
	sub := *env
	sub.Environment = env.ForSubtest(t)
	sub.Environment = sub.InOtherNamespace()
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
	value := "null"
	if mode != "" {
		value = fmt.Sprintf("%q", mode)
	}
	_, err := env.Client.CoreV1().Namespaces().Patch(env.Ctx, env.Namespace, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:"enforce",%q:%s}}}`, safetyLabel, modeLabel, value),
		metav1.PatchOptions{})
	env.Must(err)
	env.Eventually("pods are held, and gated as the namespace asks", func() bool {
		pod := env.podOf("probe", "probe")
		made, err := env.Client.CoreV1().Pods(env.Namespace).Create(env.Ctx, pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
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
	var running sync.WaitGroup
	free := make(chan struct{}, sideBySide)
	for i, s := range slices.Concat(quick, deep) {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			env.T.Run(s.name, func(t *testing.T) {
				if i >= len(quick) {
					suite.Deep(t, suite.Load)
				}
				env.scenario(t).play(s)
			})
		})
	}
	running.Wait()
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
