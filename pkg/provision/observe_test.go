package provision

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// claimsOf is a ClaimCache of these claims that is not running.
type claimsOf []*v1.PersistentVolumeClaim

func (c claimsOf) Get(name string) (*v1.PersistentVolumeClaim, bool) {
	at := slices.IndexFunc(c, func(o *v1.PersistentVolumeClaim) bool { return o.Namespace+"/"+o.Name == name })
	if at < 0 {
		return nil, false
	}
	return c[at], true
}

func (c claimsOf) Each(visit func(*v1.PersistentVolumeClaim)) {
	for _, claim := range c {
		visit(claim)
	}
}

func (claimsOf) Sync() cache.DoneChecker { return nil }
func (claimsOf) Run(ctx context.Context) { <-ctx.Done() }

// pvsOf is a cache of these PVs, by name. It reports every handle except vol-alone as shared.
type pvsOf map[string]volume.PV

func (p pvsOf) Get(name string) (volume.PV, bool) { pv, found := p[name]; return pv, found }
func (p pvsOf) Shared(handle, except string) bool { return handle != "vol-alone" }
func (p pvsOf) Follow(changed func(volume.PV))    {}
func (p pvsOf) FollowLists(listed func())         {}
func (p pvsOf) Reached(version string) bool       { return false }
func (p pvsOf) Synced() bool                      { return true }

// observing returns a run that observes these claims and PVs, and the log of its process.
func observing(t *testing.T, cfg Config, claims claimsOf, pvs pvsOf) (*run, *processLog) {
	t.Helper()
	w := newWorld(t)
	p := w.make(cfg)
	w.must(p.log.TakeOver(t.Context()))
	p.provisioner.claims.ClaimCache, p.provisioner.volumes = claims, pvs
	return &run{Controller: p.provisioner, name: "pvc-u1", claimKey: refTo("data", "u1"), track: &track{},
		reserved: map[volume.SourceRef]func(){}}, p.log
}

func claimAt(version string, change ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "u1",
		ResourceVersion: version, Annotations: map[string]string{volume.AnnProvisioner: driverName}}}
	for _, c := range change {
		c(claim)
	}
	return claim
}

func TestLiveClaimCountsUntilTheCacheIsNewer(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(1e9, 0))
	now := clock.Now()
	live := provision.Claim{UID: "u1", ResourceVersion: "5", Read: now}
	with := func(change func(*provision.Claim)) provision.Claim { c := live; change(&c); return c }
	for name, c := range map[string]struct {
		live   provision.Claim
		cached claimsOf
		stays  bool
	}{
		"the cache is behind":    {live, claimsOf{claimAt("4")}, true},
		"the cache has the same": {live, claimsOf{claimAt("5")}, true},
		"the cache is newer":     {live, claimsOf{claimAt("6")}, false},
		"the cache has lost it":  {live, nil, false},
		"the read was a while ago": {
			with(func(c *provision.Claim) { c.Read = now.Add(-time.Hour) }), claimsOf{claimAt("4")}, false,
		},
		"the read was of another one": {with(func(c *provision.Claim) { c.UID = "u0" }), claimsOf{claimAt("4")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := observing(t, Config{Clock: clock}, c.cached, nil)
			r.facts.Claim = c.live
			r.observeClaim(inflight.Entry{}, inflight.Absent)
			if got := r.facts.Claim; (got == c.live) != c.stays || !c.stays && got.Gone != (c.cached == nil) || got.UID != "u1" {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestObserveClaimUID(t *testing.T) {
	entry := inflight.Entry{Volume: "pvc-u1", Claim: refTo("data", "u1")}
	for name, c := range map[string]struct {
		known volume.ClaimRef
		state inflight.State
		cfg   Config
		want  types.UID
		gone  bool
	}{
		"the UID of its entry":               {volume.ClaimRef{}, inflight.Open, Config{}, "u1", true},
		"not the UID of an entry in removal": {volume.ClaimRef{}, inflight.Removing, Config{}, "", false},
		"the known UID, despite the entry":   {refTo("data", "u2"), inflight.Open, Config{}, "u2", true},
		"no entry":                           {volume.ClaimRef{}, inflight.Absent, Config{}, "", false},
		"a claim that is not watched is not known to be gone": {volume.ClaimRef{}, inflight.Open,
			Config{FinishOnly: true}, "u1", false},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := observing(t, c.cfg, nil, nil)
			r.claimKey = c.known
			r.observeClaim(entry, c.state)
			if got := r.facts.Claim; got.UID != c.want || r.claimKey.UID != c.want || got.Gone != c.gone {
				t.Errorf("%+v of %+v", got, r.claimKey)
			}
		})
	}
}

func TestLivePVCounts(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(1e9, 0))
	now := clock.Now()
	apart := volume.ApartName("pvc-u1", "n1")
	shown := volume.PV{Driver: driverName, Handle: "cached"}
	for name, c := range map[string]struct {
		read  provision.PV
		pvs   pvsOf
		want  string // the handle
		known bool
	}{
		"nothing is shown":   {provision.PV{}, nil, "", false},
		"the cache shows it": {provision.PV{}, pvsOf{"pvc-u1": shown, apart: shown}, "cached", true},
		"it was read live": {
			provision.PV{Known: true, Handle: "live", Read: now}, pvsOf{"pvc-u1": shown, apart: shown}, "live", true,
		},
		"it was read live before": {
			provision.PV{Known: true, Handle: "live", Read: now.Add(-time.Hour)},
			pvsOf{"pvc-u1": shown, apart: shown}, "cached", true,
		},
		"a read found its volume": {
			provision.PV{Known: true, Handle: "live", Read: now.Add(-time.Hour)}, nil, "live", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := onNode("n1")
			cfg.Clock = clock
			r, _ := observing(t, cfg, nil, c.pvs)
			r.facts.PV, r.facts.Apart = c.read, c.read
			r.observePV()
			for what, got := range map[string]provision.PV{"its own": r.facts.PV, "apart": r.facts.Apart} {
				if got.Handle != c.want || got.Known != c.known {
					t.Errorf("%s: %+v", what, got)
				}
			}
		})
	}
}

func TestPVOfTheClaim(t *testing.T) {
	for name, c := range map[string]struct {
		pv       volume.PV
		ofDriver bool
		stored   bool
	}{
		"its own": {
			volume.PV{Driver: driverName, Claim: volume.ClaimRef{UID: "u1"}}, true, true,
		},
		"one whose driver cannot be told": {volume.PV{Claim: volume.ClaimRef{UID: "u1"}}, true, true},
		"another driver's":                {volume.PV{Driver: "x", Claim: volume.ClaimRef{UID: "u1"}}, false, false},
		"another claim's": {
			volume.PV{Driver: driverName, Claim: volume.ClaimRef{UID: "u2"}}, true, false,
		},
		"a terminating PV": {
			volume.PV{Driver: driverName, Claim: volume.ClaimRef{UID: "u1"}, Terminating: true}, true, false,
		},
		"a PV of another node": {
			volume.PV{Driver: driverName, Claim: volume.ClaimRef{UID: "u1"}, Reach: volume.ReachElsewhere}, true, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := observing(t, Config{}, nil, pvsOf{"pvc-u1": c.pv})
			if got := r.pvOf(c.pv, time.Time{}); got.OfDriver != c.ofDriver {
				t.Errorf("%+v", got)
			}
			if got := r.stored("u1"); got != c.stored {
				t.Errorf("stored %t", got)
			}
		})
	}
	r, _ := observing(t, Config{}, nil, nil)
	if r.claimKey.UID = ""; r.stored("") {
		t.Error("a PV that is not shown is stored")
	}
}

func TestFirst(t *testing.T) {
	took := time.Now()
	for name, c := range map[string]struct {
		edit func(*run, *processLog)
		want bool
	}{
		"it came later":          {func(*run, *processLog) {}, true},
		"the claim is not known": {func(r *run, _ *processLog) { r.claim = nil }, false},
		"the time is not known":  {func(_ *run, l *processLog) { l.takenOver = time.Time{} }, false},
		"it came before":         {func(_ *run, l *processLog) { l.takenOver = took.Add(time.Hour) }, false},
		"clocks may differ by that much": {
			func(_ *run, l *processLog) { l.takenOver = took.Add(time.Minute - clockSkew) }, false,
		},
		"an entry of it was closed since": {func(r *run, _ *processLog) {
			r.tracker.note(inflight.Entry{Volume: "pvc-u1", Claim: volume.ClaimRef{UID: "u1"}}, true)
			r.tracker.end("pvc-u1")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, log := observing(t, Config{}, nil, nil)
			r.claim = claimAt("1", func(c *v1.PersistentVolumeClaim) { c.CreationTimestamp.Time = took.Add(time.Minute) })
			log.takenOver = took
			c.edit(r, log)
			if got := r.first(); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestLogOf(t *testing.T) {
	entry := inflight.Entry{Claim: volume.ClaimRef{UID: "u1"}}
	for state, want := range map[inflight.State]provision.Log{
		inflight.Unknown: provision.LogUnknown, inflight.Absent: provision.LogAbsent,
		inflight.Removing: provision.LogAbsent, inflight.Open: provision.LogOpen,
		inflight.Adding: provision.LogChanging, inflight.Unreadable: provision.LogUnreadable,
	} {
		if got := logOf(entry, state, volume.ClaimRef{UID: "u1"}); got != want {
			t.Errorf("%v: %v, want %v", state, got, want)
		}
	}
	if got := logOf(entry, inflight.Open, volume.ClaimRef{UID: "u2"}); got != provision.LogOthers {
		t.Errorf("another claim's: %v", got)
	}
}

func TestObserveEntry(t *testing.T) {
	entry := inflight.Entry{Volume: "pvc-u1", Claim: refTo("data", "u1"),
		Discarding: true, Requests: []inflight.Request{*mustBuild(t)}}
	r, log := observing(t, Config{}, claimsOf{claimAt("1")}, pvsOf{})
	log.entries["pvc-u1"] = entry
	r.observe()
	if got := r.facts.Record; !got.Begun() || !got.Discarding || got.Claim != "u1" ||
		r.facts.Log != provision.LogOpen {
		t.Errorf("of an earlier process: %+v", got)
	}
	if r.facts.First || r.facts.Wanted || r.facts.Composed {
		t.Errorf("a claim from before that nobody asks for: %+v", r.facts)
	}
	log.takenOver, r.wanted, r.built = time.Unix(-1e9, 0), &storagev1.StorageClass{}, mustBuild(t)
	since := claimAt("1", func(c *v1.PersistentVolumeClaim) { c.CreationTimestamp.Time = time.Now() })
	r.claims.ClaimCache = claimsOf{since}
	if r.observe(); !r.facts.First || !r.facts.Wanted || !r.facts.Composed {
		t.Errorf("a claim since then that is asked for: %+v", r.facts)
	}
	r.track.record.Handle = "vol-shared"
	if r.observe(); r.facts.Record.Handle != "vol-shared" || !r.facts.Shared {
		t.Errorf("what was learned is forgotten: %+v, shared %t", r.facts.Record, r.facts.Shared)
	}
	r.track.record.Handle = "vol-alone"
	if r.observe(); r.facts.Shared {
		t.Error("a volume is shared that one PV names")
	}
	r.track.record.Handle = ""
	if r.observe(); r.facts.Shared {
		t.Error("a volume is shared that is not known")
	}
	log.removing["pvc-u1"] = true // as a read for another entry leaves it
	observeSettled(t, r)
	delete(log.removing, "pvc-u1")
	delete(log.entries, "pvc-u1")
	observeSettled(t, r)
	r.track.close()
	if r.observe(); r.facts.Record != (provision.Record{}) || r.facts.Log != provision.LogAbsent {
		t.Errorf("what is known of an entry outlives it: %+v", r.facts.Record)
	}
	r.facts.Log = provision.LogFull
	if r.observe(); r.facts.Log != provision.LogFull {
		t.Errorf("a log that was full a moment ago: %v", r.facts.Log)
	}
	entry.Discarding = false
	if got := inherited(entry, time.Now()); got.Discarding {
		t.Errorf("inherited: %+v", got)
	}
}

// observeSettled checks that the run still works on an entry that an operator has settled.
func observeSettled(t *testing.T, r *run) {
	t.Helper()
	for _, c := range []struct{ named, unfit, confirmed bool }{{true, false, true}, {true, true, false},
		{false, false, false}} {
		r.facts.Confirmed, r.track.record.Unfit, r.track.record.Volume = true, c.unfit, provision.VolumeUnknown
		if c.named {
			r.track.record.Volume = provision.VolumeMade
		}
		if r.observe(); r.facts.Log != provision.LogOpen || r.facts.Record.Count != 1 || r.facts.Confirmed != c.confirmed {
			t.Errorf("%+v: a settled entry is %v, confirmed %t", c, r.facts.Log, r.facts.Confirmed)
		}
	}
}

func mustBuild(t *testing.T) *inflight.Request {
	t.Helper()
	built, err := plainOrders{}.Build(t.Context(), request.Options{Name: "pvc-u1", Claim: claimAt("1"),
		Class: &storagev1.StorageClass{}})
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func TestMayAct(t *testing.T) {
	for name, c := range map[string]struct {
		lease Lease
		want  bool
	}{
		"who needs no lease": {
			nil, true}, "who holds it": {lease(1), true}, "not whose lease has ended": {lease(0), false},
	} {
		r, _ := observing(t, Config{Lease: c.lease}, nil, nil)
		if r.observe(); (r.mayAct() == nil) != c.want || r.facts.MayAct != c.want {
			t.Errorf("%s: %v, observed %t", name, r.mayAct(), r.facts.MayAct)
		}
	}
}

func TestResumedEntryIsConfirmed(t *testing.T) {
	for name, c := range map[string]struct {
		confirm error
		reason  Reason
		kept    bool
	}{
		"it is there":                        {nil, "", true},
		"an operator settled it":             {inflight.ErrSettled, provision.ReasonSettled, false},
		"and a read for another entry shows": {inflight.ErrAbsent, provision.ReasonSettled, false},
		"whether it is there is unknown":     {inflight.ErrUnreadable, provision.ReasonLogUnreadable, true},
	} {
		t.Run(name, func(t *testing.T) {
			said := &told{}
			r, log := observing(t, Config{Events: said}, claimsOf{claimAt("1")}, pvsOf{})
			log.entries["pvc-u1"] = inflight.Entry{Volume: "pvc-u1", Requests: []inflight.Request{*mustBuild(t)},
				Claim: refTo("data", "u1")}
			log.unconfirmed = c.confirm
			d := r.decide() // an earlier process has begun it
			if d.Action != provision.ConfirmEntry {
				t.Fatalf("%v comes before a read of the log", d.Action)
			}
			err := r.act(t.Context(), d)
			if err == nil != (c.reason == "") || err != nil && reasonOf(err) != c.reason || r.facts.Confirmed != (err == nil) {
				t.Errorf("%v, want %s; confirmed %t", err, c.reason, r.facts.Confirmed)
			}
			if kept := r.facts.Record.Count > 0; kept != c.kept || kept != (r.track.entry.Volume != "") {
				t.Errorf("the entry is known: %t", kept)
			}
			if len(said.events) > 0 {
				t.Errorf("Events about a volume that no driver has named: %q", said.events)
			}
		})
	}
}

func TestExistingPVHasToNameTheVolume(t *testing.T) {
	for handle, names := range map[string]bool{"vol-1": true, "vol-0": false} {
		r, log := observing(t, Config{}, nil, pvsOf{})
		request := mustBuild(t)
		request.PV.Spec.CSI.VolumeHandle = handle
		_, err := log.client.CoreV1().PersistentVolumes().Create(t.Context(), request.PV, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r.track.pv, r.facts.Record.Handle = request.PV, "vol-1"
		must.OK(t, r.storePV(t.Context(), provision.StorePV))
		if got := r.facts.PV.Names("vol-1"); got != names {
			t.Errorf("one of %s: it names the volume: %t", handle, got)
		}
	}
}

func TestFailedDeletionIsNotDone(t *testing.T) {
	r, log := observing(t, Config{}, claimsOf{claimAt("1")}, pvsOf{})
	log.fail["delete volume"] = class(errclass.Refused)
	r.facts.Record = provision.Opened("u1", provision.Request{})
	r.facts.Record.Volume, r.facts.Record.Handle = provision.VolumeMade, "vol-1"
	r.track.entry.Requests = []inflight.Request{*mustBuild(t)}
	if err := r.deleteVolume(t.Context(), provision.ReasonDiscard); err == nil ||
		reasonOf(err) != provision.ReasonOutcomeUnknown || r.facts.Record.Volume != provision.VolumeMade {
		t.Errorf("%v, and the volume is %v", err, r.facts.Record.Volume)
	}
}

func TestSettledRequestIsReplaced(t *testing.T) {
	for settled, want := range map[bool]int{true: 1, false: provision.MaxRequests} {
		r, log := observing(t, Config{}, nil, pvsOf{})
		r.facts.Log, r.facts.Record = provision.LogOpen, provision.Opened("u1", provision.Request{Node: "n1"})
		r.facts.Record.Requests[0].Sent, r.facts.Record.Requests[0].Settled = true, settled
		r.track.entry = inflight.Entry{Volume: "pvc-u1", Requests: []inflight.Request{*mustBuild(t)}}
		r.built = mustBuild(t)
		must.OK(t, r.openEntry(t.Context()))
		if got := len(log.entries["pvc-u1"].Requests); got != want || len(r.track.entry.Requests) != want {
			t.Errorf("settled %t: %d requests, want %d", settled, got, want)
		}
	}
}

// TestEntryThatMayBeStoredIsTracked: its end has to wake its source. A second request leaves the entry of the
// first one in the log.
func TestEntryThatMayBeStoredIsTracked(t *testing.T) {
	unconfirmed := errors.Join(errLost, inflight.ErrUnconfirmed)
	for name, c := range map[string]struct {
		// open means that a request is added, and earlier that the tracker has an entry of the name.
		open, earlier bool
		put           error
		// stored means that the log has an entry, and woken that the source may be free.
		stored, woken bool
	}{
		"a new entry":                             {false, false, nil, true, false},
		"a new entry replaces one in removal":     {false, true, nil, true, true},
		"a new entry that may be stored":          {false, false, unconfirmed, false, true},
		"a new entry that is not stored":          {false, false, inflight.ErrLeaseEnded, false, false},
		"a second request":                        {true, true, nil, true, false},
		"a second request that may be stored":     {true, true, unconfirmed, true, false},
		"a second request that is not stored":     {true, true, inflight.ErrLeaseEnded, true, false},
		"a second request that the log cannot do": {true, true, inflight.ErrUnreadable, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, log := observing(t, Config{}, claimsOf{claimAt("1")}, pvsOf{})
			woken := wokenSources(t, r)
			r.built, log.refused, r.facts.Log = mustBuild(t), c.put, provision.LogAbsent
			r.built.Source = &volume.SourceRef{Kind: volume.SourceClaim, Namespace: "ns", Name: "source"}
			before := inflight.Entry{Volume: "pvc-u1", Claim: refTo("data", "u0"),
				Requests: []inflight.Request{*r.built}}
			if c.open {
				before.Claim.UID = "u1"
				r.facts.Log, r.facts.Record = provision.LogOpen, provision.Opened("u1", provision.Request{})
				r.facts.Record.Sending()
				r.track.entry, log.entries["pvc-u1"] = before, before
			}
			if c.earlier {
				r.tracker.note(before, true)
			}
			if err := r.openEntry(t.Context()); !errors.Is(err, c.put) {
				t.Errorf("got %v, want %v", err, c.put)
			}
			log.removals.Wait()
			_, stored := log.entries["pvc-u1"]
			if wakes := woken() > 0; stored != c.stored || wakes != c.woken {
				t.Errorf("stored %t, source woken %t", stored, wakes)
			}
		})
	}
}

// wokenSources replaces the queue of sources of a run that does not work, and returns a function that counts its keys.
func wokenSources(t *testing.T, r *run) (count func() int) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(end)
	n := 0
	queue := controller.NewQueue(nil, controller.Config{Name: "sources", Workers: 1},
		func(_ context.Context, of volume.SourceRef) controller.Result {
			if of == (volume.SourceRef{}) {
				end()
			} else {
				n++
			}
			return controller.Done()
		})
	r.sources = queue
	return func() int {
		queue.Add(volume.SourceRef{}) // the last one
		queue.Run(ctx)
		return n
	}
}
