package agents

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// storage creates a NetworkFenceClass of the driver, and returns its agent.
func (b *bench) storage(class string) v1alpha1.Agent {
	b.Helper()
	b.create(csiAddonsVersion, "NetworkFenceClass", class, map[string]any{"spec": map[string]any{"provisioner": "driver",
		"parameters": map[string]any{"clusterID": "one", "csiaddons.openshift.io/networkfence-secret-name": "secret"}}})
	return b.networkFence(class)
}

func (b *bench) networkFence(class string) v1alpha1.Agent {
	return v1alpha1.Agent{Name: "storage", Covers: v1alpha1.CoversVolumes,
		NetworkFence: &v1alpha1.NetworkFenceAgent{Driver: "driver", NetworkFenceClassName: class,
			Addresses: v1alpha1.AddressesInternalIP}}
}

// has gives the node addresses.
func (b *bench) has(addresses ...v1.NodeAddress) {
	b.Helper()
	o, err := b.clients.CoreV1().Nodes().Get(b.Context(), b.node, metav1.GetOptions{})
	b.must(err)
	o.Status.Addresses = addresses
	_, err = b.clients.CoreV1().Nodes().UpdateStatus(b.Context(), o, metav1.UpdateOptions{})
	b.must(err)
}

// otherNode creates node-2 with addresses.
func (b *bench) otherNode(addresses ...v1.NodeAddress) {
	b.Helper()
	_, err := b.clients.CoreV1().Nodes().Create(b.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"},
		Status: v1.NodeStatus{Addresses: addresses}}, metav1.CreateOptions{})
	b.must(err)
}

func internalIP(address string) v1.NodeAddress {
	return v1.NodeAddress{Type: v1.NodeInternalIP, Address: address}
}

func (b *bench) theFence(ask fencing.Ask) *unstructured.Unstructured {
	b.Helper()
	return b.get(csiAddonsVersion, "NetworkFence", networkFences{}.name(ask))
}

// carriesOut sets the status in the way of csi-addons.
func (b *bench) carriesOut(ask fencing.Ask, result, message string) {
	b.Helper()
	b.update(csiAddonsVersion, "NetworkFence", networkFences{}.name(ask), func(o *unstructured.Unstructured) {
		o.Object["status"] = map[string]any{"result": result, "message": message}
	})
}

func cidrsOf(o *unstructured.Unstructured) []string {
	all, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "cidrs")
	return all
}

func networkFenceIsStartedOnce(b *bench) {
	agent := b.storage("class-" + b.namespace)
	ask := b.ask(agent)
	b.has(internalIP("10.0.0.7"), v1.NodeAddress{Type: v1.NodeExternalIP, Address: "192.0.2.1"}, internalIP("fd00::7"))
	b.state(ask, fencing.RunAbsent, "")
	b.must(b.Stop(b.Context(), ask))
	b.must(b.Start(b.Context(), ask))
	first := b.theFence(ask)
	b.must(b.Start(b.Context(), ask))
	b.must(b.Start(b.Context(), b.ask(agent, second)))
	o := b.theFence(ask)
	if o.GetUID() != first.GetUID() || text(o, "spec", "fenceState") != "Fenced" ||
		text(o, "spec", "networkFenceClassName") != "class-"+b.namespace ||
		!slices.Equal(cidrsOf(o), []string{"10.0.0.7/32", "fd00::7/128"}) || o.GetLabels()[FenceLabel] != string(b.fence) ||
		o.GetLabels()[kube.NoBackup] != "true" {
		b.Errorf("%+v", o.Object)
	}
	if refs := o.GetOwnerReferences(); len(refs) != 1 || refs[0].UID != b.fence {
		b.Errorf("%+v", refs)
	}
	b.state(ask, fencing.Running, "is at work.")
	b.carriesOut(ask, "Failed", "no connection")
	b.state(ask, fencing.Running, "has failed: no connection")
	b.carriesOut(ask, "Succeeded", "unfencing operation successful")
	b.state(ask, fencing.Running, "is at work.")
	b.carriesOut(ask, "Failed", "fencing operation successful")
	b.state(ask, fencing.Running, "has failed")
	b.carriesOut(ask, "Succeeded", "fencing operation successful")
	b.state(ask, fencing.RunSucceeded, "fencing operation successful")
	b.state(b.ask(agent, second), fencing.RunSucceeded, "fencing operation successful")
}

// A NetworkFence outlives the machine whose addresses it names.
func TestNetworkFenceOfFormerMachineIsNoProof(t *testing.T) {
	boot := func(id string) func(*fencing.Ask) { return func(a *fencing.Ask) { a.BootID = id } }
	for name, c := range map[string]struct {
		first, next string
		addresses   []v1.NodeAddress
		want        fencing.RunState
		words       string
	}{
		"the same boot, other addresses": {"one", "one", []v1.NodeAddress{internalIP("10.0.0.8")}, fencing.RunSucceeded, ""},
		"another boot":                   {"one", "two", []v1.NodeAddress{internalIP("10.0.0.7")}, fencing.RunSucceeded, ""},
		"another boot, other addresses": {"one", "two", []v1.NodeAddress{internalIP("10.0.0.8")}, fencing.RunUnknown,
			"other addresses than the node has now"},
		"another boot, one more address": {"one", "two", []v1.NodeAddress{internalIP("10.0.0.7"), internalIP("10.0.0.8")},
			fencing.RunUnknown, "other addresses"},
		"another boot, no address": {"one", "two", []v1.NodeAddress{}, fencing.RunUnknown, "no address of type InternalIP"},
		"unknown boots, other addresses": {"", "", []v1.NodeAddress{internalIP("10.0.0.8")}, fencing.RunUnknown,
			"other addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			agent := b.storage("class")
			b.must(b.Start(t.Context(), b.ask(agent, boot(c.first))))
			b.carriesOut(b.ask(agent), "Succeeded", "fencing operation successful")
			b.has(c.addresses...)
			b.state(b.ask(agent, second, boot(c.next)), c.want, c.words)
		})
	}
}

// A NetworkFence is undone and never deleted, because csi-addons does not unfence when it is deleted.
func networkFenceIsUndone(b *bench) {
	agent := b.storage("class-" + b.namespace)
	ask, back := b.ask(agent), b.ask(agent, undo, second)
	b.state(back, fencing.RunSucceeded, "is gone.")
	b.must(b.Start(b.Context(), back))
	b.must(b.Start(b.Context(), ask))
	b.carriesOut(ask, "Succeeded", "fencing operation successful")
	back.Acted = true
	b.state(back, fencing.RunAbsent, "does not ask for Unfenced.")
	b.must(b.Start(b.Context(), back))
	b.must(b.Start(b.Context(), back))
	o := b.theFence(ask)
	if text(o, "spec", "fenceState") != "Unfenced" || !slices.Equal(cidrsOf(o), []string{"10.0.0.7/32"}) {
		b.Errorf("%+v", o.Object)
	}
	b.state(back, fencing.Running, "is at work.")
	b.carriesOut(ask, "Failed", "no connection")
	b.state(back, fencing.RunUnknown, "has failed: no connection")
	b.carriesOut(ask, "Succeeded", "unfencing operation successful")
	b.state(back, fencing.RunSucceeded, "unfencing operation successful")
}

// A stopped fence may be in force or come into force later. The next attempt begins only when it is unfenced.
func stoppedNetworkFenceIsUnfenced(b *bench) {
	agent := b.storage("class-" + b.namespace)
	ask, next := b.ask(agent), b.ask(agent, second)
	b.must(b.Start(b.Context(), ask))
	b.must(b.Stop(b.Context(), ask))
	b.must(b.Stop(b.Context(), ask))
	b.state(ask, fencing.RunAbsent, "does not ask for Fenced.")
	if got := b.theFence(ask).GetAnnotations(); got[attemptAnnotation] != "1" || got[nodeAnnotation] != b.node {
		b.Errorf("it is stopped, and has the annotations %v", got)
	}
	b.carriesOut(ask, "Succeeded", "fencing operation successful")
	b.fails(b.Start(b.Context(), next), "csi-addons has not yet completed the unfence")
	b.carriesOut(ask, "Failed", "unfencing operation successful")
	b.fails(b.Start(b.Context(), next), "csi-addons has not yet completed the unfence")
	b.carriesOut(ask, "Succeeded", "unfencing operation successful")
	b.has(internalIP("10.0.0.8"))
	b.must(b.Start(b.Context(), next))
	o := b.theFence(ask)
	if text(o, "spec", "fenceState") != "Fenced" || !slices.Equal(cidrsOf(o), []string{"10.0.0.8/32"}) ||
		o.GetAnnotations()[attemptAnnotation] != "2" {
		b.Errorf("%+v", o.Object)
	}
	b.state(next, fencing.Running, "is at work.")
}

// The class identifies the volumes that a proof covers, and nothing else depends on it.
func TestOnlyProofNeedsClass(t *testing.T) {
	b := newBench(t)
	ask, back := b.ask(b.storage("class")), b.ask(b.networkFence("class"), undo)
	b.must(b.Start(t.Context(), ask))
	b.vanish(csiAddonsVersion, "NetworkFenceClass", "class")
	b.state(ask, fencing.Running, "is at work.")
	b.carriesOut(ask, "Succeeded", "fencing operation successful")
	b.state(ask, fencing.RunUnknown, "read NetworkFenceClass class")
	b.must(b.Start(t.Context(), back))
	b.carriesOut(ask, "Succeeded", "unfencing operation successful")
	b.state(back, fencing.RunSucceeded, "unfencing operation successful")
}

func TestNetworkFenceIsStoppedOnce(t *testing.T) {
	b := newBench(t)
	ask := b.ask(b.storage("class"))
	b.must(b.Start(t.Context(), ask))
	b.must(b.Stop(t.Context(), ask))
	b.fail("patch", "networkfences")
	b.must(b.Stop(t.Context(), ask))
}

func TestTerminatingNetworkFenceIsStopping(t *testing.T) {
	b := newBench(t)
	agent := b.storage("class")
	b.must(b.Start(t.Context(), b.ask(agent)))
	b.update(csiAddonsVersion, "NetworkFence", networkFences{}.name(b.ask(agent)), func(o *unstructured.Unstructured) {
		at := metav1.Now()
		o.SetDeletionTimestamp(&at)
		o.SetFinalizers([]string{"csiaddons.openshift.io/network-fence"})
	})
	b.state(b.ask(agent), fencing.RunStopping, "is terminating.")
	b.state(b.ask(agent, undo), fencing.RunStopping, "is terminating.")
}

func foreignNetworkFenceIsLeftAlone(b *bench) {
	agent := b.storage("class-" + b.namespace)
	name := networkFences{}.name(b.ask(agent))
	for _, state := range []string{"Fenced", "Unfenced"} {
		b.create(csiAddonsVersion, "NetworkFence", name, map[string]any{
			"spec":   map[string]any{"fenceState": state, "networkFenceClassName": "other", "cidrs": []any{"192.0.2.1/32"}},
			"status": map[string]any{"result": "Succeeded", "message": "unfencing operation successful"}})
		b.state(b.ask(agent), fencing.RunUnknown, "it was not created for this NodeFence")
		b.state(b.ask(agent, undo), fencing.RunUnknown, "it was not created for this NodeFence")
		b.must(b.Start(b.Context(), b.ask(agent)))
		b.must(b.Stop(b.Context(), b.ask(agent)))
		if o := b.theFence(b.ask(agent)); text(o, "spec", "fenceState") != state || len(cidrsOf(o)) != 1 {
			b.Errorf("%+v", o.Object)
		}
		b.vanish(csiAddonsVersion, "NetworkFence", name)
	}
}

// driverOn creates the CSIAddonsNode of a driver on a node, which reports these addresses for a class.
func (b *bench) driverOn(name, driver, node string, clients ...any) {
	b.Helper()
	b.create(csiAddonsVersion, "CSIAddonsNode", name, map[string]any{
		"spec":   map[string]any{"driver": map[string]any{"name": driver, "nodeID": node, "endpoint": "pod://x"}},
		"status": map[string]any{"networkFenceClientStatus": clients}})
}

func reports(class string, cidrs ...any) map[string]any {
	return map[string]any{"networkFenceClassName": class,
		"ClientDetails": []any{"garbage", map[string]any{"id": "x", "cidrs": cidrs}}}
}

// The storage system may know a node by other addresses than Kubernetes, so its internal addresses are no substitute.
func TestNetworkFenceAddresses(t *testing.T) {
	const unknown = "no CSIAddonsNode of the driver has reported the addresses of the node"
	of := func(name, driver, node, class string) func(*bench) {
		return func(b *bench) {
			b.driverOn(name, driver, node, "garbage", reports(class, "172.16.0.9/32", "172.16.0.8/32"))
		}
	}
	for name, c := range map[string]struct {
		addresses v1alpha1.FenceAddresses
		prepare   func(*bench)
		want      []string
		fails     string
	}{
		"the reported ones": {v1alpha1.AddressesReported, of("a", "driver", "node-1", "class"), reported, ""},
		"by default":        {"", of("a", "driver", "node-1", "class"), reported, ""},
		"none is reported":  {v1alpha1.AddressesReported, func(*bench) {}, nil, unknown},
		"none, by default":  {"", func(*bench) {}, nil, unknown},
		"of a class":        {"", of("a", "driver", "node-1", "other"), nil, unknown},
		"of a driver":       {"", of("a", "other", "node-1", "class"), nil, unknown},
		"of a node":         {"", of("a", "driver", "node-2", "class"), nil, unknown},
		"the node's":        {v1alpha1.AddressesInternalIP, func(*bench) {}, []string{"10.0.0.7/32"}, ""},
		"the node's, not those": {
			v1alpha1.AddressesInternalIP, of("a", "driver", "node-1", "class"), []string{"10.0.0.7/32"}, ""},
		"the node has none": {v1alpha1.AddressesInternalIP, func(b *bench) {
			b.has(v1.NodeAddress{Type: v1.NodeHostName, Address: "node-1"})
		}, nil, "no address of type InternalIP"},
		"another node has one of the node's": {v1alpha1.AddressesInternalIP, func(b *bench) {
			b.has(internalIP("10.0.0.7"), internalIP("10.0.0.9"))
			b.otherNode(internalIP("10.0.0.8"), internalIP("10.0.0.9"))
		}, nil, `10.0.0.9/32 of node "node-2": another node has this address, too`},
		"another node has others": {v1alpha1.AddressesInternalIP, func(b *bench) {
			b.otherNode(internalIP("10.0.0.8"))
		}, []string{"10.0.0.7/32"}, ""},
		"a report that includes another node": {"", func(b *bench) {
			of("a", "driver", "node-1", "class")(b)
			b.driverOn("b", "driver", "node-2", reports("class", "172.16.0.0/24"))
		}, nil, `172.16.0.0/24 of node "node-2": another node has this address, too`},
		"a report of the internal address of another node": {"", func(b *bench) {
			b.driverOn("a", "driver", "node-1", reports("class", "::ffff:10.0.0.8/128"))
			b.otherNode(internalIP("10.0.0.8"))
		}, nil, `10.0.0.8/32 of node "node-2": another node has this address, too`},
		"a report that is no address": {"", func(b *bench) {
			b.driverOn("a", "driver", "node-1", reports("class", "010.0.0.8/32"))
		}, nil, `address of node "node-1": netip.ParsePrefix("010.0.0.8/32")`},
		"another node's report of another class": {"", func(b *bench) {
			of("a", "driver", "node-1", "class")(b)
			b.driverOn("b", "driver", "node-2", reports("other", "172.16.0.8/32"))
		}, reported, ""},
		"of two pods of the driver": {"", func(b *bench) {
			of("a", "driver", "node-1", "class")(b)
			of("b", "driver", "node-1", "class")(b)
		}, reported, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			agent := b.storage("class")
			agent.NetworkFence.Addresses = c.addresses
			ask := b.ask(agent)
			c.prepare(b)
			if c.fails != "" {
				b.fails(b.Start(t.Context(), ask), c.fails)
				b.state(ask, fencing.RunAbsent, "")
				return
			}
			b.must(b.Start(t.Context(), ask))
			if got := cidrsOf(b.theFence(ask)); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

var reported = []string{"172.16.0.8/32", "172.16.0.9/32"}

// A deleted NetworkFence was not unfenced, and a NetworkFence that never existed needs no undo.
func TestDeletedNetworkFenceIsNotUndone(t *testing.T) {
	b := newBench(t)
	agent := b.storage("class")
	b.must(b.Start(t.Context(), b.ask(agent)))
	b.vanish(csiAddonsVersion, "NetworkFence", networkFences{}.name(b.ask(agent)))
	acted := func(a *fencing.Ask) { a.Acted = true }
	b.state(b.ask(agent, undo, acted), fencing.RunUnknown, "kubectl reclaim unfence --abandon")
	b.state(b.ask(agent, acted), fencing.RunAbsent, "")
	b.state(b.ask(agent, undo), fencing.RunSucceeded, "is gone.")
}

// A driver may serve several storage systems, which the parameters of the class tell apart.
func TestNetworkFenceVolumes(t *testing.T) {
	one, long := map[string]any{"clusterID": "one"}, strings.Repeat("a", 257)
	many := map[string]any{"csiaddons.openshift.io/networkfence-secret-name": "secret"}
	tooMany := map[string]any{"a": "a"}
	for i := range v1alpha1.MaxVolumeAttributes {
		many[strconv.Itoa(i)], tooMany[strconv.Itoa(i)] = "a", "a"
	}
	const none, bounds = "it has no parameters that tell storage systems apart", "it has more than 16 parameters"
	for name, c := range map[string]struct {
		parameters map[string]any
		alter      func(*v1alpha1.NetworkFenceAgent)
		want       int
		fails      string
	}{
		"the parameters":                      {one, func(*v1alpha1.NetworkFenceAgent) {}, 1, ""},
		"without the attributes of the class": {many, func(*v1alpha1.NetworkFenceAgent) {}, 16, ""},
		"none":                                {nil, func(*v1alpha1.NetworkFenceAgent) {}, 0, none},
		"only the attributes of csi-addons": {map[string]any{"csiaddons.openshift.io/networkfence-secret-name": "secret"},
			func(*v1alpha1.NetworkFenceAgent) {}, 0, none},
		"too many":     {tooMany, func(*v1alpha1.NetworkFenceAgent) {}, 0, bounds},
		"a long value": {map[string]any{"a": long}, func(*v1alpha1.NetworkFenceAgent) {}, 0, bounds},
		"a long key":   {map[string]any{long[:129]: "a"}, func(*v1alpha1.NetworkFenceAgent) {}, 0, bounds},
		"no text":      {map[string]any{"a": int64(1)}, func(*v1alpha1.NetworkFenceAgent) {}, 0, "is of the type int64"},
		"all":          {nil, func(a *v1alpha1.NetworkFenceAgent) { a.Volumes = v1alpha1.VolumesAll }, 0, ""},
		"the agent says it": {nil, func(a *v1alpha1.NetworkFenceAgent) {
			a.VolumeAttributes = map[string]v1alpha1.AttributeValue{"array": "a"}
		}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.create(csiAddonsVersion, "NetworkFenceClass", "class",
				map[string]any{"spec": map[string]any{"provisioner": "driver", "parameters": c.parameters}})
			agent := b.networkFence("class")
			c.alter(agent.NetworkFence)
			ask := b.ask(agent)
			if c.fails != "" {
				b.fails(b.Start(t.Context(), ask), c.fails)
				return
			}
			b.must(b.Start(t.Context(), ask))
			b.carriesOut(ask, "Succeeded", "fencing operation successful")
			got := b.Read(t.Context(), ask)
			if got.State != fencing.RunSucceeded || len(got.Attributes) != c.want {
				t.Errorf("%+v", got)
			}
			for key := range got.Attributes {
				if strings.Contains(key, "secret") {
					t.Errorf("%+v", got.Attributes)
				}
			}
		})
	}
}

// A class that was created anew may name another storage system than csi-addons has fenced.
func TestClassMustNotBeNewerThanNetworkFence(t *testing.T) {
	for name, c := range map[string]struct {
		age   time.Duration
		state fencing.RunState
	}{"older": {-time.Second, fencing.RunSucceeded}, "as old": {0, fencing.RunSucceeded},
		"newer": {time.Second, fencing.RunUnknown}} {
		b := newBench(t)
		ask := b.ask(b.storage("class"))
		b.must(b.Start(t.Context(), ask))
		b.carriesOut(ask, "Succeeded", "fencing operation successful")
		created := func(at time.Time) func(*unstructured.Unstructured) {
			return func(o *unstructured.Unstructured) { o.SetCreationTimestamp(metav1.NewTime(at)) }
		}
		now := time.Unix(1e9, 0)
		b.update(csiAddonsVersion, "NetworkFence", networkFences{}.name(ask), created(now))
		b.update(csiAddonsVersion, "NetworkFenceClass", "class", created(now.Add(c.age)))
		if got := b.Read(t.Context(), ask); got.State != c.state {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A proof must not be about the volumes of another driver.
func TestClassMustMatchDriver(t *testing.T) {
	b := newBench(t)
	b.fails(b.Start(t.Context(), b.ask(b.networkFence("none"))), "read NetworkFenceClass none")
	b.create(csiAddonsVersion, "NetworkFenceClass", "other",
		map[string]any{"spec": map[string]any{"provisioner": "other"}})
	ask := b.ask(b.networkFence("other"))
	b.fails(b.Start(t.Context(), ask), "NetworkFenceClass other: it is of another driver than the agent names")
	b.state(ask, fencing.RunAbsent, "")
}

func TestNetworkFenceErrors(t *testing.T) {
	b := newBench(t)
	agent := b.storage("class")
	b.must(b.Start(t.Context(), b.ask(agent)))
	b.fail("patch", "networkfences")
	b.fails(b.Stop(t.Context(), b.ask(agent)), "patch NetworkFence fence-")
	b.fails(b.Start(t.Context(), b.ask(agent, undo)), "patch NetworkFence fence-")
	b.fail("create", "networkfences")
	b.fails(b.Start(t.Context(), b.ask(agent, otherFence)), "create NetworkFence fence-")
	b.fail("get", "networkfences")
	b.state(b.ask(agent), fencing.RunUnknown, "read NetworkFence fence-")
	b.fails(b.Start(t.Context(), b.ask(agent)), "read NetworkFence fence-")
	b.fails(b.Stop(t.Context(), b.ask(agent)), "read NetworkFence fence-")
	b.fail("get", "nodes")
	b.fails(b.Start(t.Context(), b.ask(agent)), `read node "node-1"`)
	b.fail("list", "csiaddonsnodes")
	agent.NetworkFence.Addresses = v1alpha1.AddressesReported
	b.fails(b.Start(t.Context(), b.ask(agent)), "list CSIAddonsNodes")
}

// discovered is a mapper that finds all kinds but the one it lacks only after a reset, and counts the resets.
type discovered struct {
	meta.RESTMapper
	lacks  string
	resets int
}

func (m *discovered) Reset() { m.RESTMapper, m.resets = without(m.lacks), m.resets+1 }

// csi-addons is installed after the mapper's first discovery.
func TestKindInstalledLater(t *testing.T) {
	b := newBench(t)
	mapper := &discovered{RESTMapper: without("NetworkFence")}
	b.mapper = mapper
	ask := b.ask(b.storage("class"))
	for range 2 {
		b.state(ask, fencing.RunAbsent, "")
	}
	if mapper.resets != 1 {
		t.Errorf("%d discoveries of one new kind", mapper.resets)
	}
}

// Each discovery reads all kinds of the cluster, and the agents of other fences wait for it.
func TestKindNeverInstalled(t *testing.T) {
	b := newBench(t)
	mapper := &discovered{RESTMapper: without("NetworkFence"), lacks: "NetworkFence"}
	b.mapper = mapper
	ask := b.ask(b.storage("class"))
	for range 10 {
		b.state(ask, fencing.RunUnknown, "find kind NetworkFence")
	}
	if mapper.resets != 1 {
		t.Errorf("%d discoveries of ten reads", mapper.resets)
	}
}

// csi-addons is not installed, or in part.
func TestNetworkFenceWithoutKinds(t *testing.T) {
	for _, missing := range []string{"NetworkFence", "NetworkFenceClass", "CSIAddonsNode"} {
		b := newBench(t)
		agent := b.storage("class")
		agent.NetworkFence.Addresses = v1alpha1.AddressesReported
		b.driverOn("a", "driver", b.node, reports("class", "172.16.0.9/32"))
		b.mapper = without(missing)
		b.fails(b.Start(t.Context(), b.ask(agent)), "find kind "+missing+" of csiaddons.openshift.io/v1alpha1")
		if missing == "NetworkFence" {
			b.state(b.ask(agent), fencing.RunUnknown, "find kind NetworkFence")
			b.fails(b.Stop(t.Context(), b.ask(agent)), "find kind NetworkFence")
		}
	}
}
