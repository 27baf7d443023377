//go:build unix

package statefulset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

const (
	// controller is the one under test.
	controller = "statefulset-claims"
	// guardNamespace has the account of the shared volume-guard.
	guardNamespace = "csi-reclaimer"
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

// shared is the common state of the tests on the shared control plane.
var shared struct {
	start sync.Once
	stop  []func() error
	user  string
	err   error
}

func TestMain(m *testing.M) {
	code := fixture.Main(m, withoutBuiltIn)
	for _, stop := range shared.stop {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// startShared starts the nodes and volume-guard of the shared control plane, unless they run. They end with TestMain.
func startShared(ctx context.Context, plane *controlplane.ControlPlane) error {
	shared.start.Do(func() {
		ctx := context.WithoutCancel(ctx)
		for name, config := range nodeConfigs() {
			if shared.err = errors.Join(shared.err, playNode(ctx, plane, name, config)); shared.err != nil {
				return
			}
		}
		shared.user, shared.err = startGuard(ctx, plane)
	})
	return shared.err
}

func nodeConfigs() map[string]fakenode.Config {
	return map[string]fakenode.Config{node: {WaitForClaims: true}, slowNode: {WaitForClaims: true, Ending: ending}}
}

func playNode(ctx context.Context, plane *controlplane.ControlPlane, name string, config fakenode.Config) error {
	user, err := plane.ConfigFor(fakenode.User(name), fakenode.Group)
	if err != nil {
		return err
	}
	n, err := fakenode.New(user, name, config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	shared.stop = append(shared.stop, func() error { cancel(); return <-ended })
	select {
	case <-n.Registered():
		return nil
	case err := <-ended:
		return fmt.Errorf("node %s has ended: %w", name, err)
	}
}

// startGuard starts volume-guard with the permissions of deploy/ for its controller, and returns its user.
func startGuard(ctx context.Context, plane *controlplane.ControlPlane) (user string, err error) {
	client, err := kubernetes.NewForConfig(plane.Admin())
	if err != nil {
		return "", err
	}
	namespace, err := plane.CreateNamespace(ctx, guardNamespace)
	if err != nil {
		return "", err
	}
	account, err := plane.ServiceAccount(ctx, namespace, fixture.VolumeGuardName)
	if err != nil {
		return "", err
	}
	if _, err := rbac.GrantGuardController(ctx, client, namespace, fixture.VolumeGuardName, controller); err != nil {
		return "", err
	}
	kubeconfig, err := plane.Kubeconfig(account)
	if err != nil {
		return "", err
	}
	binary, err := fixture.VolumeGuardBinary(ctx)
	if err != nil {
		return "", err
	}
	g, err := program.Start(ctx, program.Options{Name: fixture.VolumeGuardName, Binary: binary,
		Args: append([]string{"--kubeconfig=" + kubeconfig, "--leader-election=false"}, flags()...)})
	if err != nil {
		return "", err
	}
	shared.stop = append(shared.stop, g.Stop)
	ctx, cancel := context.WithTimeout(ctx, fixture.WaitTimeout)
	defer cancel()
	return "system:serviceaccount:" + namespace + ":" + fixture.VolumeGuardName, g.WaitReady(ctx)
}

// flags returns volume-guard's flags in all tests: it runs only the controller, with short times.
func flags(args ...string) []string {
	return append([]string{"--controllers=" + controller + ",-intree", "--scale-down-grace=1s",
		"--retry-interval-start=50ms", "--retry-interval-max=500ms"}, args...)
}

// environment is the environment of a test: a driver with its provisioner, a namespace and the nodes.
type environment struct {
	*fixture.Environment
	class string
	// field means that Kubernetes has the policy, as a field of the set.
	field bool
	// guard is volume-guard's user in the audit log.
	guard string
	// rules are volume-guard's permissions, on the test's own control plane.
	rules []rbacv1.PolicyRule
	// kept are the disks that must be there at the end of the test.
	kept *disks
}

// newEnvironment returns an environment on the shared control plane with its running volume-guard.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	env := &environment{Environment: fixture.New(t), field: builtIn(), kept: &disks{}}
	env.Must(startShared(env.Ctx, env.Plane))
	env.guard = shared.user
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
	env := &environment{Environment: fixture.NewWithControlPlane(t, fixture.Version(), options), field: builtIn(),
		kept: &disks{}}
	var err error
	env.rules, err = rbac.GrantGuardController(env.Ctx, env.Client, env.Namespace, fixture.VolumeGuardName, controller)
	env.Must(err)
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

// scenario returns the environment for a subtest, in a namespace of its own.
func (env *environment) scenario(t *testing.T) *environment {
	t.Helper()
	sub := *env
	sub.Environment = env.ForSubtest(t)
	sub.Environment = sub.InOtherNamespace()
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
				s.play(env.scenario(t))
			})
		})
	}
	running.Wait()
	env.finish()
}
