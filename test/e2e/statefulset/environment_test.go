//go:build unix

package statefulset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
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
	env.InstallDriver(nil)
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

// disk is a claim with its volume, to which something was written.
type disk struct {
	*environment
	claim *objects.Claim
	vol   *objects.Volume
}

// disks are some of them. Subtests add to it side by side.
type disks struct {
	mu  sync.Mutex
	all []disk
}

// write writes to the volume of an ordinal, as its pod does.
func (s *set) write(ordinal int) disk {
	s.T.Helper()
	return s.writeTo(s.claim(ordinal))
}

func (env *environment) writeTo(claim *v1.PersistentVolumeClaim) disk {
	env.T.Helper()
	d := disk{environment: env, claim: env.ClaimOf(claim)}
	var err error
	d.vol, err = d.claim.WaitBound(env.WithTimeout())
	env.Must(err)
	env.Must(os.WriteFile(d.file(), []byte(d.claim.UID), 0o600))
	return d
}

// file is the path of the written data.
func (d disk) file() string { return filepath.Join(d.MockDriver.VolumesDir(), d.vol.Handle, "data") }

// read returns the volume's data, or the empty string.
func (d disk) read() string {
	d.T.Helper()
	data, err := os.ReadFile(d.file())
	if !errors.Is(err, fs.ErrNotExist) {
		d.Must(err)
	}
	return string(data)
}

// isKept checks that the claim is the same, is not being deleted, and that its volume has the data.
func (d disk) isKept() {
	d.T.Helper()
	now, err := d.claim.Get(d.Ctx)
	d.Must(err)
	switch {
	case now == nil:
		d.T.Errorf("WRONG DELETE: claim %s/%s is gone", d.Namespace, d.claim.Name)
	case now.DeletionTimestamp != nil:
		d.T.Errorf("WRONG DELETE: claim %s/%s is being deleted", d.Namespace, d.claim.Name)
	case d.read() != string(d.claim.UID):
		d.T.Errorf("WRONG DELETE: the volume of claim %s/%s has %q", d.Namespace, d.claim.Name, d.read())
	}
}

// expectKept checks that disks are unchanged, now and at the end of the test.
func (env *environment) expectKept(all ...disk) {
	env.T.Helper()
	for _, d := range all {
		d.isKept()
	}
	env.kept.mu.Lock()
	defer env.kept.mu.Unlock()
	env.kept.all = append(env.kept.all, all...)
}

// expectDeleted waits until claims are gone, with their PVs and volumes.
func (env *environment) expectDeleted(all ...disk) {
	env.T.Helper()
	for _, d := range all {
		env.Must(d.claim.WaitGone(env.WithTimeout()))
		env.Must(d.vol.WaitGone(env.WithTimeout()))
		if env.OnDisk(d.vol.Handle) {
			env.T.Errorf("LEAK: volume %s of claim %s is on the driver's disk", d.vol.Handle, d.claim.Name)
		}
	}
}

// expectEmpty checks that the ordinal of a disk has another claim with an empty volume.
func (s *set) expectEmpty(ordinal int, old disk) {
	s.T.Helper()
	claim := s.claim(ordinal)
	if claim == nil || claim.UID == old.claim.UID {
		s.T.Fatalf("ordinal %d has claim %+v, want a new one", ordinal, claim)
	}
	fresh := disk{environment: s.environment, claim: s.ClaimOf(claim)}
	var err error
	fresh.vol, err = fresh.claim.WaitBound(s.WithTimeout())
	s.Must(err)
	if got := fresh.read(); got != "" || fresh.vol.Handle == old.vol.Handle {
		s.T.Errorf("WRONG REUSE: the new volume %s has %q", fresh.vol.Handle, got)
	}
}

// finish checks, after all that volume-guard might do, that the disks to be kept are there.
func (env *environment) finish() {
	env.T.Helper()
	env.barrier()
	for _, d := range env.kept.all {
		d.environment = d.in(env)
		d.isKept()
	}
	env.T.Logf("%d volumes were kept, with their data", len(env.kept.all))
}

// in returns the environment of the disk's namespace for the test that is running.
func (d disk) in(env *environment) *environment {
	sub := *d.environment
	sub.Environment = d.ForSubtest(env.T)
	return &sub
}

// remove removes a disk that the test deletes on purpose later.
func (k *disks) remove(d disk) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = slices.DeleteFunc(k.all, func(other disk) bool { return other.claim.UID == d.claim.UID })
}
