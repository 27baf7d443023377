//go:build unix

package upgrade

import (
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/previous"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

const (
	sidecar = "csi-reclaimer"
	// sidecarRights is the manifest of an owner's permissions, and sidecarRole the name of its roles.
	sidecarRights, sidecarRole = "rbac-owner.yaml", "csi-reclaimer-owner"
)

// version is one of two versions of the project.
type version struct {
	name string
	// tree has its files.
	tree string
	// build compiles one of its programs.
	build func(program string) (binary string, err error)
}

// before returns the previous release, and today the version under test.
func before(t *testing.T) version {
	t.Helper()
	suite.Deep(t, suite.OtherVersion)
	r := previous.ForTest(t)
	tree := must.Get(r.Tree(t.Context()))(t)
	return version{name: r.String(), tree: tree, build: func(program string) (string, error) {
		return r.Build(t.Context(), program, os.Stderr, process.RaceFlags()...)
	}}
}

func today(t *testing.T) version {
	t.Helper()
	root := process.RootForTest(t)
	return version{name: "today's", tree: root, build: func(name string) (string, error) {
		return program.Build(t.Context(), name, os.Stderr, process.RaceFlags()...)
	}}
}

// compile compiles a program of all versions, so that no test waits for that when it is under way.
func compile(t *testing.T, program string, all ...version) {
	t.Helper()
	for _, v := range all {
		if _, err := v.build(program); err != nil {
			t.Fatal(err)
		}
	}
}

// environment is a driver with csi-reclaimer beside it. Permissions are applied as operators do.
type environment struct {
	*fixture.Environment
	faults *plan
}

// newEnvironment starts a driver on the shared control plane. The account of csi-reclaimer is bound to roles that no
// manifest has created yet.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	env := &environment{Environment: fixture.NewForRole(t, "", mockdriver.Options{Args: []string{"--parameters=tier"}})}
	env.faults = &plan{env: env}
	name, roles := env.role(), env.Client.RbacV1()
	env.Must(rbac.BindCluster(env.Ctx, env.Client, name, name, env.Namespace, sidecar))
	env.Must(rbac.Bind(env.Ctx, env.Client, env.Namespace, name, "Role", name, env.Namespace, sidecar))
	t.Cleanup(func() {
		_ = roles.ClusterRoleBindings().Delete(env.CleanupContext(), name, metav1.DeleteOptions{})
		_ = roles.ClusterRoles().Delete(env.CleanupContext(), name, metav1.DeleteOptions{})
	})
	return env
}

// start starts csi-reclaimer of a version, with its permissions, to be replaced by another version.
func start(t *testing.T, from, to version) (env *environment, leader *program.Program) {
	t.Helper()
	compile(t, sidecar, from, to)
	env = newEnvironment(t)
	env.applyRights(from)
	leader = env.launch(from, "old")
	env.waitLeads(leader)
	return env, leader
}

// role is the name of the environment's roles: each test changes its own.
func (env *environment) role() string { return sidecarRole + "-" + env.Namespace }

// applyRights applies the permissions that a version ships, with some of them changed.
func (env *environment) applyRights(of version, oldnew ...string) {
	env.T.Helper()
	text, err := os.ReadFile(of.tree + "/deploy/manifests/" + sidecarRights)
	env.Must(err)
	for i := 0; i < len(oldnew); i += 2 {
		if !strings.Contains(string(text), oldnew[i]) {
			env.T.Fatalf("%s of %s has no %q: this test changes nothing", sidecarRights, of.name, oldnew[i])
		}
	}
	env.ApplyManifestOf(of.tree, sidecarRights, append(oldnew, sidecarRole, env.role())...)
}

// launch starts a replica of a version, and does not wait.
func (env *environment) launch(of version, identity string) *program.Program {
	env.T.Helper()
	binary, err := of.build(sidecar)
	env.Must(err)
	args := append(fixture.FastRetries(), "--leader-election", "--leader-election-namespace="+env.DriverNamespace,
		"--leader-election-identity="+identity, "--brake-deletions=1000", "--shutdown-grace=2s")
	return env.LaunchSidecarWith(program.SidecarOptions{Binary: binary, Args: args})
}

// waitLeads waits until a replica is at work.
func (env *environment) waitLeads(car *program.Program) {
	env.T.Helper()
	env.Must(car.WaitLog(env.WithTimeout(), "Became the leader"))
	env.Must(car.WaitReady(env.WithTimeout()))
}

// plan holds the driver's current faults: rules that are added and removed by name. Each change counts all calls anew.
type plan struct {
	env   *environment
	rules []faults.Rule
}

// add adds rules, which have names.
func (p *plan) add(rules ...faults.Rule) {
	p.env.T.Helper()
	p.rules = append(p.rules, rules...)
	p.set()
}

// heal removes the rules of these names.
func (p *plan) heal(names ...string) {
	p.env.T.Helper()
	p.remove(names...)
	p.set()
}

// replace removes the rule of that name and adds others, at once.
func (p *plan) replace(name string, rules ...faults.Rule) {
	p.env.T.Helper()
	p.remove(name)
	p.add(rules...)
}

func (p *plan) remove(names ...string) {
	p.rules = slices.DeleteFunc(p.rules, func(r faults.Rule) bool { return slices.Contains(names, r.Name) })
}

func (p *plan) set() {
	p.env.T.Helper()
	p.env.Must(p.env.MockDriver.SetFaults(p.env.Ctx, faults.Plan{Rules: p.rules}))
}
