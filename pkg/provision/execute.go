package provision

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/util"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/migration"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/outcome"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/order"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// maxSteps bounds the steps of one run. A provision takes three, a clean-up six.
const maxSteps = 16

// trouble is an error with what it means for the claim it befell.
type trouble struct {
	reason Reason
	err    error
}

func (t *trouble) Error() string { return t.err.Error() }
func (t *trouble) Unwrap() error { return t.err }

func because(reason Reason, err error) error {
	if err == nil {
		return nil
	}
	return &trouble{reason, err}
}

// run is the work on one claim from its wake-up to the next wait. It has taken the claim's life.
type run struct {
	*Provisioner
	claim *v1.PersistentVolumeClaim
	life  *life
	facts Snapshot
	// wanted is what the library asks for, nil for a run of our own loop.
	wanted *wanted
	// asked tells whether the driver was asked in this run.
	asked bool
	// elsewhere: another node has to be selected.
	elsewhere bool
}

// wanted is what the library knows of the volume that it asks for.
type wanted struct {
	class *storagev1.StorageClass
	node  *v1.Node
}

// work decides and acts until there is nothing to do now, or something fails. Between any two
// steps it looks at the claim again: it may have been deleted while the driver worked.
func (w *run) work(ctx context.Context) (Decision, error) {
	for range maxSteps {
		d := w.next(ctx)
		if d.Action == Wait {
			return d, nil
		}
		if err := w.act(ctx, d); err != nil || d.last() {
			return d, err
		}
	}
	return Decision{}, because(ReasonUnreadable, fmt.Errorf("provision claim %s: reads take longer than %v", klog.KObj(w.claim), liveFor))
}

// next looks at the claim as it is now, and decides.
func (w *run) next(ctx context.Context) Decision {
	w.look()
	d := Decide(w.facts, w.cfg.Clock.Now())
	klog.FromContext(ctx).V(5).Info("Decided", "claim", klog.KObj(w.claim), "action", d.Action, "reason", d.Reason)
	return d
}

// last tells whether a run ends with this step: the claim's own update brings it back, and the cache
// does not show the write yet.
func (d Decision) last() bool { return d.Action == Protect || d.Action == LetGo }

func (w *run) act(ctx context.Context, d Decision) error {
	if d.Action != CreateVolume && d.Action != DeleteVolume { // the driver has a time of its own
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, apiTimeout)
		defer cancel()
	}
	switch d.Action {
	case Protect:
		return w.protect(ctx)
	case Compose:
		return w.compose(ctx, d.Reason)
	case ReadPV:
		return w.readPV(ctx)
	case CreateVolume:
		return w.createVolume(ctx, d.Reason)
	case StorePV:
		return w.storePV(ctx)
	case DeleteVolume:
		return w.deleteVolume(ctx, d.Reason)
	case LetGo:
		return w.letGo(ctx, d.Reason)
	case Wait, SelectNode:
	}
	return nil
}

func (w *run) protect(ctx context.Context) error {
	if err := w.cluster.protect(ctx, w.facts.Claim); err != nil {
		return because(ReasonUnwritable, err)
	}
	if it := w.life; !it.tried || it.volume == VolumeNone {
		// Nobody had begun: the finalizer was not on. But this process may have, if a late write of
		// one before it, or somebody, took the finalizer off since.
		it.volume, it.doubt, it.failed = VolumeNone, false, false
	}
	return nil
}

func (w *run) compose(ctx context.Context, why Reason) error {
	it, nothing := w.life, w.nothingBegun()
	if !whole(w.claim) {
		return because(failureOf(why), errors.New("of a claim that is bound too little is kept to ask for a volume"))
	}
	want := Want{Claim: w.claim, Begun: w.facts.Claim.Protected, CleanUp: why == ReasonCleanUp}
	if w.wanted != nil {
		want.Class, want.Node = w.wanted.class, w.wanted.node
	} else if want.Class = w.classOf(w.claim); want.Class == nil {
		return because(ReasonUnreadable, errors.New("the StorageClass is gone"))
	}
	settled, err := w.orders.Compose(ctx, want)
	if err != nil {
		w.elsewhere = nothing && w.wanted != nil && remedyOf(err) == order.RemedyReschedule
		if order.ReasonOf(err) != "" && why == ReasonCleanUp {
			// Nothing failed: what the volume was to be made from is not there any more.
			return because(ReasonOutcomeUnknown, err)
		}
		return because(failureOf(why), err)
	}
	it.order, w.facts.Ordered = settled, true
	return nil
}

// nothingBegun tells whether no CreateVolume for the claim can have been sent, or be in flight: before
// the claim is held nobody has begun, and right after neither.
func (w *run) nothingBegun() bool {
	return w.life.volume == VolumeNone || !w.facts.Claim.Protected && !w.life.tried
}

// remedyOf returns what helps against an error, RemedyWait for one that says nothing of it.
func remedyOf(err error) order.Remedy {
	var e *order.Error
	if errors.As(err, &e) {
		return e.Remedy()
	}
	return order.RemedyWait
}

// failureOf returns the word for a step that failed while doing what the reason says.
func failureOf(why Reason) Reason {
	switch why {
	case ReasonCleanUp, ReasonDiscard:
		return ReasonCleanUpFailed
	default:
		return ReasonFailed
	}
}

func (w *run) readPV(ctx context.Context) error {
	began := w.cfg.Clock.Now()
	pv, err := w.cluster.readPV(ctx, w.facts.Claim.PVName)
	if err != nil {
		return because(ReasonUnreadable, err)
	}
	w.facts.PV, w.facts.PVHandle, w.facts.PVRead = PVAbsent, "", began
	if pv != nil {
		read := reclaim.PVAt(w.cfg.node(), pv)
		w.facts.PV, w.facts.PVHandle = stateOf(read, w.facts.Claim, w.names[0]), read.Handle
	}
	return nil
}

// secrets reads the Secret of an order each time it is needed, so that one that was changed counts.
// A driver is not asked without: it may look in the wrong place, and answer that nothing is there.
func (w *run) secrets(ctx context.Context, why Reason) (map[string]string, error) {
	if w.life.order == nil || w.life.order.Secret == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	values, err := w.cluster.readSecret(ctx, *w.life.order.Secret)
	switch {
	case errors.Is(err, errSecretGone) && failureOf(why) == ReasonCleanUpFailed:
		return nil, because(ReasonOutcomeUnknown, err)
	case err != nil:
		return nil, because(failureOf(why), err)
	}
	return values, nil
}

func (w *run) createVolume(ctx context.Context, why Reason) error {
	secrets, err := w.secrets(ctx, why)
	if err != nil {
		return err
	}
	if err := w.holdSource(ctx, why); err != nil {
		return err
	}
	it := w.life
	before := it.volume
	it.volume, it.tried, it.failed, it.unfit = VolumeUnknown, true, false, false
	w.asked = true
	volume, err := w.driver.CreateVolume(migration.Mark(ctx, it.order.Migrated), it.order.Request, secrets)
	switch class := outcome.Of(err); {
	case err == nil:
		it.volume, it.handle, it.doubt = VolumeMade, volume.GetVolumeId(), false
	case class == outcome.Unfit,
		(class == outcome.Refused || class == outcome.Exhausted) && !it.doubt && before == VolumeNone:
		it.volume, it.failed, it.doubt = VolumeNone, true, false
	case class == outcome.Refused, class == outcome.Exhausted:
		// This call made nothing; one before it may have.
	default:
		it.doubt = true
	}
	// Where something may be left of an earlier try, the finalizer stays on.
	w.elsewhere = w.wanted != nil && w.wanted.node != nil && it.order.MayReschedule && outcome.Of(err) == outcome.Exhausted
	it.made = volume
	if err == nil || outcome.Of(err) == outcome.Exhausted {
		w.tellChanged()
	}
	return because(failureOf(why), err)
}

// tellChanged tells that what the driver has left may have changed: where the volume is that was made,
// or, where none is, in the whole class.
func (w *run) tellChanged() {
	var at []map[string]string
	for _, topology := range w.life.made.GetAccessibleTopology() {
		at = append(at, topology.GetSegments())
	}
	w.cfg.Changed(util.GetPersistentVolumeClaimClass(w.claim), at)
}

func (w *run) storePV(ctx context.Context) error {
	pv, err := w.life.order.PV(w.life.made)
	if err != nil {
		// The driver made something else than what was asked for.
		w.life.unfit = true
		return because(ReasonFailed, fmt.Errorf("use volume %q: %w", w.life.handle, err))
	}
	w.shelf.expect(pv.Name, w.facts.Claim.UID)
	stored, err := storePV(ctx, w.cluster, w.cfg.node(), w.facts.Claim, pv)
	if err != nil {
		w.shelf.forget(pv.Name)
	}
	switch {
	case errors.Is(err, errNameTaken):
		// When that PV goes its volume may go with it, which may be the one that the driver named.
		w.life.volume, w.life.handle, w.life.made, w.life.doubt = VolumeUnknown, "", nil, true
		return because(ReasonNameTaken, err)
	case err != nil:
		return because(ReasonUnwritable, err)
	}
	w.life.stored = stored
	w.shelf.put(stored)
	if shown, found := w.volumes.Get(stored.Name); found {
		w.shelf.drop(shown) // the answer to an earlier try was lost, and the watch has told since
	}
	w.facts.PV = PVStored
	return nil
}

func (w *run) deleteVolume(ctx context.Context, why Reason) error {
	secrets, err := w.secrets(ctx, why)
	if err != nil {
		return err
	}
	if err := w.driver.DeleteVolume(ctx, w.life.handle, secrets); err != nil {
		return because(ReasonCleanUpFailed, err)
	}
	klog.FromContext(ctx).Info("Deleted a volume that never had a PV", "claim", klog.KObj(w.claim), "volumeHandle", w.life.handle)
	w.metrics.cleaned.Inc()
	w.reports.tell(ctx, w.facts.Claim, why, fmt.Sprintf("Volume %q.", w.life.handle))
	w.tellChanged()
	it := w.life
	it.volume, it.handle, it.made, it.doubt, it.unfit, it.failed = VolumeNone, "", nil, false, false, true
	return nil
}

func (w *run) letGo(ctx context.Context, why Reason) error {
	// Nothing is left for the claim that is not its PV's, and stays so. If the answer is lost, claim and
	// PV may be gone when it is looked at again: then no volume is to be looked for by making it.
	w.life.volume, w.life.handle, w.life.made = VolumeNone, "", nil
	version, err := w.cluster.letGo(ctx, w.facts.Claim)
	if err != nil && !errors.Is(err, kube.ErrGone) {
		return because(ReasonUnwritable, err)
	}
	w.life.letGo = version
	if why == ReasonHasAnother {
		w.reports.now(ctx, w.facts.Claim, why, "")
	}
	return nil
}
