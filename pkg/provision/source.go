package provision

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// protectedSources tracks the sources that this process protects, and is safe for concurrent use.
type protectedSources struct {
	// turns serialize the addition and the removal of one source's protection.
	turns [64]sync.Mutex
	seed  maphash.Seed

	mu sync.Mutex
	// snapshots has the UIDs of snapshots whose finalizer this process has added, or found, and not removed. Only these
	// are checked when a claim that names one changes, because each check is a read of the API server.
	snapshots map[volume.SourceRef]protection
	// reserved counts, by source, the runs that are about to write a request to the log, or to send it.
	reserved map[volume.SourceRef]int
}

// protection is the finalizer of a snapshot. It is in doubt once a removal was begun, whose answer may be lost.
type protection struct {
	uid     types.UID
	inDoubt bool
}

func newProtectedSources() *protectedSources {
	return &protectedSources{seed: maphash.MakeSeed(), snapshots: map[volume.SourceRef]protection{},
		reserved: map[volume.SourceRef]int{}}
}

// reserve marks the source, if it is not the zero value, as in use until end is called.
func (s *protectedSources) reserve(of volume.SourceRef) (end func()) {
	of.UID = ""
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved[of]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.reserved[of]--; s.reserved[of] == 0 {
			delete(s.reserved, of)
		}
	}
}

func (s *protectedSources) isReserved(of volume.SourceRef) bool {
	of.UID = ""
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reserved[of] > 0
}

// turn waits for its turn to change the source's protection, and blocks others until end is called.
func (s *protectedSources) turn(of volume.SourceRef) (end func()) {
	turn := s.turnOf(of)
	turn.Lock()
	return turn.Unlock
}

func (s *protectedSources) turnOf(of volume.SourceRef) *sync.Mutex {
	of.UID = ""
	return &s.turns[maphash.Comparable(s.seed, of)%uint64(len(s.turns))]
}

func (s *protectedSources) snapshot(name volume.SourceRef) (is protection, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, found = s.snapshots[name]
	return is, found
}

func (s *protectedSources) add(of volume.SourceRef) {
	uid := of.UID
	of.UID = ""
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots[of] = protection{uid: uid}
}

// inherit records that an earlier process may have added the finalizer to the source of an entry.
func (s *protectedSources) inherit(of volume.SourceRef) {
	if of.Kind == volume.SourceSnapshot {
		s.add(of)
		s.doubt(of)
	}
}

// doubt is called before a removal of the source's finalizer.
func (s *protectedSources) doubt(of volume.SourceRef) {
	of.UID = ""
	s.mu.Lock()
	defer s.mu.Unlock()
	if is, found := s.snapshots[of]; found {
		is.inDoubt = true
		s.snapshots[of] = is
	}
}

func (s *protectedSources) remove(of volume.SourceRef) {
	of.UID = ""
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.snapshots, of)
}

// cloneChanged queues sources that may have become free: the claim itself if it is a terminating source, and the source
// of the claim.
func (p *Controller) cloneChanged(claim *v1.PersistentVolumeClaim) {
	if caches.IsTerminatingSource(claim) {
		p.sources.Add(volume.SourceRef{Kind: volume.SourceClaim, Namespace: claim.Namespace, Name: claim.Name})
	}
	p.wakeSource(request.SourceOf(claim))
}

// wakeSource queues a source that may not be in use any more.
func (p *Controller) wakeSource(of volume.SourceRef) {
	of.UID = ""
	if p.cfg.FinishOnly {
		return // without claims the other users of a source are unknown, and it may not be written
	}
	switch of.Kind {
	case volume.SourceClaim:
		p.sources.Add(of)
	case volume.SourceSnapshot:
		if _, found := p.protected.snapshot(of); found {
			p.sources.Add(of)
		}
	case volume.SourceNone:
	}
}

// freeSource ends the protection of a source once no volume is being created from it.
func (p *Controller) freeSource(ctx context.Context, of volume.SourceRef) controller.Result {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	free := p.freeClaim
	if of.Kind == volume.SourceSnapshot {
		free = p.freeSnapshot
	}
	if err := free(ctx, of); err != nil && !errors.Is(err, kube.ErrGone) {
		klog.FromContext(ctx).Info("The finalizer of a source that volumes were made from could not be removed; it is "+
			"tried again",
			"kind", of.Kind, "source", klog.KRef(of.Namespace, of.Name), "err", err)
		return p.retries().Retry()
	}
	return controller.Done()
}

// freeClaim removes the finalizer from a terminating claim of this driver. Other claims keep it, so that no new clone
// is overtaken: the API server adds no finalizer to a terminating object.
func (p *Controller) freeClaim(ctx context.Context, of volume.SourceRef) error {
	source, found := p.claims.Get(of.Namespace + "/" + of.Name)
	if !found || p.at(source) == provision.NodeElsewhere || !caches.IsTerminatingSource(source) {
		return nil
	}
	if driver, err := p.otherDriver(ctx, source); err != nil {
		return err
	} else if driver != "" {
		klog.FromContext(ctx).V(4).Info("A claim that was cloned keeps its finalizer", "claim",
			klog.KRef(of.Namespace, of.Name), "reason", "OtherDriver", "driver", driver)
		return nil
	}
	of.UID = source.UID
	_, err := p.IfUnused(ctx, of, func(ctx context.Context) error { return p.cluster.freeSource(ctx, of) })
	return err
}

// otherDriver returns the driver of a claim's volume if it is not this one: only its provisioner knows the clones in
// flight, and removes the finalizer, at the latest with --release-finalizers when it is uninstalled. A claim without a
// PV, or with one of no CSI driver, has no volume that the finalizer could protect.
func (p *Controller) otherDriver(ctx context.Context, source *v1.PersistentVolumeClaim) (string, error) {
	name, own := source.Spec.VolumeName, p.names[0]
	if pv, shown := p.volumes.Get(name); name == "" || shown && pv.Driver == own {
		return "", nil
	}
	pv, err := p.cluster.readPV(ctx, name)
	if err != nil || pv == nil {
		return "", err
	}
	if driver := volume.Of(pv).Driver; driver != own {
		return driver, nil // an in-tree volume has the driver that replaces its plugin
	}
	return "", nil
}

// freeSnapshot removes the finalizer of a snapshot that this process has protected, whether or not the snapshot is
// being deleted. Once this program is uninstalled, no other would remove it, and the snapshot could not be deleted.
func (p *Controller) freeSnapshot(ctx context.Context, of volume.SourceRef) error {
	is, found := p.protected.snapshot(of)
	if !found {
		return nil
	}
	of.UID = is.uid
	_, err := p.IfUnused(ctx, of, func(ctx context.Context) error {
		err := p.cluster.freeSource(ctx, of)
		if err == nil || errors.Is(err, kube.ErrGone) || apierrors.IsForbidden(err) {
			p.protected.remove(of) // a sweep finds a snapshot that could not be written
		}
		return err
	})
	if apierrors.IsForbidden(err) {
		klog.FromContext(ctx).V(2).Info("VolumeSnapshots may not be updated, so a finalizer stays on one", "snapshot",
			klog.KRef(of.Namespace, of.Name), "err", err)
		return nil
	}
	return err
}

// IfUnused calls do if no volume is being created from the source, and lets none begin until do returns. It returns
// false if the source is in use or Run does not work. It returns an error, too, if the lease is not held, or the
// in-flight log cannot be read; then an Event on the source names the problem.
func (p *Controller) IfUnused(ctx context.Context, of volume.SourceRef,
	do func(context.Context) error) (unused bool, err error) {
	defer p.protected.turn(of)()
	if !p.working() {
		return false, nil
	}
	if err := p.mayAct(); err != nil {
		return false, err
	}
	switch state, problem := p.inUse(of); state {
	case volume.InFlightSettled:
		p.recorder.Forget(of.UID)
		p.protected.doubt(of)
		return true, do(ctx)
	case volume.InFlightOpen:
		return false, nil
	case volume.InFlightUnreadable:
		p.recorder.Report(ctx, eventOnSource(of), provision.ReasonLogUnreadable, problem)
		return false, fmt.Errorf("a part of the in-flight log cannot be read: %s", problem)
	case volume.InFlightUnknown:
	}
	return false, errors.New("the in-flight log is not known")
}

// inUse returns whether a volume may be being created from the source by this process, according to the in-flight log,
// or by another provisioner, and the problem if a part of the log cannot be read. A source is reserved by the runs that
// need it.
func (p *Controller) inUse(of volume.SourceRef) (state volume.InFlight, problem string) {
	of.UID = ""
	if p.protected.isReserved(of) {
		return volume.InFlightOpen, ""
	}
	if slices.ContainsFunc(p.claims.From(of), func(c *v1.PersistentVolumeClaim) bool { return p.mayBeOthers(c, of) }) {
		return volume.InFlightOpen, ""
	}
	return p.log.SourceInFlight(of)
}

// mayBeOthers reports whether another process may be provisioning a claim from the source, which the log of this
// process does not show. Only the source's own driver can create a volume from it. Claims of other drivers count
// nevertheless, as they do for external-provisioner, but only in the source's namespace: no tenant keeps the source of
// another.
func (p *Controller) mayBeOthers(claim *v1.PersistentVolumeClaim, of volume.SourceRef) bool {
	return p.cfg.Local != nil || !p.ours(claim) && claim.Namespace == of.Namespace
}

// sourceOf returns the source of a request, the zero value for none.
func sourceOf(asked inflight.Request) volume.SourceRef {
	return ptr.Deref(asked.Source, volume.SourceRef{})
}

// holdSource protects the snapshot or claim that the volume is created from, and reserves it until the run ends: the
// log does not show yet that it is in use, or not any more if an operator settles the entry during the call. Once the
// driver may have been called, a request is repeated even if its source is gone or cannot be protected, because the
// driver judges that.
func (w *run) holdSource(ctx context.Context, asked inflight.Request) error {
	source, begun := sourceOf(asked), w.facts.Record.Begun()
	if source == (volume.SourceRef{}) {
		return nil
	}
	if _, found := w.reserved[source]; !found {
		w.reserved[source] = w.protected.reserve(source)
	}
	if w.track.holds == source.UID {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	if err := w.protectSource(ctx, source); err != nil {
		if !begun || errors.Is(err, leadership.ErrExpired) {
			return reasons.Because(reasons.Of(err, w.failure()), err)
		}
		klog.FromContext(ctx).Info("Repeating a request although the source of the volume cannot be protected",
			"claim", w.claimName(), "kind", source.Kind, "source", klog.KRef(source.Namespace, source.Name), "err", err)
	}
	w.track.holds = source.UID
	return nil
}

// protectSource adds the finalizer to a source, unless it is a snapshot that is already protected. A snapshot that may
// not be written is restored without the finalizer, as provisioners did before it existed. protectSource takes the
// source's turn: on a terminating claim, a patch that adds an existing finalizer changes no field, and succeeds while
// the finalizer is being removed.
func (p *Controller) protectSource(ctx context.Context, source volume.SourceRef) error {
	defer p.protected.turn(source)()
	if err := p.mayAct(); err != nil {
		return err
	}
	if source.Kind != volume.SourceSnapshot {
		return p.cluster.holdSource(ctx, source)
	}
	name := source
	name.UID = ""
	if is, found := p.protected.snapshot(name); found && is == (protection{uid: source.UID}) {
		return nil
	}
	err := p.cluster.holdSource(ctx, source)
	switch {
	case apierrors.IsForbidden(err):
		klog.FromContext(ctx).V(2).Info("VolumeSnapshots may not be updated: a volume is restored from one without the "+
			"finalizer that keeps it",
			"snapshot", klog.KRef(source.Namespace, source.Name), "err", err)
		return nil
	case err == nil:
		p.protected.add(source)
	}
	return err
}
