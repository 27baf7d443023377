//go:build unix

package provision

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	labels "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// nodeMember is a node with the driver and the sidecar on it.
type nodeMember struct {
	*environment
	node, place string
	driver      *mockdriver.Driver
	sidecar     *program.Program
}

// newNodeMembers makes two nodes, each with a driver and a sidecar of its own.
func newNodeMembers(t *testing.T, args ...string) (*environment, []*nodeMember) {
	t.Helper()
	var members []*nodeMember
	var env *environment
	for i := range 2 {
		place := "place-" + rand.String(8)
		options := mockdriver.Options{Profile: "no-attach",
			Args: []string{"--topology=" + fixture.NodeTopologyKey + "=" + place}}
		m := &nodeMember{}
		if i == 0 {
			env = newForRole(t, "node", options)
			m.driver = env.MockDriver
		} else {
			options.Name = env.Driver
			m.driver = mockdriver.ForTest(t, options)
		}
		m.environment, m.node, m.place = env, env.CreateNode(map[string]string{fixture.NodeTopologyKey: place}), place
		members = append(members, m)
	}
	if slices.Contains(args, "--enable-capacity") {
		env.Must(rbac.GrantCapacity(env.Ctx, env.Client, env.Namespace, "csi-reclaimer"))
	}
	for _, m := range members {
		m.sidecar = env.LaunchSidecarWith(program.SidecarOptions{Address: m.driver.Socket(),
			Env: []string{"NODE_NAME=" + m.node, "POD_NAMESPACE=" + env.Namespace}, Args: append(append(fixture.FastRetries(),
				"--node-deployment", "--leader-election", "--leader-election-namespace="+env.Namespace,
				"--leader-election-identity="+m.node, // which leads at once after it was killed
				"--node-deployment-base-delay=100ms", "--node-deployment-max-delay=1s"), args...)})
		env.Must(m.sidecar.WaitReady(env.WithTimeout()))
	}
	return env, members
}

// calls returns the calls of a method that a member's driver received for a claim's volume.
func (m *nodeMember) calls(method string, claim *objects.Claim) []ledger.Call {
	m.T.Helper()
	calls, err := m.driver.Calls(method)
	m.Must(err)
	return slices.DeleteFunc(calls, func(c ledger.Call) bool {
		return c.Name != fixture.PVName(claim) && !strings.HasPrefix(c.Volume, fixture.PVName(claim))
	})
}

// has reports whether a volume of a claim is on a member's disk.
func (m *nodeMember) has(claim *objects.Claim) bool {
	m.T.Helper()
	volumes, err := m.driver.Volumes()
	m.Must(err)
	return slices.ContainsFunc(volumes, func(v backend.Volume) bool { return v.Name == fixture.PVName(claim) })
}

// waitBoundAndSettled waits until a claim is bound and no node has an entry for it, and returns its volume.
func (env *environment) waitBoundAndSettled(claim *objects.Claim) *fixture.Provisioned {
	env.T.Helper()
	vol := env.WaitBound(claim)
	env.waitSettled(claim)
	return vol
}

// TestNodeDeploymentServesVolumesOfItsNode has two nodes, each with a driver and a sidecar.
func TestNodeDeploymentServesVolumesOfItsNode(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	env, members := newNodeMembers(t)
	one, two := members[0], members[1]
	lately, atOnce := env.CreateStorageClass(fixture.WithWaitForFirstConsumer), env.CreateStorageClass()
	for name, make := range map[string]func() *objects.Claim{
		"late binding":      func() *objects.Claim { return env.CreateClaim(lately, fixture.WithSelectedNode(two.node)) },
		"immediate binding": func() *objects.Claim { return env.CreateClaim(atOnce) },
	} {
		t.Run(name, func(t *testing.T) {
			env := env.forSubtest(t)
			claim := make()
			vol := env.waitBoundAndSettled(claim)
			own, other := one, two
			if len(two.calls("CreateVolume", claim)) > 0 {
				own, other = two, one
			}
			if name == "late binding" && own != two {
				t.Error("made on a node that was not selected")
			}
			if made, wrong := own.calls("CreateVolume", claim), other.calls("CreateVolume",
				claim); len(made) != 1 || len(wrong) != 0 {
				t.Errorf("%d and %d CreateVolume calls, want one", len(made), len(wrong))
			}
			if !own.has(claim) || !fixture.HasFinalizer(vol.BoundPV) {
				t.Errorf("the volume is on its disk: %v; finalizers of its PV: %v", own.has(claim), vol.BoundPV.Finalizers)
			}
			env.MustDeleteClaim(claim)
			env.Must(vol.WaitGone(env.WithTimeout()))
			if own.has(claim) {
				t.Error("LEAK: the volume is on its node's disk")
			}
			if right, wrong := own.calls("DeleteVolume", claim), other.calls("DeleteVolume",
				claim); len(right) != 1 || len(wrong) != 0 {
				t.Errorf("%d DeleteVolume calls on its node and %d on the other, want one and none", len(right), len(wrong))
			}
			if n := env.patchesOf(vol.BoundPV.Name, 1); n != 1 {
				t.Errorf("%d patches of a PV that was created with its finalizers, want the one that removes them", n)
			}
		})
	}
	t.Run("a PV from before gets its finalizer once, from its own node", func(t *testing.T) {
		env := env.forSubtest(t)
		claim := env.CreateClaim(lately, fixture.WithSelectedNode(one.node))
		vol := env.waitBoundAndSettled(claim)
		// As a PV of a provisioner without finalizers.
		env.PVs().SetFinalizers(vol.BoundPV.Name)
		env.WaitProtected(vol.Volume)
		if n := env.patchesOf(vol.BoundPV.Name, 1); n != 1 {
			t.Errorf("finalizers were added to the PV %d times, want once", n)
		}
		env.MustDeleteClaim(claim)
		env.Must(vol.WaitGone(env.WithTimeout()))
		if one.has(claim) || len(two.calls("DeleteVolume", claim)) > 0 {
			t.Error("the wrong node was asked, or none")
		}
	})
}

// kubectl reclaim release refuses to run while a node holds a Lease of its driver, and selects the Leases by the label.
func TestNodeElectionsNameTheirDriver(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	env, members := newNodeMembers(t)
	want := map[string]bool{}
	for _, m := range members {
		want[m.node] = true
	}
	env.Eventually("each node holds a Lease with the driver's label", func() bool {
		holders := map[string]bool{}
		for _, l := range env.Leases().List(labels.DriverLabel + "=" + env.Driver) {
			holders[ptr.Deref(l.Spec.HolderIdentity, "")] = true
		}
		return maps.Equal(holders, want)
	})
}

// patchesOf counts the sidecars' patches to a PV, which all change its finalizers, once the audit log has at least
// least of them. The log is written behind the answers.
func (env *environment) patchesOf(pv string, least int) (n int) {
	env.T.Helper()
	env.Eventually("the audit log has the patches of PV "+pv, func() bool {
		n = len(env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
			return e.Resource == "persistentvolumes" && e.Name == pv && e.Verb == "patch" && e.Code == 200
		}))
		return n >= least
	})
	return n
}

// TestNodeDeploymentClaimMovesToAnotherNode loses the answer of one node's driver, and stops that node while another
// one is selected.
func TestNodeDeploymentClaimMovesToAnotherNode(t *testing.T) {
	fixture.Begin(t, suite.Variant, fixture.AboutDriver)
	env, members := newNodeMembers(t)
	one, two := members[0], members[1]
	env.Must(one.driver.SetFaults(env.Ctx, faults.Plan{Rules: []faults.Rule{loseCreateAnswers()}}))
	claim := env.CreateClaim(env.CreateStorageClass(fixture.WithWaitForFirstConsumer), fixture.WithSelectedNode(one.node))
	env.Eventually("the volume is on the first node's disk", func() bool { return one.has(claim) })
	one.sidecar.Kill()
	env.Claims().Annotate(claim.Name, objects.SelectedNode, two.node)
	vol := env.WaitBound(claim)
	if !two.has(claim) || !one.has(claim) {
		t.Fatalf("on disk: first node %v, second %v", one.has(claim), two.has(claim))
	}
	env.Must(one.driver.ClearFaults(env.Ctx))
	env.Must(one.sidecar.Restart())
	env.waitBoundAndSettled(claim)
	env.Eventually("what the first node had begun is gone", func() bool { return !one.has(claim) })
	if !two.has(claim) || len(two.calls("DeleteVolume", claim)) > 0 {
		t.Error("WRONG DELETE: the claim's volume is gone")
	}
	env.MustDeleteClaim(claim)
	env.Must(vol.WaitGone(env.WithTimeout()))
	if two.has(claim) {
		t.Error("LEAK: the volume is on its node's disk")
	}
}

// TestTheLogOfANodeGoesWithItsNode expects one Lease for each node. Garbage collection removes it with the Node, unless
// a volume is in flight.
func TestTheLogOfANodeGoesWithItsNode(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	env, members := newNodeMembers(t)
	one, two := members[0], members[1]
	shards := func() map[string]string { // owner by node
		list, owners := env.Leases().List(inflight.LabelLog+"=true"), map[string]string{}
		for _, l := range list {
			for _, m := range members {
				if !strings.HasSuffix(l.Name, "-in-flight-"+m.node+"-0") {
					continue
				}
				owners[m.node] = ""
				for _, owner := range l.OwnerReferences {
					owners[m.node] += owner.Name
				}
			}
		}
		if len(list) != len(owners) {
			t.Errorf("%d Leases, want one for each node", len(list))
		}
		return owners
	}
	class := env.CreateStorageClass(fixture.WithWaitForFirstConsumer)
	env.waitBoundAndSettled(env.CreateClaim(class, fixture.WithSelectedNode(one.node)))
	env.Eventually("both Leases are empty and their Nodes'", func() bool {
		return maps.Equal(shards(), map[string]string{one.node: one.node, two.node: two.node})
	})
	env.Must(two.driver.SetFaults(env.Ctx, faults.Plan{Rules: []faults.Rule{failWithCode("DeadlineExceeded")}}))
	claim := env.CreateClaim(class, fixture.WithSelectedNode(two.node))
	env.Eventually("a volume is in flight", func() bool { return env.IsInFlight(claim) })
	for _, m := range members {
		m.sidecar.Kill()
	}
	if owners := shards(); owners[one.node] != one.node || owners[two.node] != "" {
		t.Errorf("owners %v", owners)
	}
	for _, m := range members {
		env.Nodes().Delete(m.node)
	}
	env.Eventually("the empty Lease is gone", func() bool {
		_, there := shards()[one.node]
		return !there
	})
	if !env.IsInFlight(claim) {
		t.Error("the entry of a volume in flight is gone")
	}
}
