package reclaim

import (
	"context"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// world is an API server and a storage system with one PV, and keeps a diary of the calls. The adapters are tested
// against real servers; here the order of steps is tested, and answers that real servers rarely give.
type world struct {
	clock   *testclock.FakeClock
	pv      volume.PV
	pvFound bool
	claim   pvclaim.Result
	others  map[string]volume.PV
	list    page[map[string]int]
	diary   []string
	fail    map[string]error
	// before is called with each entry of the diary before the call takes effect.
	before func(what string)
	// stored is the content of the cache.
	stored map[string]*volume.PV
	// class has the parameters of the StorageClass, nil if it does not exist.
	class   map[string]string
	pvs     page[[]volume.PV]
	nodes   []string
	brakeOn bool
	// limit is the limit of the last list.
	limit int64
	// noLease: the Lease of the brake does not exist. leases counts the Leases of that name before the present one.
	noLease bool
	leases  int
	patched []string
	// written is the resourceVersion that a write produces, if it matters.
	written string
	// secret is the content of the Secret, nil if it does not exist; given has the secrets of the last DeleteVolume.
	secret, given map[string]string
	// works, if set, is called in each DeleteVolume, with the context of the call.
	works func(context.Context) error
}

func (w *world) did(what string) error {
	w.diary = append(w.diary, what)
	if w.before != nil {
		w.before(what)
	}
	return w.fail[what]
}

func (w *world) readPV(_ context.Context, name string) (volume.PV, bool, error) {
	err := w.did("read " + name)
	if other, found := w.others[name]; found {
		return other, true, err
	}
	return w.pv, w.pvFound && name == w.pv.Name, err
}

func (w *world) readClaim(_ context.Context, of volume.ClaimRef) (pvclaim.Result, error) {
	err := w.did("read claim")
	facts := w.claim
	facts.Of = of
	return facts, err
}

func (w *world) readSecret(context.Context, volume.SecretRef) (map[string]string, bool, error) {
	return w.secret, w.secret != nil, w.did("read secret")
}

func (w *world) listAttachments(_ context.Context, limit int64) (page[map[string]int], error) {
	w.limit = limit
	return w.list, w.did("list attachments")
}

func (w *world) readClass(context.Context, string) (*storagev1.StorageClass, error) {
	err := w.did("read class")
	if w.class == nil {
		return nil, err
	}
	return csiClass(w.class), err
}

func (w *world) listPVs(_ context.Context, limit int64) (page[[]volume.PV], error) {
	w.limit = limit
	return w.pvs, w.did("list PVs")
}

func (w *world) eachPV(_ context.Context, visit func(volume.PV)) error {
	for _, pv := range w.pvs.content {
		visit(pv)
	}
	return w.did("each PV")
}

func (w *world) listNodes(context.Context) ([]string, error) { return w.nodes, w.did("list nodes") }

func (w *world) patchFinalizers(_ context.Context, pv volume.PV, add, drop []string, bound bool) (volume.PV, error) {
	what := "release"
	switch {
	case len(add) > 0 && len(drop) > 0:
		what = "adopt"
	case len(add) > 0:
		what = "protect"
	case bound:
		what = "drop"
	}
	w.patched = slices.Concat(add, drop)
	err := w.did(what)
	if err != nil {
		return volume.PV{}, err
	}
	after := w.pv
	after.UID, after.ResourceVersion = pv.UID, pv.ResourceVersion+"1" // a later one
	if w.written != "" {
		after.ResourceVersion = w.written
	}
	return after, nil
}

func (w *world) deletePV(context.Context, volume.PV) error { return w.did("delete PV") }

func (w *world) readBrake(context.Context, types.NamespacedName) (uid types.UID, on bool, err error) {
	if !w.noLease {
		uid, on = types.UID(fmt.Sprint("lease-", w.leases)), w.brakeOn
	}
	return uid, on, w.did("read brake")
}

func (w *world) createBrake(context.Context, types.NamespacedName) error {
	err := w.did("create brake")
	w.noLease = err != nil
	return err
}

func (w *world) writeBrake(context.Context, types.NamespacedName, string) (types.UID, error) {
	err := w.did("pull brake")
	if w.brakeOn = err == nil; w.brakeOn {
		w.noLease = false
	}
	return types.UID(fmt.Sprint("lease-", w.leases)), err
}

// deleteLease deletes the Lease of the brake with its annotation.
func (w *world) deleteLease() { w.noLease, w.brakeOn, w.leases = true, false, w.leases+1 }

func (w *world) DeleteVolume(ctx context.Context, _ string, secrets map[string]string) error {
	w.given = secrets
	err := w.did("delete volume")
	if w.works != nil {
		return w.works(ctx)
	}
	return err
}

// newWorld returns a world whose PV is to be reclaimed, and its Controller.
func newWorld(t *testing.T) (*world, *Controller) { return newWorldWith(t, Config{}) }

func newWorldWith(t *testing.T, cfg Config) (*world, *Controller) {
	t.Helper()
	w := &world{
		clock: testclock.NewFakeClock(now()), pv: released().PV, pvFound: true,
		fail: map[string]error{}, others: map[string]volume.PV{},
	}
	w.list.complete, w.pvs.complete = true, true
	cfg.Clock = w.clock
	r := must.Get(New(&rest.Config{Host: "http://127.0.0.1:1"}, driver, w, cfg))(t)
	r.cluster = w
	w.stored = map[string]*volume.PV{}
	r.pvs, r.engine.PVs = cacheOf{w}, cacheOf{w}
	r.lead(true)
	w.store(r, w.pv)
	return w, r
}

// store delivers a PV to the cache and its handlers, as the watch would.
func (w *world) store(r *Controller, pv volume.PV) {
	before := w.stored[pv.Name]
	w.stored[pv.Name] = &pv
	if before == nil {
		pvEvents{r}.Added(&pv)
	} else {
		pvEvents{r}.Updated(before, &pv)
	}
}

// alter changes the PV, and delivers it as store does.
func (w *world) alter(r *Controller, changes ...func(*volume.PV)) {
	for _, change := range changes {
		change(&w.pv)
	}
	w.store(r, w.pv)
}

// join adds another PV, or changes it.
func (w *world) join(r *Controller, pv volume.PV) {
	w.others[pv.Name] = pv
	w.store(r, pv)
}

func bound(pv *volume.PV)     { pv.Phase = volume.PhaseBound }
func strip(pv *volume.PV)     { pv.HasFinalizer = false }
func protect(pv *volume.PV)   { pv.HasFinalizer = true }
func retain(pv *volume.PV)    { pv.Policy = volume.PolicyRetain }
func hold(pv *volume.PV)      { pv.Held = true }
func terminate(pv *volume.PV) { pv.Terminating = true }

// end delivers the end of the PV, and vanish that of any PV, final if its last state is known.
func (w *world) end(r *Controller) { w.vanish(r, "pv", true) }

func (w *world) vanish(r *Controller, name string, final bool) {
	last := w.stored[name]
	delete(w.stored, name)
	pvEvents{r}.Deleted(last, final)
}

// at calls do before each entry of this name in the diary takes effect.
func (w *world) at(entry string, do func()) {
	w.before = func(what string) {
		if what == entry {
			do()
		}
	}
}

// cacheOf is a cache that a test fills.
type cacheOf struct{ *world }

func (c cacheOf) Get(name string) (*volume.PV, bool) { pv, found := c.stored[name]; return pv, found }
func (c cacheOf) Reached(string) bool                { return false }
func (c cacheOf) Len() int                           { return len(c.stored) }
func (c cacheOf) Each(visit func(*volume.PV)) {
	for _, pv := range c.stored {
		visit(pv)
	}
}

// reclaims returns the diary of a reclaim.
func reclaims() []string {
	return []string{"read claim", "read pv", "delete volume", "delete PV", "release"}
}

func (w *world) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(w.diary, want) {
		t.Errorf("diary: %q\nwant:  %q", w.diary, want)
	}
}

// heard records Events: the type, the reason and the kind of the object, and the message.
type heard struct {
	events.Discard
	events, messages []string
}

func (h *heard) Event(o runtime.Object, kind, reason, message string) {
	on := ""
	if ref, ok := o.(*v1.ObjectReference); ok {
		on = ref.Kind
	}
	h.events, h.messages = append(h.events, kind+" "+reason+" on "+on), append(h.messages, message)
}
