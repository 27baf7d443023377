package provision

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

var _ PVLister = reclaim.PVs{}

// TestPVsOfReclaimerWithoutLog: that reclaimer deletes a volume while a late CreateVolume can make it again.
func TestPVsOfReclaimerWithoutLog(t *testing.T) {
	client := fake.NewClientset()
	log := must.Get(inflight.New(inflight.Config{Leases: client.CoordinationV1(), Namespace: "ns", Name: "log",
		Driver: driverName}))(t)
	create := func(of reclaim.InFlight) error {
		reclaimer := must.Get(reclaim.NewForClient(client, driverName, &process{}, reclaim.Config{InFlight: of}))(t)
		_, err := NewForClient(client, driverName, &process{}, plainOrders{}, Config{Log: log, PVs: reclaimer.PVs()})
		return err
	}
	if err := create(nil); err == nil || !strings.Contains(err.Error(), "reclaim.Config.InFlight") {
		t.Errorf("without the log: %v", err)
	}
	if err := create(log); err != nil {
		t.Errorf("with the log: %v", err)
	}
}

func TestOwnVolumes(t *testing.T) {
	w := newWorld(t)
	p := w.start(Config{}).provisioner
	pvs, volumes := w.client.CoreV1().PersistentVolumes(), p.volumes
	var told []string
	news := newsOf(volumes)
	next := func() { told = append(told, <-news) }
	w.makePV("foreign", "another.example.com", "vol-1", refTo("z", "u9"))
	w.makePV("a", driverName, "vol-1", refTo("x", "u1"))
	next()
	if pv, found := volumes.Get("a"); !found || pv.Driver != driverName || pv.Handle != "vol-1" ||
		pv.Claim.UID != "u1" || pv.Terminating {
		t.Errorf("a is %+v, %v", pv, found)
	}
	if _, found := volumes.Get("foreign"); found {
		t.Error("another driver's PV is kept")
	}
	if volumes.Shared("vol-1", "a") {
		t.Error("its own PV, or another driver's, is taken for a second one")
	}
	w.makePV("b", driverName, "vol-1", refTo("y", "u2"))
	next()
	if !volumes.Shared("vol-1", "a") || !volumes.Shared("vol-1", "b") || !volumes.Shared("vol-1", "c") ||
		!volumes.Shared("VOL-1", "a") || volumes.Shared("vol-2", "a") {
		t.Error("two PVs of one volume do not know of each other")
	}
	w.must(pvs.Delete(t.Context(), "b", metav1.DeleteOptions{}))
	next()
	if volumes.Shared("vol-1", "a") || !volumes.Shared("vol-1", "c") {
		t.Error("a PV that is gone shares a volume")
	}
	if want := []string{"a of u1 true", "b of u2 true", "b of u2 false"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestOwnVolumesOfANode(t *testing.T) {
	w := newWorld(t)
	p := w.start(onNode("n1")).provisioner
	news := newsOf(p.volumes)
	for _, node := range []string{"n2", "n1"} {
		w.makePV("on-"+node, driverName, "vol-1", volume.ClaimRef{},
			func(pv *v1.PersistentVolume) { pv.Spec.NodeAffinity = affinityTo(node) })
	}
	if told := <-news; told != "on-n1 of  true" {
		t.Errorf("told of %q", told)
	}
	if _, found := p.volumes.Get("on-n2"); found || p.volumes.Shared("vol-1", "on-n1") {
		t.Error("another node's PV is kept")
	}
}

// newsOf returns the PVs that followers are called with, and whether the cache shows them at that moment.
func newsOf(volumes PVLister) <-chan string {
	news := make(chan string, 10)
	volumes.Follow(func(pv volume.PV) {
		shown := "false"
		if _, found := volumes.Get(pv.Name); found {
			shown = "true"
		}
		news <- pv.Name + " of " + string(pv.Claim.UID) + " " + shown
	})
	return news
}

// restart ends a process, and starts the next one, which forms names with another prefix.
func (p *process) restart() *process {
	p.t.Helper()
	p.stop()
	p.orders.prefix = "disk"
	return p.world.start(Config{Quiet: quiet})
}

// keeps fails the test unless the claim, whose volume is stored, has the name that an earlier process has formed.
func (p *process) keeps(what string) {
	p.t.Helper()
	c := p.provisioner
	if name := c.nameOf("u1"); name != "pvc-u1" || !c.stored("u1") {
		p.t.Errorf("%s: the claim is to get a second volume, %q", what, name)
	}
}

// TestClaimKeepsTheNameOfItsVolume: with another name, an unbound claim would get a second volume.
func TestClaimKeepsTheNameOfItsVolume(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.madeUnseen().restart()
	w.failing(false, nil)
	w.wait("it is provisioned", func() bool { return w.provisioned() && !p.provisioner.tracker.knows("pvc-u1") })
	p.keeps("its entry was closed by this process")
	p = p.restart()
	p.keeps("its entry was closed by an earlier process")
	news := newsOf(p.provisioner.volumes)
	w.deletePV()
	w.wait("its PV is gone, and it gets another one", func() bool { return w.count("create PV") == 2 && w.provisioned() })
	w.wait("the watch shows the PV, which the end of the claim may overtake", func() bool {
		select {
		case seen := <-news:
			return seen == "pvc-u1 of u1 true"
		default:
			return false
		}
	})
	w.makeClaim(named("logs", "u2"))
	if slices.Contains(w.onDisk(), "vol-disk-u1") {
		t.Errorf("volumes: %q", w.onDisk())
	}
	w.wait("a new claim gets a new name", func() bool { return slices.Contains(w.onDisk(), "vol-disk-u2") })
	w.update(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-u1" })
	w.wait("a bound claim takes no memory", func() bool { return p.provisioner.nameOf("u1") == "disk-u1" })
}

// TestRefusedClaimKeepsItsName: the log takes no request of another name for the volume.
func TestRefusedClaimKeepsItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.failing(false, class(errclass.Uncertain))
	p := w.start(Config{Quiet: quiet})
	w.makeClaim()
	w.wait("the outcome is in doubt", func() bool { return w.count("create volume") > 0 })
	w.failing(false, class(errclass.Unfit))
	p.restart()
	w.wait("it is refused", func() bool { return w.count("close entry") > 0 })
	w.failing(false, nil)
	w.wait("it is provisioned", w.provisioned)
}

func TestNameOf(t *testing.T) {
	t.Parallel()
	const anew = "disk-u1"
	of := func(name, driver string, claim types.UID) volume.PV {
		return volume.PV{Name: name, Driver: driver, Claim: volume.ClaimRef{UID: claim}}
	}
	for name, c := range map[string]struct {
		// shown are the PVs that the cache shows, and changed is the one that appeared, disappeared or changed.
		shown   pvsOf
		changed volume.PV
		want    string
	}{
		"a PV with an earlier name": {pvsOf{"pvc-u1": of("pvc-u1", driverName, "u1")},
			of("pvc-u1", driverName, "u1"), "pvc-u1"},
		"a PV with the name of now": {pvsOf{"disk-u1": of("disk-u1", driverName, "u1")},
			of("disk-u1", driverName, "u1"), anew},
		"a PV without a known driver": {pvsOf{"pvc-u1": of("pvc-u1", "", "u1")}, of("pvc-u1", "", "u1"), "pvc-u1"},
		"another driver's PV": {pvsOf{"pvc-u1": of("pvc-u1", "another.example.com", "u1")},
			of("pvc-u1", "another.example.com", "u1"), anew},
		"an administrator's PV": {pvsOf{"data": of("data", driverName, "u1")}, of("data", driverName, "u1"), anew},
		"the name of a PV was another claim's": {pvsOf{"pvc-u1": of("pvc-u1", driverName, "u9")},
			of("pvc-u1", driverName, "u1"), anew},
		"a PV that is gone": {pvsOf{}, of("pvc-u1", driverName, "u1"), anew},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := observing(t, Config{}, claimsOf{claimAt("1")}, c.shown)
			r.requests = plainOrders{prefix: "disk"}
			r.nameShown(c.changed)
			if got, kept := r.nameOf("u1"), len(r.tracker.shown) > 0; got != c.want || kept != (got != anew) {
				t.Errorf("%q, want %q; memory is used: %t", got, c.want, kept)
			}
		})
	}
}

// TestNameOfAPVThatIsGone: a try of the name may have begun while its claim is unbound. Then a second name would get a
// second volume.
func TestNameOfAPVThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.orders.prefix = "disk"
	w.deleteClass() // so that no claim is provisioned
	w.makeClaim()
	p := w.start(Config{}).provisioner
	w.wait("the claim is in the cache", func() bool { return p.working() && p.claims.WholeByUID("u1") != nil })
	for _, claim := range []types.UID{"u1", "u2"} {
		p.tracker.show(claim, "pvc-"+string(claim))
		p.nameShown(volume.PV{Name: "pvc-" + string(claim), Driver: driverName, Claim: volume.ClaimRef{UID: claim}})
	}
	if first, second := p.nameOf("u1"), p.nameOf("u2"); first != "pvc-u1" || second != "disk-u2" {
		t.Errorf("the name of an unbound claim is %q, and of a bound one %q", first, second)
	}
	p.tracker.want("disk-u1", refTo("data", "u1"))
	if p.try(t.Context(), "disk-u1"); p.tracker.knows("disk-u1") {
		t.Error("the claim is tried under another name")
	}
	if p.tracker.hide("u1", "another-u1"); p.nameOf("u1") != "pvc-u1" {
		t.Error("the end of another PV ends the name")
	}
	p.tracker.want(p.nameOf("u1"), refTo("data", "u1"))
	w.deleteClaim()
	w.wait("the name is forgotten with the claim", func() bool {
		return p.nameOf("u1") == "disk-u1" && !p.tracker.knows("pvc-u1")
	})
}

// TestNameThatIsShownDuringATry: the watch shows the PV of an earlier name after the try of another name has begun.
func TestNameThatIsShownDuringATry(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string]int{"before its entry is opened": 0, "before the driver is called": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.orders.prefix = "disk"
			shown := &atomic.Pointer[Controller]{}
			show := func() { shown.Load().tracker.show("u1", "pvc-u1") }
			w.orders.refuse = func(o request.Options) error {
				if o.Name == "pvc-u1" {
					return errors.New("the next try, which creates the volume of the earlier name")
				}
				if o.Name != "" && entries == 0 {
					show()
				}
				return nil
			}
			w.each = func(_ int, what string) death {
				if what == "open entry" {
					show()
				}
				return goesOn
			}
			p := w.make(Config{})
			shown.Store(p.provisioner)
			c := p.start().provisioner
			w.makeClaim()
			w.wait("the try ends", func() bool {
				return c.nameOf("u1") == "pvc-u1" && !c.tracker.knows("disk-u1") && w.settled()
			})
			if w.count("create volume") > 0 || w.count("open entry") != entries || c.tracker.hadEntry("u1") {
				t.Errorf("the claim gets a second volume: %q", w.recorded())
			}
		})
	}
}

// TestNameThatIsShownBetweenTries: until the driver was called for a name, there is no volume of it.
func TestNameThatIsShownBetweenTries(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]bool{"before the driver is called": false, "after the driver was called": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.orders.prefix = "disk"
			w.orders.refuse = func(o request.Options) error {
				if o.Name == "pvc-u1" {
					return errors.New("the next try, which creates the volume of the earlier name")
				}
				return nil
			}
			if w.failing(true, class(errclass.Uncertain)); !sent {
				w.refused = inflight.ErrUnconfirmed
			}
			c := w.start(Config{}).provisioner
			w.makeClaim()
			w.wait("its entry is noted", func() bool {
				return c.tracker.hadEntry("u1") && sent == (w.count("create volume") > 0)
			})
			c.tracker.show("u1", "pvc-u1")
			if got := c.nameOf("u1"); (got == "disk-u1") != sent {
				t.Errorf("the name is %q", got)
			}
			w.failing(false, nil)
			w.refuse(nil)
			w.wait("the name ends, or has its PV", func() bool {
				return w.settled() && !c.tracker.knows("disk-u1")
			})
			if made := w.count("create volume") > 0; made != sent || (w.pvNamed("disk-u1") != nil) != sent {
				t.Errorf("PV %v: %q", w.pvNamed("disk-u1"), w.recorded())
			}
		})
	}
}

func TestNameGivesWayUntilItIsSent(t *testing.T) {
	t.Parallel()
	entry := inflight.Entry{Volume: "disk-u1", Claim: refTo("data", "u1")}
	for name, c := range map[string]struct {
		notes []bool
		shown string
		want  string
	}{
		"an entry":                         {[]bool{false}, "pvc-u1", "pvc-u1"},
		"an entry with this name":          {[]bool{false}, "disk-u1", "disk-u1"},
		"an entry that was sent":           {[]bool{false, true}, "pvc-u1", "disk-u1"},
		"a second request after the first": {[]bool{false, true, false}, "pvc-u1", "disk-u1"},
	} {
		r := newTracker()
		for _, sent := range c.notes {
			r.note(entry, sent)
		}
		r.show("u1", c.shown)
		if got, _ := r.nameOf("u1"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestFinishOnlyKeepsNoNames: with another prefix than the provisioner's, every PV would take memory.
func TestFinishOnlyKeepsNoNames(t *testing.T) {
	t.Parallel()
	pv := volume.PV{Name: "disk-u1", Driver: driverName, Claim: volume.ClaimRef{UID: "u1"}}
	r, _ := observing(t, Config{FinishOnly: true}, nil, pvsOf{pv.Name: pv})
	if r.nameShown(pv); len(r.tracker.shown) > 0 {
		t.Errorf("names are kept: %v", r.tracker.shown)
	}
}

// TestNameIsKept: until the claim needs no volume and the log cannot have the entry.
func TestNameIsKept(t *testing.T) {
	t.Parallel()
	entry := inflight.Entry{Volume: "pvc-u", Claim: refTo("data", "u1")}
	of := entry.Claim
	for name, c := range map[string]struct {
		happens func(*tracker)
		kept    bool
	}{
		"the entry is open":                        {func(*tracker) {}, true},
		"the claim has its volume":                 {func(r *tracker) { r.leave("pvc-u", of, 0) }, true},
		"the entry has ended":                      {func(r *tracker) { r.leave("pvc-u", of, 0); r.end("pvc-u") }, true},
		"the claim is over, and the entry is open": {func(r *tracker) { r.over("u1") }, true},
		"the claim is over after its entry":        {func(r *tracker) { r.end("pvc-u"); r.over("u1") }, false},
		"the name is another claim's now": {func(r *tracker) {
			other := entry
			other.Claim.UID = "u2"
			r.note(other, true)
			r.over("u1")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTracker()
			r.note(entry, true)
			c.happens(r)
			if _, kept := r.nameOf("u1"); kept != c.kept || r.hadEntry("u1") != c.kept {
				t.Errorf("kept %t, want %t", kept, c.kept)
			}
		})
	}
}
