package provision

import (
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// opened returns a run on an entry that its process has just opened, and the clock of the process.
func opened(t *testing.T, cfg Config) (*run, *processLog, *testclock.FakeClock) {
	t.Helper()
	clock := testclock.NewFakeClock(time.Now())
	cfg.Quiet, cfg.Clock = time.Hour, clock
	r, log := observing(t, cfg, claimsOf{claimAt("1")}, pvsOf{})
	entry := inflight.Entry{Volume: "pvc-u1", Claim: refTo("data", "u1"), Requests: []inflight.Request{*mustBuild(t)}}
	log.entries["pvc-u1"], r.track.entry = entry, entry
	r.track.record = provision.Opened("u1", provision.Request{})
	r.observe()
	return r, log, clock
}

// nextRun returns the next run on the entry.
func (w *run) nextRun() *run {
	next := &run{Controller: w.Controller, name: w.name, claimKey: w.claimKey, track: w.track, reserved: w.reserved}
	next.observe()
	return next
}

// does carries out a step, and reports whether it panicked.
func (w *run) does(t *testing.T, action provision.Action) (panicked bool) {
	return panics.Contain(t.Context(), func() {
		_, _ = w.do(t.Context(), provision.Decision{Action: action})
	}) != nil
}

// TestPanicInCreateVolumeIsNoAnswer: the driver may have sent the request, and its next refusal proves nothing until
// that request can no longer arrive.
func TestPanicInCreateVolumeIsNoAnswer(t *testing.T) {
	for what, fail := range map[string]func(*processLog, func() error){
		"the driver":         func(log *processLog, fail func() error) { log.fail["create volume"] = fail },
		"the RequestBuilder": func(log *processLog, fail func() error) { log.orders.spoil = fail },
	} {
		t.Run(what, func(t *testing.T) {
			r, log, clock := opened(t, Config{})
			fail(log, func() error { panic("a vendor's mistake") })
			r.requests = log.orders
			if !r.does(t, provision.CreateVolume) {
				t.Fatal("no panic")
			}
			log.fail["create volume"] = class(errclass.Unfit)
			for _, c := range []struct {
				pass   time.Duration
				closed int
			}{{0, 0}, {r.cfg.Quiet - 1, 0}, {1, 1}} {
				clock.Step(c.pass)
				r = r.nextRun()
				r.does(t, provision.CreateVolume)
				if log.removals.Wait(); log.count("close entry") != c.closed {
					t.Errorf("%v later: records %q", c.pass, log.recorded())
				}
			}
		})
	}
}

// TestPanicInDeleteVolumeIsNoAnswer: the request may arrive when another CreateVolume has made the volume again.
func TestPanicInDeleteVolumeIsNoAnswer(t *testing.T) {
	for _, fails := range []bool{false, true} {
		r, log, _ := opened(t, Config{})
		r.facts.Record.Volume, r.facts.Record.Handle, r.facts.Record.Unfit = provision.VolumeMade, "vol-1", true
		r.track.record = r.facts.Record
		if fails {
			log.fail["delete volume"] = func() error { panic("a vendor's mistake") }
			if !r.does(t, provision.DeleteVolume) {
				t.Fatal("no panic")
			}
			delete(log.fail, "delete volume")
			r = r.nextRun()
		}
		r.does(t, provision.DeleteVolume)
		if settled := r.track.record.Settled(); settled == fails {
			t.Errorf("after a panic %t: settled %t", fails, settled)
		}
	}
}

// TestPanicOfChangedHidesNoAnswer: a panic of the callback is logged, and the driver's answer counts.
func TestPanicOfChangedHidesNoAnswer(t *testing.T) {
	r, _, _ := opened(t, Config{Changed: func(string, []map[string]string) { panic("a mistake") }})
	if panicked := r.does(t, provision.CreateVolume); panicked || r.track.record.Volume != provision.VolumeMade ||
		!r.track.record.Quiet(r.cfg.Clock.Now(), r.cfg.Quiet) {
		t.Errorf("panicked %t, CreateVolume: %+v", panicked, r.track.record)
	}
	if panicked := r.does(t, provision.DeleteVolume); panicked || !r.track.record.Settled() {
		t.Errorf("panicked %t, DeleteVolume: %+v", panicked, r.track.record)
	}
}
