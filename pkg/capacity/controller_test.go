package capacity

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

const bothMade = "ask zone=a, create zone=a 10, ask zone=b, create zone=b 20"

func TestOneObjectPerSegment(t *testing.T) {
	w := newWorld(t)
	w.want(w.settle(), bothMade)
	w.want(w.settle(), "")
	w.nodes.set("a", "c")
	w.left["zone=c"] = 30
	w.want(w.settle(), "delete zone=b, ask zone=c, create zone=c 30")
	delete(*w.classes, "late")
	w.want(w.settle(), "delete zone=a, delete zone=c")
	w.want(w.settle(), "")
	if n := len(w.c.tracker.records) + len(w.c.tracker.written) + len(w.c.tracker.deleted); n > 0 {
		t.Errorf("%d things are remembered of what is gone", n)
	}
}

func TestNoWriteWithoutChange(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.clock.Step(time.Minute)
	w.want(w.settle(), "ask zone=a, ask zone=b")
	w.start() // another process finds everything up to date
	w.want(w.settle(), "ask zone=a, ask zone=b")
	w.left["zone=b"] = 19
	w.clock.Step(time.Minute)
	w.want(w.settle(), "ask zone=a, ask zone=b, update zone=b 19")
}

func TestDecisionBeforeCacheShowsWrite(t *testing.T) {
	w := newWorld(t)
	w.look()
	begin := len(w.diary)
	w.look()
	w.want(w.since(begin), "")
	w.left["zone=a"] = 9
	w.c.Changed("late", []map[string]string{{"zone": "a"}})
	w.look()
	w.want(w.since(begin), "ask zone=a, update zone=a 9")
	w.nodes.set("b")
	w.look()
	w.look()
	w.want(w.since(begin), "ask zone=a, update zone=a 9, delete zone=a")
	w.want(w.settle(), "")
}

func TestLostAnswerLeavesOneObject(t *testing.T) {
	w := newWorld(t)
	w.nodes.set("a")
	w.lost = true
	w.want(w.settle(), "ask zone=a, create zone=a 10")
	w.want(w.settle(), "")
	w.lost = true
	w.objects.shown = map[string]Object{} // and once more, behind the cache
	w.start()
	w.look()
	w.look()
	w.catchUp()
	w.settle()
	if len(w.stored) != 1 {
		t.Errorf("%d objects: %v", len(w.stored), w.diary)
	}
}

func TestChangedCallsGetCapacity(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.c.Changed("late", []map[string]string{{"zone": "b", "rack": "1"}, {"zone": "a"}})
	w.want(w.settle(), "ask zone=a")
	w.c.Changed("late", nil)
	w.want(w.settle(), "ask zone=a, ask zone=b")
	w.c.Changed("other", nil)
	w.want(w.settle(), "")
}

func TestChangeDuringGetCapacity(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.meanwhile = func() {
		w.left["zone=a"] = 7
		w.c.Changed("late", []map[string]string{{"zone": "a"}})
	}
	w.c.Changed("late", []map[string]string{{"zone": "a"}})
	w.want(w.settle(), "ask zone=a, ask zone=a, update zone=a 7")
}

func TestFailedGetCapacity(t *testing.T) {
	item := WorkItem{"late", "zone=a"}
	for name, c := range map[string]struct {
		err   error
		first time.Duration
	}{
		"an unknown failure": {errLost, time.Second},
		"a refusal":          {errclass.Mark(errclass.Refused, errLost), 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.settle()
			w.c.Changed("late", nil)
			w.err = c.err
			w.want(w.settle(), "ask zone=a, ask zone=b")
			if next := w.c.reconcile(t.Context(), item); next.Backoff.First != c.first || next.Backoff.Max != 5*time.Minute {
				t.Errorf("tried again after %v", next.Backoff)
			}
			if len(w.stored) != 2 {
				t.Errorf("%d objects are left", len(w.stored))
			}
			w.err = nil
			w.want(w.settle(), "ask zone=a, ask zone=b")
		})
	}
	t.Run("a negative size", func(t *testing.T) {
		w := newWorld(t)
		w.left["zone=a"] = -1
		w.want(w.settle(), "ask zone=a, ask zone=b, create zone=b 20")
	})
}

func TestUnknownFacts(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.start()
	w.nodes.unread = true
	delete(*w.classes, "late")
	w.want(w.settle(), "")
	w.start()
	w.nodes.unread = false
	w.c.Controller = controller.NewController("capacity", unsynced{})
	w.want(w.settle(), "")
	w.c.Controller = controller.NewController("capacity")
	w.want(w.settle(), "delete zone=a, delete zone=b")
}

// Objects are created and updated only with their owner, and deleted without it, too.
func TestUnknownOwner(t *testing.T) {
	w := newWorld(t)
	w.ownerErr = errLost
	w.want(w.settle(), "")
	w.ownerErr = nil
	w.want(w.settle(), bothMade)
	w.start()
	w.ownerErr = errLost
	w.nodes.set("b")
	w.left["zone=b"] = 9
	w.want(w.settle(), "delete zone=a")
	w.ownerErr = nil
	w.want(w.settle(), "ask zone=b, update zone=b 9")
}

// A process that starts without its owner deletes the objects of segments that are gone.
func TestDeletionsNeedNoOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.settle()
		w.c.Stop()
		w.start()
		w.ownerErr = errLost
		w.nodes.set("b")
		begin := len(w.diary)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.c.Run(ctx) }()
		synctest.Wait()
		w.want(w.since(begin), "delete zone=a")
		cancel()
		must.OK(t, <-ended)
	})
}

// An alert compares the wanted objects with the existing ones.
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.wantMetrics(map[string]float64{}) // no survey was made, as on a replica that does not lead
	w.ownerErr = errLost
	w.settle()
	w.wantMetrics(map[string]float64{"csistoragecapacities_desired_goal": 2, "csistoragecapacities_desired_current": 0,
		"csistoragecapacities_obsolete": 0})
	w.ownerErr = nil
	w.settle()
	w.wantMetrics(map[string]float64{"csistoragecapacities_desired_goal": 2, "csistoragecapacities_desired_current": 2,
		"csistoragecapacities_obsolete": 0})
	w.start()
	w.wantMetrics(map[string]float64{})
}

// unsynced is a watch cache that is not filled yet.
type unsynced struct{}

func (unsynced) Run(context.Context)       {}
func (u unsynced) Sync() cache.DoneChecker { return u }
func (unsynced) Name() string              { return "storageclasses" }
func (unsynced) Done() <-chan struct{}     { return nil }

func TestChangesByOtherClients(t *testing.T) {
	w := newWorld(t)
	w.settle()
	each := func(change func(*storagev1.CSIStorageCapacity)) {
		for _, o := range w.stored {
			if segmentOf(o.NodeTopology) == "zone=a" {
				change(o)
				w.version++
				o.ResourceVersion = strconv.Itoa(w.version)
			}
		}
	}
	each(func(o *storagev1.CSIStorageCapacity) { o.Capacity = left(99).Available.quantity() })
	w.catchUp()
	w.want(w.settle(), "update zone=a 10")
	each(func(o *storagev1.CSIStorageCapacity) { o.OwnerReferences = nil })
	w.catchUp()
	w.want(w.settle(), "update zone=a 10")
	each(func(o *storagev1.CSIStorageCapacity) { o.OwnerReferences[0].UID = "other" })
	w.catchUp()
	w.want(w.settle(), "update zone=a 10")
	each(func(o *storagev1.CSIStorageCapacity) {
		if len(o.OwnerReferences) != 2 {
			t.Errorf("owners %+v", o.OwnerReferences)
		}
		o.Labels[LabelManagedBy] = "somebody"
	})
	w.catchUp()
	w.want(w.settle(), "create zone=a 10")
	// The cache has not seen this change, so the deletion's precondition fails.
	each(func(o *storagev1.CSIStorageCapacity) {})
	w.nodes.set("b")
	w.want(w.settle(), "")
	w.want(w.settle(), "delete zone=a")
	if len(w.stored) != 2 {
		t.Errorf("%d objects, want that of zone b and somebody's", len(w.stored))
	}
}

func TestImmediateBinding(t *testing.T) {
	w := newWorld(t)
	w.settle()
	late := (*w.classes)["late"]
	late.immediate = true
	(*w.classes)["late"] = late
	w.want(w.settle(), "delete zone=a, delete zone=b")
	w.start(func(c *Config) { c.ForImmediate = true })
	w.want(w.settle(), bothMade)
	late.ours = false // made again for another driver
	(*w.classes)["late"] = late
	w.want(w.settle(), "delete zone=a, delete zone=b")
}

func TestDriverWithoutTopology(t *testing.T) {
	w := newWorld(t)
	w.left[""] = 40
	c := must.Get(newController(w, driverName, w, nil, w.c.cfg))(t)
	c.classes, c.objects = w.classes, w.objects
	c.start()
	w.c = c
	w.want(w.settle(), "ask , create  40")
	w.c.Changed("late", nil)
	w.want(w.settle(), "ask ")
}

func TestConfig(t *testing.T) {
	if err := (Config{Namespace: "ns"}).Validate(); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]Config{
		"no namespace":     {},
		"no pod":           {Namespace: "ns", Owner: &OwnedBy{}},
		"a level below":    {Namespace: "ns", Owner: &OwnedBy{Pod: "p", Level: -1}},
		"negative polling": {Namespace: "ns", PollInterval: -1},
		"negative workers": {Namespace: "ns", Workers: -1},
		"shrinking delays": {Namespace: "ns", RetryStart: time.Hour},
	} {
		if c.Validate() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
