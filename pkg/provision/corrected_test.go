package provision

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// classless removes the class from the facts.
func classless(f *request.Facts) { f.Class = nil }

// waitsLong makes each delay after a failure longer than any test.
func (p *process) waitsLong() *process {
	p.provisioner.cfg.RetryStart, p.provisioner.cfg.RetryMax = 24*time.Hour, 24*time.Hour
	return p
}

// due returns the remaining delay of a name.
func (t *tracker) due(name string, now time.Time) time.Duration { return t.retryOf(name).due.Sub(now) }

// TestCorrectionEndsTheWait covers changes without which the claim would be tried again a day later.
func TestCorrectionEndsTheWait(t *testing.T) {
	annotate := func(name string) func(*world, *process) {
		return func(w *world, _ *process) {
			w.update(func(c *v1.PersistentVolumeClaim) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, name, "x") })
		}
	}
	for name, c := range map[string]struct {
		wrong   func(request.Options) bool
		correct func(*world, *process)
	}{
		"of the claim": {func(o request.Options) bool { return o.Claim.Annotations["example.com/team"] == "" },
			annotate("example.com/team")},
		"of the StorageClass, which is created anew": {
			func(o request.Options) bool { return o.Class.Parameters["pool"] == "" },
			func(w *world, _ *process) {
				w.replaceClass(func(c *storagev1.StorageClass) {
					c.UID, c.Parameters = "anew", map[string]string{"pool": "a"}
				})
			}},
		"of the StorageClass's topologies": {
			func(o request.Options) bool { return len(o.Class.AllowedTopologies) == 0 },
			func(w *world, _ *process) {
				class, err := w.client.StorageV1().StorageClasses().Get(w.t.Context(), "fast", metav1.GetOptions{})
				w.must(err)
				class = class.DeepCopy()
				class.ResourceVersion = "2" // the fake gives none
				class.AllowedTopologies = []v1.TopologySelectorTerm{{}}
				_, err = w.client.StorageV1().StorageClasses().Update(w.t.Context(), class, metav1.UpdateOptions{})
				w.must(err)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			refusal := refusal(t, invalid, request.RemediationChange)
			w.orders.refuse = func(o request.Options) error {
				if c.wrong(o) {
					return refusal
				}
				return nil
			}
			p := w.make(Config{}).waitsLong().start()
			w.makeClaim()
			w.wait("it waits", func() bool { return p.provisioner.tracker.due("pvc-u1", time.Now()) > time.Hour })
			c.correct(w, p)
			w.wait("it is provisioned", w.provisioned)
		})
	}
}

// TestNodeChangeEndsTheWait covers a claim whose request could not be built, and another claim that keeps waiting.
func TestNodeChangeEndsTheWait(t *testing.T) {
	w := newWorld(t)
	var registered atomic.Bool
	unknown := refusal(t, classless, request.RemediationWait)
	w.orders.refuse = func(o request.Options) error {
		if registered.Load() || o.Claim.Name != "data" {
			return nil
		}
		return unknown
	}
	w.failing(false, class(errclass.Refused))
	p := w.make(Config{}).waitsLong()
	p.provisioner.cfg.RetryMax = unwatchedRetry // the limit for unwatched objects would end its wait as well
	p.start()
	w.makeClaim(named("refused", "u2"))
	w.makeClaim()
	w.wait("both wait", func() bool {
		tracker, now := p.provisioner.tracker, time.Now()
		return tracker.due("pvc-u1", now) > 0 && tracker.due("pvc-u2", now) > 0
	})
	w.failing(false, nil)
	registered.Store(true)
	p.provisioner.nodesChanged()
	w.wait("it is provisioned", func() bool { return w.pv() != nil })
	if n := w.count("create volume"); n != 2 {
		t.Errorf("%d calls, want one of each claim", n)
	}
}

// TestCorrectionDuringATryCounts: the try has not seen the change.
func TestCorrectionDuringATryCounts(t *testing.T) {
	w, p, calls := newWorld(t), (*process)(nil), 0
	w.call = func(string) error {
		if calls++; calls > 1 {
			return nil
		}
		w.update(func(c *v1.PersistentVolumeClaim) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, "example.com/team", "x")
		})
		w.wait("the change was seen", func() bool {
			claim := p.provisioner.claims.WholeByUID("u1")
			return claim != nil && claim.Annotations["example.com/team"] == "x"
		})
		return class(errclass.Refused)()
	}
	p = w.make(Config{}).waitsLong()
	p.start()
	w.makeClaim()
	w.wait("it is provisioned", w.provisioned)
}

// TestAnotherNodeEndsTheWait covers a claim whose first node has no room.
func TestAnotherNodeEndsTheWait(t *testing.T) {
	w := newWorld(t)
	w.failing(false, class(errclass.Exhausted))
	w.make(Config{}).waitsLong().start()
	w.lateClaim()
	w.wait("another node is asked for", func() bool { return w.selectedNode() == "" })
	w.failing(false, nil)
	w.update(selecting("n2"))
	w.wait("it is provisioned", w.provisioned)
}

func TestCorrectionOf(t *testing.T) {
	annotated := func(pairs ...string) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) {
			for i := 0; i < len(pairs); i += 2 {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, pairs[i], pairs[i+1])
			}
		}
	}
	node := func(name string) func(*v1.PersistentVolumeClaim) { return annotated(volume.AnnSelectedNode, name) }
	none := func(*v1.PersistentVolumeClaim) {}
	for name, c := range map[string]struct {
		before, now func(*v1.PersistentVolumeClaim)
		want        correction
	}{
		"nothing but the version": {none, none, noCorrection},
		"its size": {none, func(c *v1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
		}, corrected},
		"an annotation that comes":   {none, annotated("example.com/team", "a"), corrected},
		"an annotation that goes":    {annotated("example.com/team", "a"), none, corrected},
		"an annotation that changes": {annotated("team", "a"), annotated("team", "b"), corrected},
		"its class annotation":       {none, annotated(v1.BetaStorageClassAnnotation, "fast"), corrected},
		"the PV controller's": {none, annotated("pv.kubernetes.io/bind-completed", "yes", volume.AnnProvisioner, "x",
			volume.AnnProvisionerBeta, "x"), noCorrection},
		"this project's": {none, annotated("csi-reclaimer.io/statefulset", "x"), noCorrection},
		"a finalizer": {none, func(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{request.CloningFinalizer} },
			noCorrection},
		"a node is selected":       {none, node("n1"), moved},
		"another node is selected": {node("n1"), node("n2"), moved},
		"the node is given back":   {node("n1"), none, noCorrection},
		"it is bound":              {none, func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }, noCorrection},
		"it is being deleted": {annotated("team", "a"), func(c *v1.PersistentVolumeClaim) {
			c.DeletionTimestamp = &metav1.Time{}
		}, noCorrection},
	} {
		if got := correctionOf(claimAt("1", c.before), claimAt("2", c.now)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestManyCorrectionsEndFewWaits: a program may write to a claim all the time.
func TestManyCorrectionsEndFewWaits(t *testing.T) {
	const name, least = "pvc-u1", 10 * time.Second
	tracker, now := newTracker(), time.Unix(1e9, 0)
	if tracker.hasten(name, now, least); len(tracker.of) > 0 {
		t.Error("a name that is not known is remembered")
	}
	for i, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second} {
		tracker.failed(name, ending{}, now, time.Hour, time.Hour)
		if tracker.hasten(name, now, least); tracker.due(name, now) != want {
			t.Errorf("correction %d: it waits for %v, want %v", i, tracker.due(name, now), want)
		}
	}
	tracker.hasten(name, now, 0)
	if wait := tracker.due(name, now); wait > 0 {
		t.Errorf("with another node it waits for %v", wait)
	}
	now = now.Add(time.Minute)
	if tracker.failed(name, ending{}, now, time.Second, time.Hour); tracker.retryOf(name).count != 4 {
		t.Errorf("%d failures are known, want 4", tracker.retryOf(name).count)
	}
}

// TestCorrectedSecretEndsTheWait covers a Secret with wrong values, which is not watched.
func TestCorrectedSecretEndsTheWait(t *testing.T) {
	w, now := newWorld(t), testclock.NewFakeClock(time.Now())
	w.secret = "wrong"
	w.call = func(string) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.secret != "right" {
			return class(errclass.Refused)()
		}
		return nil
	}
	p := w.make(Config{Clock: now}).waitsLong().start()
	tracker := p.provisioner.tracker
	w.makeClaim()
	w.wait("the delay is long, and its Secret is known", func() bool {
		last := tracker.retryOf("pvc-u1")
		return last.due.Sub(now.Now()) > time.Hour && last.secret != seenSecret{}
	})
	reads := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.secretReads
	}
	readAgain := func() {
		n := reads()
		w.wait("the Secret is read again", func() bool {
			now.Step(time.Second)
			return reads() > n
		})
	}
	for range 3 {
		readAgain()
	}
	if n := w.count("open entry"); n != 1 {
		t.Errorf("the driver was called %d times with the same Secret", n)
	}
	w.set(func() { w.secret = "right" })
	readAgain()
	w.wait("it is provisioned", w.provisioned)
}

// TestSecretThatCannotBeReadEndsNoWait: only other values are a correction.
func TestSecretThatCannotBeReadEndsNoWait(t *testing.T) {
	now := testclock.NewFakeClock(time.Now())
	r, log := observing(t, Config{Clock: now}, nil, nil)
	r.cfg.RetryStart, r.cfg.RetryMax = time.Hour, time.Hour
	ref := v1.SecretReference{Namespace: "ns", Name: "secret"}
	r.saw(ref, map[string]string{"key": ""}, nil)
	r.saw(ref, nil, errors.New("forbidden")) // counts as not read
	fail := func() {
		r.began = now.Now()
		if wait := r.fail(t.Context(), errors.New("refused")); wait != time.Hour {
			t.Errorf("it waits for %v", wait)
		}
	}
	ended := func() bool {
		now.Step(unwatchedRetry)
		r.readSecrets(t.Context(), struct{}{})
		return r.tracker.due(r.name, now.Now()) <= 0
	}
	for step, c := range map[string]struct {
		gone   bool
		secret string
		ended  bool
	}{
		"the same values": {false, "", false}, "other values": {false, "x", true}, "it is gone": {true, "", false},
	} {
		fail()
		log.secretGone, log.secret = c.gone, c.secret
		if ended() != c.ended {
			t.Errorf("%s: the delay ends: %t", step, !c.ended)
		}
		now.Step(24 * time.Hour)
	}
	r.saw(ref, nil, errSecretGone)
	fail()
	log.secretGone, log.secret = false, ""
	if !ended() {
		t.Error("a Secret that is created ends no delay")
	}
	r.secret = seenSecret{}
	n := log.secretReads
	if fail(); ended() || log.secretReads > n {
		t.Error("a delay ends without a Secret")
	}
}

// TestSecretIsReadOnceForAllNames: neither the number of names nor a slow API server may keep the workers busy.
func TestSecretIsReadOnceForAllNames(t *testing.T) {
	now := testclock.NewFakeClock(time.Now())
	r, log := observing(t, Config{Clock: now}, nil, nil)
	seen := seenSecret{ref: v1.SecretReference{Namespace: "ns", Name: "secret"}, values: digestOf(nil)}
	var names []string
	for n := range 20 {
		names = append(names, fmt.Sprint("pvc-", n))
		r.tracker.failed(names[n], ending{secret: seen}, now.Now(), time.Hour, time.Hour)
	}
	now.Step(unwatchedRetry)
	for _, name := range names {
		r.try(t.Context(), name)
	}
	if log.secretReads != 0 {
		t.Errorf("%d reads by workers of tries", log.secretReads)
	}
	if r.readSecrets(t.Context(), struct{}{}); log.secretReads != 1 {
		t.Errorf("%d reads, want 1", log.secretReads)
	}
	for _, name := range names {
		if wait := r.tracker.due(name, now.Now()); wait > 0 {
			t.Errorf("%s waits for %v", name, wait)
		}
	}
	// A name that is tried now reads the Secret itself.
	if r.readSecrets(t.Context(), struct{}{}); log.secretReads != 1 {
		t.Errorf("%d reads without a name that waits", log.secretReads)
	}
}

// TestRoomEndsTheWait covers a claim that the log had no room for, which would be tried again a day later.
func TestRoomEndsTheWait(t *testing.T) {
	for _, full := range []error{inflight.ErrFull, inflight.ErrShare} {
		w := newWorld(t)
		w.refuse(full)
		p := w.make(Config{}).waitsLong().start()
		w.makeClaim()
		w.wait("it waits", func() bool { return p.provisioner.tracker.retryOf("pvc-u1").full })
		w.refuse(nil)
		w.makeClaim(named("other", "u2"))
		w.wait("it is provisioned after another volume", func() bool { return w.pv() != nil })
	}
}

// TestRoomIsTriedByFewNames: an entry makes room for one. The names that fail again are the last the next time.
func TestRoomIsTriedByFewNames(t *testing.T) {
	tracker, now := newTracker(), time.Unix(1e9, 0)
	for n, name := range []string{"a", "b", "c", "d", "e"} {
		delay := time.Duration(5-n) * time.Minute
		tracker.failed(name, ending{full: name != "d"}, now, delay, delay)
	}
	if got := tracker.refused(2); !slices.Equal(got, []string{"e", "c"}) {
		t.Errorf("%q try", got)
	}
	tracker.failed("e", ending{full: true}, now, time.Hour, time.Hour)
	if got := tracker.refused(3); !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Errorf("%q try next", got)
	}
	if got := tracker.refused(9); len(got) != 4 {
		t.Errorf("%q try", got)
	}
}

func TestDelayIsShortForUnwatchedObjects(t *testing.T) {
	p := &Controller{cfg: Config{RetryMax: 5 * time.Minute}}
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"a Secret is missing":      {fmt.Errorf("read: %w", errSecretGone), 5 * time.Minute},
		"an object does not exist": {refusal(t, classless, request.RemediationWait), unwatchedRetry},
		"the log is full":          {fmt.Errorf("put: %w", inflight.ErrFull), 5 * time.Minute},
		"the share is used up":     {fmt.Errorf("put: %w", inflight.ErrShare), 5 * time.Minute},
		"the request is too large": {fmt.Errorf("put: %w", inflight.ErrTooLarge), 5 * time.Minute},
		"the claim is invalid":     {refusal(t, invalid, request.RemediationChange), 5 * time.Minute},
		"the driver has failed":    {class(errclass.Uncertain)(), 5 * time.Minute},
	} {
		if got := p.longestDelay(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	p.cfg.RetryMax = time.Second
	if got := p.longestDelay(refusal(t, classless, request.RemediationWait)); got != time.Second {
		t.Errorf("%v, which is longer than RetryMax", got)
	}
}
