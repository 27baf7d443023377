package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// onNode is the Config of a process that provisions for one node.
func onNode(name string) Config {
	return Config{Local: &Local{
		Node: volume.Node{Name: name, Segments: map[string]string{"node": name}}, Immediate: true,
		BaseDelay: 2 * time.Millisecond, MaxDelay: 20 * time.Millisecond,
	}}
}

// affinityTo returns the node affinity of one node's volumes.
func affinityTo(node string) *v1.VolumeNodeAffinity {
	return topology.Affinity([]*csi.Topology{{Segments: map[string]string{"node": node}}})
}

func lateClass(w *world) {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	w.replaceClass(func(c *storagev1.StorageClass) { c.VolumeBindingMode = &mode })
}

// chooseSecond selects the second node for the claim, as the scheduler would.
func (w *world) chooseSecond() {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"n2"}}}`, volume.AnnSelectedNode)
	_, err := w.client.CoreV1().PersistentVolumeClaims("ns").Patch(w.t.Context(), "data", types.MergePatchType, patch,
		metav1.PatchOptions{})
	w.must(err)
}

func TestNodeProvisionsOnlyItsOwnClaims(t *testing.T) {
	w := newWorld(t)
	lateClass(w)
	one, two := w.make(onNode("n1")), w.make(onNode("n2"))
	one.start()
	w.makeClaim(selecting("n2"))
	two.start()
	w.wait("it is provisioned", w.provisioned)
	if n := w.count("create volume"); n != 1 {
		t.Errorf("%d CreateVolume calls", n)
	}
}

// TestInputsOfAnotherNode: a builder or a cache for the whole cluster would take other nodes' volumes for this one's.
func TestInputsOfAnotherNode(t *testing.T) {
	here := &volume.Node{Name: "n1", Segments: map[string]string{"node": "n1"}}
	local := &Local{Node: *here}
	for name, c := range map[string]struct {
		local         *Local
		log, pvs, rec *volume.Node
		want          string
	}{
		"one node":    {local, here, here, here, ""},
		"the cluster": {nil, nil, nil, nil, ""},
		"the log of the cluster": {local, nil, here, here,
			`Config.Local is node "n1", and Config.Log is of the whole cluster`},
		"PVs of the cluster": {local, here, nil, here,
			`Config.Local is node "n1", and Config.PVs is of the whole`},
		"requests of another node": {local, here, here, &volume.Node{Name: "n2"},
			`the RequestBuilder is of node "n2"`},
		"requests of one node": {nil, nil, nil, here,
			`Config.Local is the whole cluster, and the RequestBuilder is of node "n1"`},
	} {
		_, err := NewForClient(fake.NewClientset(), driverName, &process{}, requestsAt{plainOrders{}, c.rec},
			Config{Log: logAt{&processLog{}, c.log}, Local: c.local, PVs: pvsAt{node: c.pvs}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

type logAt struct {
	*processLog
	node *volume.Node
}

func (l logAt) Node() *volume.Node { return l.node }

type requestsAt struct {
	plainOrders
	node *volume.Node
}

func (r requestsAt) Node() *volume.Node { return r.node }

type pvsAt struct {
	pvsOf
	node *volume.Node
}

func (p pvsAt) Node() *volume.Node { return p.node }

func TestExactlyOneNodeSelectsItself(t *testing.T) {
	w := newWorld(t)
	one, two := w.make(onNode("n1")), w.make(onNode("n2"))
	one.start()
	two.start()
	w.makeClaim()
	w.wait("it is provisioned", w.provisioned)
	if n := w.count("create volume"); n != 1 {
		t.Errorf("%d CreateVolume calls: %q", n, w.recorded())
	}
}

func TestImmediateDisabledNodeDoesNotSelectItself(t *testing.T) {
	w := newWorld(t)
	cfg := onNode("n1")
	cfg.Local.Immediate = false
	one, two := w.make(cfg), w.make(onNode("n2"))
	one.start()
	w.makeClaim()
	two.start()
	w.wait("the PV is stored", func() bool { return w.pv() != nil })
	if w.count("select n1") > 0 {
		t.Errorf("records %q", w.recorded())
	}
}

// TestClaimMovesToAnotherNode: one node's driver answers with a timeout although it created the volume. The volumes of
// both nodes get a PersistentVolume: the claim binds to one, and the other is Released.
func TestClaimMovesToAnotherNode(t *testing.T) {
	for name, restarts := range map[string]bool{"while the first node works": false,
		"while the first node is away": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			lateClass(w)
			one, two, again := w.make(onNode("n1")), w.make(onNode("n2")), w.make(onNode("n1"))
			one.start()
			w.failing(true, class(errclass.Uncertain))
			w.makeClaim(selecting("n1"))
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
				t.Errorf("records %q, PV %+v", w.recorded(), w.pv())
			}
		})
	}
}

// TestNodeDiesAndItsClaimMoves lets a node die before or after its k-th write or call. Another node is selected while
// it is away or after it is back.
func TestNodeDiesAndItsClaimMoves(t *testing.T) {
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
		w.failing(true, first(1, errclass.Uncertain))
	}
	w.each = func(n int, _ string) death {
		if n == k {
			return dies
		}
		return goesOn
	}
	one := w.start(onNode("n1"))
	w.makeClaim(selecting("n1"))
	w.wait("it dies, or comes to its end in fewer steps", func() bool { return one.gone() || w.provisioned() })
	one.stop()
	w.set(func() { w.each = nil })
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
		t.Errorf("records %q", w.recorded())
	}
}

func TestFullLocalNodeIsDeselected(t *testing.T) {
	w := newWorld(t)
	lateClass(w)
	w.failing(false, class(errclass.Exhausted))
	w.start(onNode("n1"))
	w.makeClaim(selecting("n1"))
	w.wait("the claim is given back", func() bool {
		return w.count("create volume") > 0 && w.selectedNode() == "" && w.settled()
	})
}

// asking requests ten bytes.
func asking(c *v1.PersistentVolumeClaim) {
	c.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse("10")}
}

// TestFullNodeDoesNotSelectItself also checks that the node asks again, because a volume may be deleted.
func TestFullNodeDoesNotSelectItself(t *testing.T) {
	w := newWorld(t)
	w.replaceClass(func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"tier": "fast"} })
	w.room = func(node string, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
		if at := r.GetAccessibleTopology().GetSegments()["node"]; at != node || r.GetParameters()["tier"] != "fast" {
			t.Errorf("node %s asks %v", node, r)
		}
		return &csi.GetCapacityResponse{AvailableCapacity: map[string]int64{"n1": 9, "n2": 10}[node]}, nil
	}
	one, two := w.make(onNode("n1")), w.make(onNode("n2"))
	one.start()
	w.makeClaim(asking)
	w.wait("the full node asks again", func() bool { return w.count("get capacity n1") > 1 })
	two.start()
	w.wait("it is provisioned", w.provisioned)
	if w.count("select n1") > 0 || w.count("create volume") != 1 {
		t.Errorf("records %q", w.recorded())
	}
}

func TestNodeOfUnknownRoomSelectsItself(t *testing.T) {
	w := newWorld(t)
	w.room = func(string, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
		return nil, errors.New("no answer")
	}
	w.start(onNode("n1"))
	w.makeClaim(asking)
	w.wait("it is provisioned", w.provisioned)
	if w.count("get capacity n1") == 0 {
		t.Error("the driver was not asked")
	}
}

// still is a node whose queues do not run, so that a test makes each turn, on a clock that stands still. The node's own
// delay is too short to count.
func (w *world) still(name string) (p *process, clock *testclock.FakeClock, turn func() controller.Result) {
	cfg := onNode(name)
	clock = testclock.NewFakeClock(time.Now())
	cfg.Clock, cfg.Local.BaseDelay, cfg.Local.MaxDelay = clock, 1, 1
	p = w.make(cfg)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.provisioner.Watch(ctx) }()
	w.t.Cleanup(func() { cancel(); <-ended })
	w.wait("the caches are filled", func() bool {
		return p.provisioner.Synced() && w.watches.Load() >= 3 // of PVs, claims and classes
	})
	return p, clock, func() controller.Result { return p.provisioner.selectSelf(ctx, refTo("data", "u1")) }
}

// shown waits until the node's cache shows the claim as it is stored, and returns it.
func (p *process) shown() *v1.PersistentVolumeClaim {
	p.t.Helper()
	stored, cached := p.claim(), (*v1.PersistentVolumeClaim)(nil)
	p.wait("the claim is shown", func() bool {
		cached = p.provisioner.claims.Of("ns", "data", "u1")
		return cached != nil && cached.ResourceVersion == stored.ResourceVersion
	})
	return cached
}

// TestClaimMovesLessAndLessOften: the node sees that other nodes were selected in vain. Its own turn ends meanwhile.
func TestClaimMovesLessAndLessOften(t *testing.T) {
	w := newWorld(t)
	p, clock, turn := w.still("n1")
	w.makeClaim()
	p.shown()
	for _, pause := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000} {
		w.chooseSecond()
		selected := p.shown()
		if got := turn(); got != controller.Done() {
			t.Fatalf("while another node is selected: %+v", got)
		}
		w.update(func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, volume.AnnSelectedNode) })
		p.provisioner.claimCorrected(selected, p.shown())
		pause *= time.Millisecond
		if got, least := turn(), controller.After(pause); got.Backoff.First < least.Backoff.First {
			t.Errorf("after a withdrawal: %+v, want at least %+v", got, least)
		}
		if w.count("select n1") > 0 {
			t.Fatal("the node selects itself during the pause")
		}
	}
	clock.Step(10*time.Second + 1)
	if turn(); p.claim().Annotations[volume.AnnSelectedNode] != "n1" {
		t.Errorf("after the pause: records %q", w.recorded())
	}
}

// TestLateClaimsHaveNoRounds: a claim whose node the scheduler selects takes no memory.
func TestLateClaimsHaveNoRounds(t *testing.T) {
	w := newWorld(t)
	lateClass(w)
	p, _, turn := w.still("n1")
	w.makeClaim(selecting("n2"))
	selected := p.shown()
	w.update(func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, volume.AnnSelectedNode) })
	p.provisioner.claimCorrected(selected, p.shown())
	turn()
	if due := p.provisioner.selections.Due("u1", time.Time{}, 1, 1); due.After(time.Time{}.Add(1)) {
		t.Errorf("it counts until %v", due)
	}
}

// TestNodeIsSelectedDuringTheQuestion: the answer comes after another node was selected, so this one writes nothing.
func TestNodeIsSelectedDuringTheQuestion(t *testing.T) {
	w := newWorld(t)
	p, clock, turn := w.still("n1")
	w.room = func(string, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
		w.chooseSecond()
		p.shown()
		return &csi.GetCapacityResponse{AvailableCapacity: 10}, nil
	}
	w.makeClaim(asking)
	p.shown()
	turn()
	clock.Step(time.Second)
	if got := turn(); got != controller.Done() || w.count("get capacity n1") != 1 || w.count("select n1") > 0 {
		t.Errorf("%+v, records %q", got, w.recorded())
	}
}

// TestAllNodesAreFull: the claim moves between nodes whose drivers refuse it, and each node sees each round.
func TestAllNodesAreFull(t *testing.T) {
	w := newWorld(t)
	w.failing(false, class(errclass.Exhausted))
	changes, err := w.client.CoreV1().PersistentVolumeClaims("ns").Watch(t.Context(), metav1.ListOptions{})
	w.must(err)
	defer changes.Stop()
	one, two := w.make(onNode("n1")), w.make(onNode("n2"))
	one.start()
	two.start()
	rounds, before := 0, ""
	w.makeClaim()
	for ctx := w.ctx(); rounds < 3; {
		select {
		case e := <-changes.ResultChan():
			now := ""
			if c, ok := e.Object.(*v1.PersistentVolumeClaim); ok {
				now = c.Annotations[volume.AnnSelectedNode]
			}
			if before == "" && now != "" {
				rounds++
			}
			before = now
		case <-ctx.Done():
			t.Fatalf("%d rounds, records %q", rounds, w.recorded())
		}
	}
}
