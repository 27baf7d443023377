package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
)

func (w *world) provisioned() bool { return w.pv() != nil && w.settled() }

func (w *world) gone() bool { return w.claim() == nil }

func TestClaimGetsItsVolume(t *testing.T) {
	w := newWorld(t)
	p := w.start(Config{})
	w.makeClaim()
	w.wait("it is provisioned", w.provisioned)
	w.wait("nothing is remembered", func() bool {
		p.provisioner.tracker.mu.Lock()
		defer p.provisioner.tracker.mu.Unlock()
		return len(p.provisioner.tracker.of)+len(p.provisioner.tracker.open) == 0
	})
	p.stop()
	if want := []string{"open entry", "create volume", "create PV", "close entry"}; !slices.Equal(w.recorded(), want) {
		t.Errorf("records: %q\nwant:  %q", w.recorded(), want)
	}
}

func TestConcurrentClaimsNeedOneCallEach(t *testing.T) {
	w := newWorld(t)
	p := w.start(Config{})
	const many = 50
	for i := range many {
		w.makeClaim(func(c *v1.PersistentVolumeClaim) {
			c.Name = fmt.Sprintf("data-%d", i)
			c.UID = types.UID("uid-" + c.Name)
		})
	}
	w.wait("all are provisioned", func() bool { return w.count("close entry") >= many })
	p.stop()
	for _, what := range []string{"open entry", "create volume", "create PV", "close entry"} {
		if n := w.count(what); n != many {
			t.Errorf("%q %d times, want %d", what, n, many)
		}
	}
}

func TestAnotherDriversClaimIsNotTouched(t *testing.T) {
	w := newWorld(t)
	w.start(Config{})
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[volume.AnnProvisioner] = "another.example.com" })
	w.start(Config{}) // its filled caches show that the claim was seen
	if len(w.recorded()) != 0 {
		t.Errorf("records: %q", w.recorded())
	}
}

// The PV controller asks for a volume by its annotation, after it has checked the claim.
func TestClaimWithoutProvisionerAnnotationWaits(t *testing.T) {
	w := newWorld(t)
	w.start(Config{})
	w.makeClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations = nil })
	w.makeClaim(named("next", "u2"))
	w.wait("a claim with it is provisioned", func() bool { return w.count("close entry") == 1 })
	if w.pv() != nil {
		t.Error("the claim without it is provisioned too")
	}
	w.update(func(c *v1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.AnnProvisioner, driverName)
	})
	w.wait("it is provisioned", w.provisioned)
}

// A program may create a Controller and not run it.
func TestStopBeforeRunLeavesNoGoroutine(t *testing.T) {
	w := newWorld(t)
	others, known := goleak.IgnoreCurrent(), len(scheme.Scheme.AllKnownTypes())
	w.make(Config{}).provisioner.Stop()
	goroutines.ExpectEnded(t, others)
	if now := len(scheme.Scheme.AllKnownTypes()); now != known {
		t.Errorf("client-go's scheme has %d types, want %d", now, known)
	}
}

// A second Run does not take the in-flight log over from the first.
func TestSecondRunFails(t *testing.T) {
	w := newWorld(t)
	p := w.start(Config{})
	if err := p.provisioner.Run(t.Context()); err == nil || w.epoch[p.node] != 1 {
		t.Errorf("%v; the log was taken over %d times", err, w.epoch[p.node])
	}
	w.makeClaim()
	w.wait("the first works on", w.provisioned)
}

// A program that embeds both controllers learns from the error that claims wait.
func TestErrorOfLogEndsRun(t *testing.T) {
	p := newWorld(t).make(Config{})
	p.log.broken = make(chan error, 1)
	p.start()
	broken := errors.New("the storage of the log is gone")
	p.log.broken <- broken
	if <-p.ended; !errors.Is(p.result, broken) {
		t.Errorf("Run = %v, want %v", p.result, broken)
	}
}

// Without Config.Events, the Controller records Events itself, as long as it runs.
func TestOwnEventsEndWithRun(t *testing.T) {
	w := newWorld(t)
	others := goleak.IgnoreCurrent()
	p := w.start(Config{})
	w.makeClaim()
	w.wait("an Event is recorded", func() bool {
		all, err := w.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(all.Items, func(e v1.Event) bool { return e.Reason == eventSucceeded })
	})
	p.stop()
	goroutines.ExpectEnded(t, others)
}

// TestRefusalSettles: the first answer to a request proves that no volume was created, with any refusal.
func TestRefusalSettles(t *testing.T) {
	for _, c := range []errclass.Class{errclass.Refused, errclass.Unfit, errclass.Exhausted, errclass.NotFound} {
		t.Run(c.String(), func(t *testing.T) {
			w := newWorld(t)
			w.failing(false, class(c))
			w.start(Config{})
			w.makeClaim()
			w.wait("it was refused and is settled, twice", func() bool { return w.count("close entry") >= 2 })
			w.failing(false, nil)
			w.wait("it is provisioned", w.provisioned)
		})
	}
}

// TestUnsentCallIsNoFirstCall: the driver gets no call while it is unknown, so its first refusal settles all the same.
func TestUnsentCallIsNoFirstCall(t *testing.T) {
	w := newWorld(t)
	w.failing(false, class(errclass.Refused))
	w.set(func() { w.unknown = status.Error(codes.Unavailable, "the connection was lost") })
	w.start(Config{})
	w.makeClaim()
	w.wait("it is tried twice", func() (twice bool) { w.set(func() { twice = w.asked > 1 }); return twice })
	if n := w.count("create volume"); n > 0 {
		t.Errorf("%d calls are sent", n)
	}
	w.set(func() { w.unknown = nil })
	w.wait("the refusal settles", func() bool { return w.count("close entry") > 0 })
}

// TestClaimCanAlwaysBeDeleted: a claim has no finalizer of ours that would delay its deletion.
func TestClaimCanAlwaysBeDeleted(t *testing.T) {
	for _, c := range []errclass.Class{errclass.Refused, errclass.Unfit, errclass.Exhausted, errclass.Uncertain,
		errclass.InProgress} {
		t.Run(c.String(), func(t *testing.T) {
			w := newWorld(t)
			w.failing(false, class(c))
			w.start(Config{})
			w.makeClaim()
			w.wait("the driver was asked", func() bool { return w.count("create volume") > 0 })
			w.deleteClaim()
			if !w.gone() {
				t.Errorf("it is held: %+v", w.claim())
			}
		})
	}
}

// TestVolumeCreatedInTheBackgroundIsFinished: a begun volume gets its PersistentVolume even if its claim does not need
// it any more. Its reclaim policy decides about its deletion.
func TestVolumeCreatedInTheBackgroundIsFinished(t *testing.T) {
	for name, change := range map[string]func(*world){
		"the claim is gone": (*world).deleteClaim,
		"the class is gone": (*world).deleteClass,
		"the claim is bound to another volume": func(w *world) {
			w.update(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "another" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.madeUnseen()
			change(w)
			w.calls(2)
			w.failing(false, nil)
			w.wait("it has its PV", w.provisioned)
			if w.count("delete volume") > 0 || len(w.onDisk()) != 1 || !w.knownVolumes() {
				t.Errorf("volumes %v, records %q", w.onDisk(), w.recorded())
			}
		})
	}
}

func TestRefusalAfterUnknownOutcomeDoesNotSettle(t *testing.T) {
	w, events := newWorld(t), &told{}
	w.madeUnseenWith(Config{Quiet: quiet, Events: events})
	w.failing(false, class(errclass.Refused))
	w.deleteClaim()
	w.staysInDoubt(events, provision.ReasonOutcomeUnknown)
}

// TestJudgementSettlesAfterTheQuietPeriod: InvalidArgument and OutOfRange judge the request itself, but not a call that
// may still arrive.
func TestJudgementSettlesAfterTheQuietPeriod(t *testing.T) {
	w := newWorld(t)
	w.failing(false, class(errclass.Uncertain))
	w.start(Config{Quiet: quiet})
	w.makeClaim()
	w.wait("the driver was asked", func() bool { return w.count("create volume") > 0 })
	w.deleteClaim()
	w.failing(false, class(errclass.Unfit))
	w.wait("the entry is closed", w.settled)
	w.mu.Lock()
	last := slices.Index(w.records, "create volume")
	w.mu.Unlock()
	if w.count("create volume") < 2 || last < 0 {
		t.Errorf("records: %q", w.recorded())
	}
}

// TestSameRequestIsRepeated: the StorageClass is recreated with other parameters while the outcome is in doubt.
func TestSameRequestIsRepeated(t *testing.T) {
	for name, restarts := range map[string]bool{"by the same process": false, "by the next": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.madeUnseen()
			if restarts {
				p.stop()
			}
			w.replaceClass(func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"pool": "other"} })
			w.deleteClaim()
			if restarts {
				w.start(Config{})
			}
			w.failing(false, nil)
			w.wait("it has its PV", w.provisioned)
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.requests) != 1 {
				t.Errorf("%d different requests were sent: %v", len(w.requests), w.requests)
			}
		})
	}
}

func TestNoCreateVolumeWithoutAnEntry(t *testing.T) {
	for reason, c := range map[Reason]struct {
		refused error
		// removes means that the entry may be stored and is removed.
		removes bool
	}{
		provision.ReasonLogFull:        {inflight.ErrFull, false},
		provision.ReasonLogShare:       {inflight.ErrShare, false},
		provision.ReasonTooLarge:       {inflight.ErrTooLarge, false},
		provision.ReasonLogUnreadable:  {inflight.ErrUnreadable, false},
		provision.ReasonAPIWriteFailed: {inflight.ErrUnconfirmed, true},
	} {
		t.Run(string(reason), func(t *testing.T) {
			w := newWorld(t)
			w.refused = c.refused
			events := &told{}
			w.start(Config{Events: events})
			w.makeClaim()
			w.wait("an Event reports it", func() bool { return len(events.with(string(reason)+" ")) > 0 })
			if c.removes {
				w.wait("the entry is removed", func() bool { return w.count("close entry") > 0 })
			} else if w.count("close entry") > 0 {
				t.Errorf("what is stored of another is removed: %q", w.recorded())
			}
			if w.count("create volume") > 0 {
				t.Errorf("the driver is asked without an entry: %q", w.recorded())
			}
			w.refuse(nil)
			w.wait("it is provisioned", w.provisioned)
		})
	}
}

// TestCallOutlastsRenewals: the driver works for longer than the rest of a lease that is renewed, within CallTimeout.
// The end of the lease ends the call, and all work.
func TestCallOutlastsRenewals(t *testing.T) {
	w := newWorld(t)
	var left renewed
	left.Store(int64(time.Millisecond))
	w.works = func(ctx context.Context) error {
		if until, limited := ctx.Deadline(); !limited || time.Until(until) < time.Minute {
			t.Errorf("the call ends at %v, and not an hour after its begin", until)
		}
		left.Store(0)
		<-ctx.Done()
		return ctx.Err()
	}
	p := w.start(Config{Lease: &left, CallTimeout: time.Hour})
	w.makeClaim()
	<-p.ended
	if !errors.Is(p.result, leadership.ErrExpired) {
		t.Errorf("Run = %v, want %v", p.result, leadership.ErrExpired)
	}
	if want := []string{"open entry"}; !slices.Equal(w.recorded(), want) {
		t.Errorf("records: %q\nwant:  %q", w.recorded(), want)
	}
}

// TestCallThatHangsEnds: a driver that ignores all but the end of its context is asked again.
func TestCallThatHangsEnds(t *testing.T) {
	w := newWorld(t)
	var calls atomic.Int32
	w.works = func(ctx context.Context) error {
		if calls.Add(1) > 1 {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	w.start(Config{CallTimeout: time.Millisecond})
	w.makeClaim()
	w.wait("the second call makes the volume", w.provisioned)
}

// renewed is a lease that is renewed all the time, with the nanoseconds that are left of it.
type renewed struct{ atomic.Int64 }

func (l *renewed) Left() time.Duration { return time.Duration(l.Load()) }

// lease is the time for which a process may act.
type lease time.Duration

func (l lease) Left() time.Duration { return time.Duration(l) }

// TestEntrySufficesWithoutClassAndClaim: class and claim are gone after a restart, but the entry has all data that is
// needed.
func TestEntrySufficesWithoutClassAndClaim(t *testing.T) {
	w := newWorld(t)
	w.madeUnseen().stop()
	w.deleteClass()
	w.deleteClaim()
	w.failing(false, nil)
	w.start(Config{FinishOnly: true})
	w.wait("it has its PV", w.provisioned)
	if pv := w.pv(); pv.Spec.ClaimRef.UID != "u1" || len(pv.Finalizers) == 0 {
		t.Errorf("the PV is %+v", pv)
	}
}

// TestInheritedEntryOutlivesItsQuietPeriod: a call of the earlier process may still arrive.
func TestInheritedEntryOutlivesItsQuietPeriod(t *testing.T) {
	w := newWorld(t)
	w.madeUnseen().stop()
	w.failing(false, nil)
	w.start(Config{Quiet: time.Hour})
	w.wait("it has its PV", func() bool { return w.pv() != nil })
	w.makeClaim(named("next", "u2"))
	w.wait("another claim is provisioned",
		func() bool { return w.count("close entry") > 0 && len(w.inFlight()) == 1 })
	if got := w.inFlight(); !slices.Equal(got, []string{"pvc-u1"}) {
		t.Errorf("in flight: %v", got)
	}
}

// TestClassAppears covers a class that appears without a further change of the claim.
func TestClassAppears(t *testing.T) {
	w := newWorld(t)
	w.replaceClass(func(c *storagev1.StorageClass) { c.Name = "slow" })
	w.makeClaim()
	w.start(Config{})
	w.makeClaim(func(c *v1.PersistentVolumeClaim) {
		slow := "slow"
		c.Name, c.UID, c.Spec.StorageClassName = "next", "u2", &slow
	})
	w.wait("the next claim is provisioned, and the first was looked at before",
		func() bool { return w.count("create PV") == 1 })
	w.makeClass()
	w.wait("it is provisioned", w.provisioned)
}

// TestWatchIsFasterThanTheAnswer lets the watch show a PV before the answer to its creation.
func TestWatchIsFasterThanTheAnswer(t *testing.T) {
	w := newWorld(t)
	told := make(chan struct{}, 1)
	w.created = func() { <-told }
	p := w.start(Config{})
	p.provisioner.volumes.Follow(func(volume.PV) { told <- struct{}{} })
	w.makeClaim()
	w.wait("it is provisioned", w.provisioned)
	p.stop()
	if p.provisioner.assumed.Get("pvc-u1") != nil {
		t.Error("what the watch shows is kept for ever")
	}
}

// passed is a watch cache without PVs. After pass it is past all PVs, as after a new list.
type passed struct {
	pvsOf
	past   *atomic.Bool
	listed *func()
}

func (p passed) Reached(string) bool       { return p.past.Load() }
func (p passed) FollowLists(listed func()) { *p.listed = listed }

func (p passed) pass() {
	p.past.Store(true)
	(*p.listed)()
}

// TestPVMissedByTheWatch covers a PV that is created and deleted while the watch is interrupted.
func TestPVMissedByTheWatch(t *testing.T) {
	w := newWorld(t)
	pvs := passed{past: &atomic.Bool{}, listed: new(func())}
	p := w.start(Config{PVs: pvs})
	w.makeClaim()
	w.wait("it is provisioned", w.provisioned)
	if !p.provisioner.stored("u1") {
		t.Error("a PV that was stored a moment ago is not known")
	}
	w.deletePV()
	pvs.pass()
	w.wait("it is provisioned again", w.provisioned)
}

func TestConfigValidate(t *testing.T) {
	for name, c := range map[string]struct {
		cfg Config
		ok  bool
	}{
		"a log":                 {Config{Log: &processLog{}}, true},
		"no log":                {Config{}, false},
		"negative workers":      {Config{Log: &processLog{}, Workers: -1}, false},
		"a delay that shrinks":  {Config{Log: &processLog{}, RetryStart: 2, RetryMax: 1}, false},
		"an empty further name": {Config{Log: &processLog{}, AlsoKnownAs: []string{""}}, false},
		"a negative quiet":      {Config{Log: &processLog{}, Quiet: -1}, false},
		"a negative timeout":    {Config{Log: &processLog{}, CallTimeout: -1}, false},
	} {
		if err := c.cfg.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestQuietPeriodCoversTheTimeoutOfACall(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: 2 * time.Minute, 10 * time.Second: 2 * time.Minute, 10 * time.Minute: 11 * time.Minute,
	} {
		if got := (Config{CallTimeout: timeout}).withDefaults().Quiet; got != want {
			t.Errorf("timeout %v: quiet period %v, want %v", timeout, got, want)
		}
	}
}

var errLost = errors.New("the answer was lost")
