package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestOutcomeOf(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	of := func(class errclass.Class) error { return errclass.Mark(class, errors.New("x")) }
	for name, c := range map[string]struct {
		ctx    context.Context
		action reclaim.Action
		err    error
		want   reclaim.Outcome
	}{
		"none":              {ended, reclaim.DeleteVolume, nil, reclaim.OK},
		"the lease is over": {ended, reclaim.ReadPV, leadership.ErrExpired, reclaim.NotSent},
		"the driver's check finds it over": {t.Context(), reclaim.DeleteVolume, csidriver.ErrLeaseExpired,
			reclaim.NotSent},
		"the object is gone":        {ended, reclaim.DeletePV, kube.ErrGone, reclaim.Gone},
		"the object has changed":    {ended, reclaim.RemoveFinalizer, kube.ErrChanged, reclaim.Changed},
		"the finalizer is restored": {ended, reclaim.FinalizePV, ErrFinalizerRestored, reclaim.Restored},
		"the program ends":          {ended, reclaim.DeleteVolume, errors.New("x"), reclaim.Canceled},
		"the Secret is not clear":   {t.Context(), reclaim.ReadSecrets, errSecretUnclear, reclaim.Unclear},
		"the watch is behind":       {t.Context(), reclaim.ListPVs, errStale, reclaim.Stale},
		"the driver works on it": {t.Context(), reclaim.DeleteVolume, of(errclass.InProgress),
			reclaim.InProgress},
		"the driver refuses":             {t.Context(), reclaim.DeleteVolume, of(errclass.Refused), reclaim.Refused},
		"the driver does not find it":    {t.Context(), reclaim.DeleteVolume, of(errclass.NotFound), reclaim.Refused},
		"the driver does not answer":     {t.Context(), reclaim.DeleteVolume, errors.New("x"), reclaim.Unanswered},
		"no driver was asked":            {t.Context(), reclaim.ReadPV, of(errclass.Refused), reclaim.Unanswered},
		"the API server does not answer": {t.Context(), reclaim.DeletePV, errors.New("x"), reclaim.Unanswered},
	} {
		if got := outcomeOf(c.ctx, c.action, fmt.Errorf("call: %w", c.err)); c.err != nil && got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if got := outcomeOf(c.ctx, c.action, c.err); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// versions are the versions that a cache has reached.
type versions []string

func (v versions) Reached(version string) bool { return slices.Contains(v, version) }

// Len is more than a page.
func (versions) Len() int { return 2 * listPage }

// reachedPVs is a cache of PVs that has reached some versions.
type reachedPVs struct {
	cacheOf
	versions
}

func (r reachedPVs) Reached(version string) bool { return r.versions.Reached(version) }

func (r reachedPVs) Len() int { return r.versions.Len() }

// A list counts if it is complete or the watch has reached its version.
func TestIncompleteListNeedsWatch(t *testing.T) {
	failure := errors.New("no answer")
	for name, c := range map[string]struct {
		complete bool
		reached  versions
		err      error
		want     error
	}{
		"complete":                      {true, nil, nil, nil},
		"long, and reached":             {false, versions{"7"}, nil, nil},
		"long, and not reached":         {false, versions{"6"}, nil, errStale},
		"not answered":                  {false, nil, failure, failure},
		"complete, and ahead of others": {true, versions{"7"}, nil, nil},
	} {
		w, r := newWorld(t)
		r.attachments, r.pvs = c.reached, reachedPVs{cacheOf{w}, c.reached}
		w.list = page[map[string]int]{c.complete, map[string]int{"pv": 1}, "7"}
		w.pvs = page[[]volume.PV]{c.complete, []volume.PV{w.pv}, "7"}
		w.fail["list attachments"], w.fail["list PVs"] = c.err, c.err
		for _, action := range []reclaim.Action{reclaim.ListAttachments, reclaim.ListPVs} {
			a := r.call(t.Context(), reclaim.Ask{Decision: reclaim.Decision{Action: action}}, nil)
			if !errors.Is(a.err, c.want) || len(a.Attached)+len(a.PVs) != 1 {
				t.Errorf("%s, %v: %v, want %v", name, action, a, c.want)
			}
		}
	}
}

// A watch that hears little reaches the version of the first list, and never the version of the latest.
func TestIncompleteListIsAwaited(t *testing.T) {
	w, r := newWorld(t)
	pv, lists := w.pv, 0
	try := func(want error, more int, reached ...string) {
		t.Helper()
		w.diary = nil
		r.attachments, r.pvs = versions(reached), reachedPVs{cacheOf{w}, reached}
		for _, action := range []reclaim.Action{reclaim.ListAttachments, reclaim.ListPVs} {
			version := strconv.Itoa(10 + lists)
			w.list.version, w.pvs.version = version, version
			w.list.complete, w.pvs.complete = false, false
			if a := r.call(t.Context(), reclaim.Ask{Decision: reclaim.Decision{Action: action}, PV: pv}, nil); !errors.Is(
				a.err, want) {
				t.Errorf("%v: %v, want %v", action, a.err, want)
			}
		}
		if lists += more; len(w.diary) != 2*more {
			t.Errorf("lists: %q, want %d of each kind", w.diary, more)
		}
	}
	try(errStale, 1, "9")
	try(errStale, 0, "9")
	try(nil, 0, "10")
	pv.ResourceVersion += "1" // it may have become deletable only now
	try(errStale, 1, "10")
	w.clock.Step(awaitedFor) // etcd may be restored from a backup
	try(errStale, 1, "10")
	r.forget(pv.UID)
	try(nil, 1, "13")
	if w.limit != 1 {
		t.Errorf("%d objects are read for a version", w.limit)
	}
	r.forget(pv.UID)
	r.attachments = r.attachmentCache // it is empty
	if a := r.call(t.Context(), reclaim.Ask{Decision: reclaim.Decision{Action: reclaim.ListAttachments}, PV: pv},
		nil); w.limit != listPage {
		t.Errorf("the limit of a list of few objects is %d: %v", w.limit, a.err)
	}
}

// A PV of the same volume may be created between two tries, unnoticed by a watch that lags.
func TestListOfGonePVCountsOnce(t *testing.T) {
	w, r := newWorld(t)
	w.pvs = page[[]volume.PV]{version: "10"}
	r.pvs = reachedPVs{cacheOf{w}, versions{"10"}}
	list := reclaim.Ask{Decision: reclaim.Decision{Action: reclaim.ListPVs}, PV: w.pv}
	if a := r.call(t.Context(), list, nil); a.err != nil {
		t.Fatal(a.err)
	}
	w.pvs.version = "11"
	if a := r.call(t.Context(), list, nil); !errors.Is(a.err, errStale) {
		t.Errorf("the next try: %v, %d lists, want a new list that the watch has not reached", a.err, len(w.diary))
	}
}

// The claim of a sibling that is to be deleted is read before it. A PV that has taken its name has no claim that was
// read.
func TestReadSiblings(t *testing.T) {
	failure := errors.New("no answer")
	kept, another := sibling(), sibling()
	kept.Policy, another.UID = volume.PolicyRetain, "another"
	reads := []string{"read claim", "read other"}
	for name, c := range map[string]struct {
		found map[string]volume.PV
		fail  string
		pvs   int
		diary []string
	}{
		"to be deleted":          {map[string]volume.PV{"other": sibling()}, "", 1, reads},
		"kept":                   {map[string]volume.PV{"other": kept}, "", 1, reads},
		"gone":                   {nil, "", 0, reads},
		"another of its name":    {map[string]volume.PV{"other": another}, "", 1, reads},
		"the PV is not answered": {map[string]volume.PV{"other": sibling()}, "read other", 0, reads},
		"the claim is not answered": {map[string]volume.PV{"other": sibling()}, "read claim", 0,
			[]string{"read claim"}},
	} {
		w, r := newWorld(t)
		if w.fail[c.fail] = failure; c.found != nil {
			w.others = c.found
		}
		a := r.readSiblings(t.Context(), []volume.PV{sibling()})
		if len(a.PVs) != c.pvs || (a.err != nil) != (c.fail != "") {
			t.Errorf("%s: %v, %v", name, a.PVs, a.err)
		}
		if _, read := a.Claims[another.UID]; read {
			t.Errorf("%s: the claim counts for PV %v", name, another.UID)
		}
		w.expect(t, c.diary...)
	}
	w, r := newWorld(t)
	r.readSiblings(t.Context(), []volume.PV{kept}) // it keeps the volume regardless of its claim
	w.expect(t, "read other")
	w, r = newWorld(t)
	unnamed := sibling()
	unnamed.UID, w.pv, w.pvFound = "", volume.PV{}, false
	if a := r.readSiblings(t.Context(), []volume.PV{unnamed}); len(a.PVs) > 0 {
		t.Errorf("of a PV that does not exist: %v", a.PVs)
	}
	w.expect(t, reads...)
}

// An object that cannot be read keeps the volume. An object that does not exist is left out and named.
func TestReadSecretsReturnsMissing(t *testing.T) {
	const name, namespace = "csi.storage.k8s.io/provisioner-secret-name", "csi.storage.k8s.io/provisioner-secret-namespace"
	ofClass := func(pv *volume.PV) { pv.StorageClass = "class" }
	ofPV := func(pv *volume.PV) {
		pv.SecretKnown, pv.DeletionSecret = true, volume.SecretRef{Namespace: "ns", Name: "s"}
	}
	static := func(pv *volume.PV) { ofClass(pv); pv.ProvisionedBy = "" }
	for title, c := range map[string]struct {
		pv      func(*volume.PV)
		class   map[string]string
		secret  map[string]string
		fail    string
		missing string
		secrets int
	}{
		"the Secret exists":         {pv: ofPV, secret: map[string]string{"a": "b"}, secrets: 1},
		"the Secret does not exist": {pv: ofPV, missing: "Secret ns/s"},
		"the Secret cannot be read": {pv: ofPV, fail: "read secret"},
		"the class does not exist":  {pv: ofClass, missing: "StorageClass class, which would name it"},
		"the class is a mere label": {pv: static},
		"the class cannot be read":  {pv: ofClass, fail: "read class"},
		"the class names an existing Secret": {pv: ofClass, class: map[string]string{name: "s", namespace: "ns"},
			missing: "Secret ns/s"},
	} {
		w, r := newWorld(t)
		c.pv(&w.pv)
		w.class, w.secret = c.class, c.secret
		if c.fail != "" {
			w.fail[c.fail] = errors.New("no answer")
		}
		secrets, missing, err := r.readSecrets(t.Context(), w.pv)
		if len(secrets) != c.secrets || missing != c.missing || (err != nil) != (c.fail != "") {
			t.Errorf("%s: %v, missing %q, %v", title, secrets, missing, err)
		}
	}
}

// The Secret is kept over the steps between its read and DeleteVolume.
func TestDriverReceivesSecret(t *testing.T) {
	w, r := newWorld(t)
	w.pv.SecretKnown, w.pv.DeletionSecret = true, volume.SecretRef{Namespace: "ns", Name: "s"}
	w.secret = map[string]string{"password": "x"}
	w.store(r, w.pv)
	r.reconcile(t.Context(), "pv")
	w.expect(t, append([]string{"read secret"}, reclaims()...)...)
	if w.given["password"] != "x" {
		t.Errorf("the driver got %v", w.given)
	}
}

// A panic in a driver's client does not block a later deletion, and protection waits only for calls that are under
// way.
func TestSessionEndsAfterDriverPanic(t *testing.T) {
	w, r := newWorld(t)
	w.at("delete volume", func() {
		if r.inHand.Load() != 1 {
			t.Errorf("%d sessions at work", r.inHand.Load())
		}
		panic("broken")
	})
	func() {
		defer func() { _ = recover() }()
		r.reconcile(t.Context(), "pv")
	}()
	if w.before, w.diary = nil, nil; r.inHand.Load() != 0 {
		t.Errorf("%d sessions at work after it", r.inHand.Load())
	}
	r.reconcile(t.Context(), "pv")
	w.expect(t, reclaims()...)
}

func TestNoActionForUnknownPVOrEndedContext(t *testing.T) {
	heard := &heard{}
	w, r := newWorldWith(t, Config{Events: heard, ProtectWorkers: 1})
	if again := r.reconcile(t.Context(), "nobody"); again != controller.Done() || len(r.recorder.Waiting()) > 0 {
		t.Errorf("decided on again after %+v, waiting %v", again, r.recorder.Waiting())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w.alter(r, bound, strip)
	done, err := r.pace.Acquire(t.Context()) // no other call gets a place
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if again := r.protect(ended, "pv"); again != controller.Done() {
		t.Errorf("protected again after %+v", again)
	}
	w.expect(t)
	if len(heard.events) > 0 {
		t.Errorf("reported %q", heard.events)
	}
}

// inFlightLog is an in-flight log with a state that the test sets.
type inFlightLog struct {
	state   volume.InFlight
	problem string
}

func (l inFlightLog) InFlight(string) (state volume.InFlight, problem string) {
	return l.state, l.problem
}
func (inFlightLog) Follow(func(string)) {}

// A volume is deleted only once the log is known to have no entry for it.
func TestInFlightVolumeIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		log    inFlightLog
		reason Reason
		want   []string
	}{
		"the log is not read": {inFlightLog{}, reclaim.ReasonLogNotRead, nil},
		"it has an entry":     {inFlightLog{state: volume.InFlightOpen}, reclaim.ReasonInFlight, nil},
		"it cannot be read":   {inFlightLog{state: volume.InFlightUnreadable}, reclaim.ReasonLogUnreadable, nil},
		"it has none": {inFlightLog{state: volume.InFlightSettled}, reclaim.ReasonReclaim,
			reclaims()},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := newWorldWith(t, Config{InFlight: c.log})
			if e, found := r.Explain("pv"); !found || e.Reason != c.reason && c.want == nil {
				t.Errorf("decided because %s, want %s", e.Reason, c.reason)
			}
			r.reconcile(t.Context(), "pv")
			w.expect(t, c.want...)
		})
	}
}
