package provision

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestDecideBid(t *testing.T) {
	selects := provisioning.Decision{Action: provisioning.SelectNode, Reason: provisioning.ReasonNodeSelection}
	leaves := provisioning.Decision{Reason: provisioning.ReasonOtherNode, Done: true}
	waits := provisioning.Decision{Reason: provisioning.ReasonNodeSelection, Timed: true}
	ready := selfSelection{Enabled: true, Free: true, Node: provisioning.NodeNone, Immediate: true, Allowed: true,
		Due: now()}
	change := func(change func(*selfSelection)) selfSelection { b := ready; change(&b); return b }
	cases := map[string]struct {
		facts selfSelection
		want  provisioning.Decision
	}{
		"its turn has come":                       {ready, selects},
		"nothing is known":                        {selfSelection{}, leaves},
		"its turn has not come":                   {change(func(b *selfSelection) { b.Due = now().Add(1) }), waits},
		"it has not drawn":                        {change(func(b *selfSelection) { b.Due = time.Time{} }), waits},
		"it does not take part":                   {change(func(b *selfSelection) { b.Enabled = false }), leaves},
		"the claim has a PV, or is being deleted": {change(func(b *selfSelection) { b.Free = false }), leaves},
		"another node was faster": {change(func(b *selfSelection) { b.Node = provisioning.NodeElsewhere }),
			leaves},
		"it is selected already": {change(func(b *selfSelection) { b.Node = provisioning.NodeHere }),
			leaves},
		"it answers for all nodes":           {change(func(b *selfSelection) { b.Node = provisioning.NodeAny }), leaves},
		"the scheduler selects":              {change(func(b *selfSelection) { b.Immediate = false }), leaves},
		"the class does not allow this node": {change(func(b *selfSelection) { b.Allowed = false }), leaves},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := decideSelfSelection(c.facts, now()); got != c.want {
				t.Errorf("decideSelfSelection = %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestWhenANodeBids(t *testing.T) {
	const first, most = 20 * time.Second, time.Minute
	for _, luck := range []float64{0, 0.5, 0.999} {
		b := newSelections()
		b.draw = func() float64 { return luck }
		delay := func() time.Duration { return b.due("u1", now(), first, most).Sub(now()) }
		if d := delay(); d != time.Duration(luck*float64(first)) {
			t.Errorf("first: %v", d)
		}
		again := b.due("u1", now().Add(time.Hour), first, most)
		if again.Sub(now()) != time.Duration(luck*float64(first)) {
			t.Error("draws twice for one turn")
		}
		for _, whole := range []time.Duration{40 * time.Second, most, most} {
			b.selected("u1")
			if d := delay(); d < whole/2 || d > whole {
				t.Errorf("after a turn: %v, want between half and whole of %v", d, whole)
			}
		}
		b.forget("u1")
		if d := delay(); d > first {
			t.Errorf("after it was forgotten: %v", d)
		}
	}
}

func TestLegacyFinalizerOf(t *testing.T) {
	long := strings.Repeat("a-long-name.", 20) + "example.com"
	names := map[string]bool{}
	for _, node := range []string{"n1", "ip-10-0-0-1.eu-central-1.compute.internal", long, "b" + long[1:],
		long[:len(long)-1]} {
		name := legacyFinalizerOf(node)
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			t.Errorf("%s: %q", name, problems)
		}
		if names[name] || !IsLegacyFinalizer(name) {
			t.Errorf("%s is another's, or nobody's", name)
		}
		names[name] = true
	}
	if !names[LegacyFinalizer+"-n1"] {
		t.Errorf("a short name is not in it: %v", names)
	}
}

// onNode is the Config of a process that makes the volumes of one node.
func onNode(name string) Config {
	return Config{Local: &Local{
		Node: volume.Node{Name: name, Segments: map[string]string{"node": name}}, Immediate: true,
		BaseDelay: 2 * time.Millisecond, MaxDelay: 20 * time.Millisecond,
	}}
}

// affinityTo is that of volumes which one node has.
func affinityTo(node string) *v1.VolumeNodeAffinity {
	return topology.Affinity([]*csi.Topology{{Segments: map[string]string{"node": node}}})
}

func lateClass(w *world) {
	w.deleteClass()
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	_, err := w.client.StorageV1().StorageClasses().Create(w.t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: driverName, VolumeBindingMode: &mode},
		metav1.CreateOptions{})
	w.must(err)
}

// chooseSecond selects the second node for the claim, as the scheduler would.
func (w *world) chooseSecond() {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"n2"}}}`, annSelectedNode)
	_, err := w.client.CoreV1().PersistentVolumeClaims("ns").Patch(w.t.Context(), "data", types.MergePatchType, patch,
		metav1.PatchOptions{})
	w.must(err)
}

func TestANodeMakesTheVolumesOfItsClaimsAlone(t *testing.T) {
	w := newWorld(t)
	lateClass(w)
	one, two := w.make(onNode("n1")), w.make(onNode("n2"))
	one.start()
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[annSelectedNode] = "n2" })
	two.start()
	w.wait("it is provisioned", w.provisioned)
	if n := w.count("create volume"); n != 1 {
		t.Errorf("%d CreateVolume calls", n)
	}
}

func TestOneNodeOfAllSelectsItself(t *testing.T) {
	w := newWorld(t)
	one, two := w.make(onNode("n1")), w.make(onNode("n2"))
	one.start()
	two.start()
	w.makeClaim()
	w.wait("it is provisioned", w.provisioned)
	if n := w.count("create volume"); n != 1 {
		t.Errorf("%d CreateVolume calls: %q", n, w.told())
	}
}

func TestANodeThatIsNotToBidDoesNot(t *testing.T) {
	w := newWorld(t)
	cfg := onNode("n1")
	cfg.Local.Immediate = false
	one, two := w.make(cfg), w.make(onNode("n2"))
	one.start()
	w.makeClaim()
	two.start()
	w.wait("the PV is stored", func() bool { return w.pv() != nil })
	if w.count("select n1") > 0 {
		t.Errorf("diary %q", w.told())
	}
}

// TestAClaimThatGoesToAnotherNode has one node's driver answer with a timeout although the volume was made. Both nodes'
// volumes get a PersistentVolume: the claim binds to one, and the other is Released.
func TestAClaimThatGoesToAnotherNode(t *testing.T) {
	for name, restarts := range map[string]bool{"while the first node works": false,
		"while the first node is away": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			lateClass(w)
			one, two, again := w.make(onNode("n1")), w.make(onNode("n2")), w.make(onNode("n1"))
			one.start()
			w.failing(true, class(errclass.Uncertain))
			w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[annSelectedNode] = "n1" })
			w.wait("the volume is made", func() bool { return len(w.onDisk()) == 1 })
			one.stop()
			w.chooseSecond()
			w.failing(false, nil)
			two.start()
			w.wait("the second node has provisioned it", func() bool { return w.pv() != nil })
			w.update(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-u1" })
			if restarts {
				w.deleteClaim()
			}
			again.start()
			w.wait("the first node's volume has its PV", func() bool { return len(w.onDisk()) == 2 && w.knownVolumes() })
			if w.count("delete volume") > 0 || w.pv().Spec.CSI.VolumeHandle != "vol-n2pvc-u1" {
				t.Errorf("diary %q, PV %+v", w.told(), w.pv())
			}
		})
	}
}

// TestANodeThatDiesAndItsClaimMoves has one node die before or after its k-th write or call, and another
// node be selected while it is away, or when it is back.
func TestANodeThatDiesAndItsClaimMoves(t *testing.T) {
	const moments = 4
	for _, away := range []bool{false, true} {
		for _, deleted := range []bool{false, true} {
			for _, uncertain := range []bool{false, true} {
				for _, dies := range []death{before, after} {
					for k := 1; k <= moments; k++ {
						t.Run(fmt.Sprintf("away %v, deleted %v, uncertain %v, dies %d, moment %d", away, deleted, uncertain, dies, k),
							func(t *testing.T) {
								move(t, away, deleted, uncertain, dies, k)
							})
					}
				}
			}
		}
	}
}

func move(t *testing.T, away, deleted, uncertain bool, dies death, k int) {
	t.Helper()
	w := newWorld(t)
	lateClass(w)
	if uncertain {
		asked := 0
		w.failing(true, func() error {
			if asked++; asked == 1 {
				return class(errclass.Uncertain)()
			}
			return nil
		})
	}
	w.each = func(n int, _ string) death {
		if n == k {
			return dies
		}
		return goesOn
	}
	one := w.start(onNode("n1"))
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[annSelectedNode] = "n1" })
	w.wait("it dies, or comes to its end in fewer steps", func() bool { return one.gone() || w.provisioned() })
	one.stop()
	w.mu.Lock()
	w.each = nil
	w.mu.Unlock()
	one = w.make(onNode("n1"))
	two := w.make(onNode("n2"))
	two.start()
	if away {
		w.chooseSecond()
	}
	one.start()
	if !away {
		w.chooseSecond()
	}
	if deleted {
		w.deleteClaim()
	} else {
		w.wait("the claim has a PV", func() bool { return w.pv() != nil })
		w.update(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-u1" })
	}
	w.wait("every volume has its PV", w.knownVolumes)
	if w.count("delete volume") > 0 {
		t.Errorf("diary %q", w.told())
	}
}

func TestAFullNodeGivesTheClaimBack(t *testing.T) {
	w := newWorld(t)
	lateClass(w)
	w.failing(false, class(errclass.Exhausted))
	w.start(onNode("n1"))
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[annSelectedNode] = "n1" })
	w.wait("the claim is given back", func() bool {
		return w.count("create volume") > 0 && w.claim().Annotations[annSelectedNode] == "" && w.settled()
	})
}

func TestAVolumeThatIsNotHereAloneIsRefused(t *testing.T) {
	c := &Builder{cfg: BuilderConfig{Node: &onNode("n1").Local.Node}}
	pv := &v1.PersistentVolume{}
	if c.checkHere(pv) == nil {
		t.Error("takes a volume of which no node is known")
	}
	pv.Spec.NodeAffinity = affinityTo("n1")
	if err := c.checkHere(pv); err != nil {
		t.Errorf("refuses its own: %v", err)
	}
	if _, err := newComposer(c.clients, incapable{}, c.cfg); err == nil {
		t.Error("takes a driver that does not say where its volumes are")
	}
}

// incapable is a driver without any capability.
type incapable struct{}

func (incapable) Name() string                                      { return driverName }
func (incapable) Has(csi.ControllerServiceCapability_RPC_Type) bool { return false }
func (incapable) Offers(csi.PluginCapability_Service_Type) bool     { return false }

func now() time.Time { return time.Unix(1e9, 0) }
