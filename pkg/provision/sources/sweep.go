package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// SnapshotProtector manages the finalizer that keeps VolumeSnapshots while volumes are restored from them;
// snapshot.Reader is one. Implementations are safe for concurrent use.
type SnapshotProtector interface {
	// AddFinalizer adds request.SnapshotFinalizer to the snapshot with this name and UID.
	AddFinalizer(ctx context.Context, name types.NamespacedName, uid types.UID) error
	// RemoveFinalizer removes the finalizer, and succeeds if the finalizer or the snapshot does not exist.
	RemoveFinalizer(ctx context.Context, name types.NamespacedName, uid types.UID) error
	// EachProtected calls visit for every snapshot with the finalizer. Only its name, UID and deletion are set.
	EachProtected(ctx context.Context, visit func(request.Snapshot)) error
	// Read reads a snapshot live, with its content; nil if it does not exist.
	Read(ctx context.Context, name types.NamespacedName) (*request.Snapshot, error)
}

// sweepReason explains in logs why a sweep removes or keeps the finalizer of a VolumeSnapshot.
type sweepReason string

// Reasons to keep the finalizer, like the zero value.
const (
	// sweepNothing means that the snapshot is gone, or no longer has the finalizer.
	sweepNothing sweepReason = "Nothing"
	// sweepInUse means that a volume may be being restored from the snapshot.
	sweepInUse sweepReason = "InUse"
	// sweepOtherDriver means that the snapshot belongs to another driver, whose provisioner handles it.
	sweepOtherDriver sweepReason = "OtherDriver"
	// sweepDriverUnknown means that the snapshot is not bound to a content, which would name its driver.
	sweepDriverUnknown sweepReason = "DriverUnknown"
)

// Reasons to remove the finalizer.
const (
	// sweepOrphaned means that the snapshot belongs to this driver and no volume is being restored from it.
	sweepOrphaned sweepReason = "Orphaned"
	// sweepContentGone means that a terminating snapshot has no content, or lost it, so no volume can be restored from it
	// any more. external-snapshotter deletes the content while the finalizer is still present.
	sweepContentGone sweepReason = "ContentGone"
)

// sweepFacts are the facts about a VolumeSnapshot that had the finalizer in the list.
type sweepFacts struct {
	// Snapshot is the current VolumeSnapshot with its content, nil if it does not exist.
	Snapshot *request.Snapshot
	// UID is the UID of the snapshot in the list.
	UID types.UID
	// Driver is this driver's name.
	Driver string
	// InUse means that a volume may be being restored from the snapshot.
	InUse bool
}

// decideSweep is a pure function that reports whether to remove the finalizer.
func decideSweep(f sweepFacts) (remove bool, why sweepReason) {
	s := f.Snapshot
	switch {
	case s == nil || s.UID != f.UID || !s.Protected:
		return false, sweepNothing
	case f.InUse:
		return false, sweepInUse
	case !s.Bound() && s.Deleting:
		return true, sweepContentGone
	case !s.Bound():
		return false, sweepDriverUnknown
	case s.Content.Driver != f.Driver:
		return false, sweepOtherDriver
	}
	return true, sweepOrphaned
}

// Uses knows the sources in use; provision.Controller is one.
type Uses interface {
	// IfUnused calls do if no volume is being created from the source, and returns false otherwise, with an error if that
	// is unknown. The process begins no such volume until do returns.
	IfUnused(ctx context.Context, of volume.SourceRef, do func(context.Context) error) (unused bool, err error)
}

// SweeperConfig holds the settings of a Sweeper, and its zero value is usable.
type SweeperConfig struct {
	// Interval is the time between two sweeps. Default 5 minutes, as in external-provisioner 6.4
	// (--snapshot-orphan-sweep-interval).
	Interval time.Duration
	// Uses is the provisioner in this process, nil for none.
	Uses Uses
	// ReadClaims means that another program may provision for the driver. Claims are then read live, and each claim
	// without a volume counts as using its snapshot, as in external-provisioner. Without Uses it is always set.
	ReadClaims bool
	// Clock is replaced in tests, and defaults to the real clock.
	Clock clock.WithTicker
}

// Sweeper removes request.SnapshotFinalizer from VolumeSnapshots of one driver that no volume is being restored from.
// An external-provisioner, or a process that crashed, may have left the finalizer behind, and such snapshots could not
// be deleted otherwise. It does not change snapshots of other drivers.
type Sweeper struct {
	cfg       SweeperConfig
	driver    string
	snapshots SnapshotProtector
	core      corev1.CoreV1Interface
	access    authorizationclient.AuthorizationV1Interface
	stop      chan struct{}
	stopped   sync.Once
}

// NewSweeper returns a Sweeper for the snapshots of a driver on the cluster of config, which is copied.
func NewSweeper(config *rest.Config, driver string, snapshots SnapshotProtector, cfg SweeperConfig) (*Sweeper, error) {
	switch {
	case config == nil:
		return nil, errors.New("create a sweeper: nil rest.Config")
	case driver == "":
		return nil, errors.New("create a sweeper: the driver's name is empty")
	case snapshots == nil:
		return nil, errors.New("create a sweeper: nil SnapshotProtector")
	case cfg.Interval < 0:
		return nil, fmt.Errorf("create a sweeper: interval %v is negative", cfg.Interval)
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	return newSweeper(clients.Core, clients.Authorization, driver, snapshots, cfg), nil
}

func newSweeper(core corev1.CoreV1Interface, access authorizationclient.AuthorizationV1Interface, driver string,
	snapshots SnapshotProtector, cfg SweeperConfig) *Sweeper {
	cfg.Interval = cmp.Or(cfg.Interval, 5*time.Minute)
	cfg.Clock = settings.Clock(cfg.Clock)
	cfg.ReadClaims = cfg.ReadClaims || cfg.Uses == nil
	return &Sweeper{cfg: cfg, driver: driver, snapshots: snapshots, core: core, access: access, stop: make(chan struct{})}
}

// Watch waits until ctx ends, because a Sweeper has no caches.
func (s *Sweeper) Watch(ctx context.Context) { <-ctx.Done() }

// Synced returns true.
func (s *Sweeper) Synced() bool { return true }

// Stop makes Run return and begins no further sweep, but does not wait for it.
func (s *Sweeper) Stop() { s.stopped.Do(func() { close(s.stop) }) }

// Run sweeps immediately and then at each interval, until ctx ends or Stop; the leading replica calls it once.
func (s *Sweeper) Run(ctx context.Context) error {
	for {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("VolumeSnapshots could not be swept; the next sweep tries again", "after",
				s.cfg.Interval, "err", err)
		}
		timer := s.cfg.Clock.NewTimer(s.cfg.Interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-s.stop:
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// Sweep checks all VolumeSnapshots with the finalizer once. The error names the snapshots that could not be read or
// written; all others are done, unless the claims could not be read.
func (s *Sweeper) Sweep(ctx context.Context) error {
	var found []request.Snapshot
	if err := s.snapshots.EachProtected(ctx, func(o request.Snapshot) { found = append(found, o) }); err != nil ||
		len(found) == 0 {
		return err
	}
	uses := s.cfg.Uses
	if s.cfg.ReadClaims {
		uses = &liveUses{core: s.core, own: s.cfg.Uses, clock: s.cfg.Clock}
	}
	var errs []error
	for _, o := range found {
		if ctx.Err() != nil {
			break
		}
		err := s.sweep(ctx, o, uses)
		if errs = append(errs, err); errors.Is(err, errClaimsUnread) {
			break // each further one would need the same list
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// sweep checks one snapshot, and removes the finalizer if decideSweep decides so.
func (s *Sweeper) sweep(ctx context.Context, listed request.Snapshot, uses Uses) error {
	name := types.NamespacedName{Namespace: listed.Namespace, Name: listed.Name}
	facts := sweepFacts{UID: listed.UID, Driver: s.driver}
	err := bounded(ctx, func(ctx context.Context) (err error) {
		facts.Snapshot, err = s.snapshots.Read(ctx, name)
		return err
	})
	if err != nil {
		return err
	}
	if remove, why := decideSweep(facts); !remove {
		klog.FromContext(ctx).V(4).Info("A sweep leaves the finalizer of a VolumeSnapshot", "snapshot", name, "reason", why)
		return nil
	}
	of := volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: listed.Namespace, Name: listed.Name, UID: listed.UID}
	unused, err := uses.IfUnused(ctx, of, func(ctx context.Context) error {
		return bounded(ctx, func(ctx context.Context) error { return s.snapshots.RemoveFinalizer(ctx, name, listed.UID) })
	})
	facts.InUse = !unused
	_, why := decideSweep(facts)
	switch {
	case err != nil:
		return err
	case unused:
		klog.FromContext(ctx).Info("Removed the finalizer of a VolumeSnapshot that no volume is restored from", "snapshot",
			name, "reason", why)
	default:
		klog.FromContext(ctx).V(4).Info("A sweep leaves the finalizer of a VolumeSnapshot", "snapshot", name, "reason", why)
	}
	return nil
}

// bounded calls do with the time limit of one call.
func bounded(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	return do(ctx)
}

// Permissions returns the permissions that a Sweeper needs.
func (s *Sweeper) Permissions() []permission.Permission {
	const without = "VolumeSnapshots that a provisioner left with its finalizer cannot be deleted"
	var needed controller.Permissions
	needed.Add("snapshot.storage.k8s.io", "volumesnapshots", without, "list", "get", "update")
	needed.Add("snapshot.storage.k8s.io", "volumesnapshotcontents", without, "get")
	if s.cfg.ReadClaims {
		needed.Add("", "persistentvolumeclaims", without, "list")
	}
	return needed.All
}

// MissingPermissions returns the permissions that the API server does not grant; see [permission.Missing].
func (s *Sweeper) MissingPermissions(ctx context.Context) ([]permission.Permission, error) {
	return permission.Missing(ctx, s.access, s.Permissions())
}

var errClaimsUnread = errors.New("read the claims that may be restored from snapshots")

// liveUses has the sources of the claims that had no volume in the list of a time, and the uses that this process
// knows, nil for none: a volume may be restored for a claim that is gone.
type liveUses struct {
	core   corev1.CoreV1Interface
	own    Uses
	clock  clock.PassiveClock
	at     time.Time
	claims map[volume.SourceRef]bool
}

// readClaims reads the claims, unless the last list is as new as a live read has to be. It follows the list of the
// snapshots, so that it includes the users of their finalizers then.
func (u *liveUses) readClaims(ctx context.Context) error {
	if u.claims != nil && u.clock.Since(u.at) <= session.LiveFor {
		return nil
	}
	at, claims := u.clock.Now(), map[volume.SourceRef]bool{}
	err := kube.Each(ctx, "claims", metav1.ListOptions{}, u.core.PersistentVolumeClaims(metav1.NamespaceAll).List,
		func(claim *v1.PersistentVolumeClaim) {
			if claim.Spec.VolumeName == "" {
				claims[request.SourceOf(claim)] = true
			}
		})
	if err != nil {
		return fmt.Errorf("%w: %w", errClaimsUnread, err)
	}
	u.at, u.claims = at, claims
	return nil
}

// IfUnused calls do if no claim without a volume names the source, and this process does not use it.
func (u *liveUses) IfUnused(ctx context.Context, of volume.SourceRef, do func(context.Context) error) (bool, error) {
	if err := u.readClaims(ctx); err != nil {
		return false, err
	}
	name := of
	name.UID = ""
	switch {
	case u.claims[name]:
		return false, nil
	case u.own != nil:
		return u.own.IfUnused(ctx, of, do)
	}
	return true, do(ctx)
}

// ReleaseSnapshots removes request.SnapshotFinalizer from all VolumeSnapshots of the driver, and from terminating ones
// whose content is gone, and returns the number of changed snapshots. It is for the removal of csi-reclaimer, when no
// program provisions for the driver, so it does not check for restores in progress, except by keep: a volume that stays
// in flight needs its source. The error names the snapshots that could not be read or written; all others are done.
func ReleaseSnapshots(ctx context.Context, driver string, snapshots SnapshotProtector,
	keep func(volume.SourceRef) bool) (released int, err error) {
	var found []request.Snapshot
	if err := snapshots.EachProtected(ctx, func(o request.Snapshot) { found = append(found, o) }); err != nil {
		return 0, err
	}
	var errs []error
	for _, o := range found {
		name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		now, err := snapshots.Read(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if remove, _ := decideSweep(sweepFacts{Snapshot: now, UID: o.UID, Driver: driver}); !remove ||
			keep(volume.SourceRef{Kind: volume.SourceSnapshot, Namespace: o.Namespace, Name: o.Name, UID: o.UID}) {
			continue
		}
		if err := snapshots.RemoveFinalizer(ctx, name, o.UID); err != nil {
			errs = append(errs, err)
			continue
		}
		released++
	}
	return released, errors.Join(errs...)
}

// ReleaseClonedClaims removes request.CloningFinalizer from all claims whose volume is the driver's, and returns the
// number of changed claims. Like ReleaseSnapshots it is for the removal of csi-reclaimer, and asks keep. It does not
// change a claim whose PV does not exist, because its driver is unknown. The error names the claims that could not be
// read or written; all others are done.
func ReleaseClonedClaims(ctx context.Context, core corev1.CoreV1Interface, driver string,
	keep func(volume.SourceRef) bool) (released int, err error) {
	var cloned []v1.PersistentVolumeClaim
	err = kube.Each(ctx, "claims", metav1.ListOptions{}, core.PersistentVolumeClaims(metav1.NamespaceAll).List,
		func(claim *v1.PersistentVolumeClaim) {
			if slices.Contains(claim.Finalizers, request.CloningFinalizer) && claim.Spec.VolumeName != "" {
				cloned = append(cloned, *claim)
			}
		})
	errs := []error{err}
	for i := range cloned {
		done, err := releaseClonedClaim(ctx, core, driver, keep, &cloned[i])
		if done {
			released++
		}
		errs = append(errs, err)
	}
	return released, errors.Join(errs...)
}

func releaseClonedClaim(ctx context.Context, core corev1.CoreV1Interface, driver string,
	keep func(volume.SourceRef) bool, claim *v1.PersistentVolumeClaim) (done bool, err error) {
	pv, err := kube.Read(ctx, kube.PV, "", claim.Spec.VolumeName, core.PersistentVolumes().Get)
	if err != nil || pv == nil || volume.Of(pv).Driver != driver {
		return false, err
	}
	if keep(volume.SourceRef{Kind: volume.SourceClaim, Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}) {
		return false, nil
	}
	err = kube.ChangeClaimFinalizers(ctx, core.PersistentVolumeClaims(claim.Namespace), kube.FinalizerPatch{
		Name: claim.Name, UID: claim.UID, Remove: []string{request.CloningFinalizer}})
	if errors.Is(err, kube.ErrGone) {
		return false, nil
	}
	return err == nil, err
}
