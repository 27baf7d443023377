package sources

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
)

// SnapshotProtector changes and finds the finalizer that keeps VolumeSnapshots while volumes are restored from
// them; snapshot.Reader is one. It is safe for concurrent use.
type SnapshotProtector interface {
	// AddFinalizer adds request.SnapshotFinalizer to the snapshot with this name and UID.
	AddFinalizer(ctx context.Context, name types.NamespacedName, uid types.UID) error
	// RemoveFinalizer removes it; that it is not there, or the snapshot is gone, is no error.
	RemoveFinalizer(ctx context.Context, name types.NamespacedName, uid types.UID) error
	// EachProtected calls visit for every snapshot that has it. Of these only name, UID and deletion are filled in.
	EachProtected(ctx context.Context, visit func(request.Snapshot)) error
	// Read reads one live, with its content; nil if it does not exist.
	Read(ctx context.Context, name types.NamespacedName) (*request.Snapshot, error)
}

// apiTimeout bounds one call to the API server.
const apiTimeout = 30 * time.Second

// sweepReason says why a sweep removes the finalizer of a VolumeSnapshot, or leaves it. It is meant for logs.
type sweepReason string

// Reasons to leave the finalizer. The zero value is one, too.
const (
	// sweepNothing: the snapshot is gone, or does not have the finalizer any more.
	sweepNothing sweepReason = "Nothing"
	// sweepInUse: a volume may be being restored from the snapshot.
	sweepInUse sweepReason = "InUse"
	// sweepOtherDriver: the snapshot is another driver's, whose provisioner answers for it.
	sweepOtherDriver sweepReason = "OtherDriver"
	// sweepDriverUnknown: the snapshot is not bound to a content, which would name its driver.
	sweepDriverUnknown sweepReason = "DriverUnknown"
)

// Reasons to remove it.
const (
	// sweepOrphaned: the snapshot is this driver's, and no volume is being restored from it.
	sweepOrphaned sweepReason = "Orphaned"
	// sweepContentGone: the snapshot is being deleted, and its content is gone already, or it never had one.
	// No volume can be restored from it any more. external-snapshotter deletes the content while the
	// finalizer is still there.
	sweepContentGone sweepReason = "ContentGone"
)

// sweepFacts are what is known of a VolumeSnapshot that had the finalizer when they were listed.
type sweepFacts struct {
	// Snapshot is the VolumeSnapshot with its content as they are now, nil if it does not exist.
	Snapshot *request.Snapshot
	// UID is that of the snapshot in the list.
	UID types.UID
	// Driver is this driver's name.
	Driver string
	// InUse: a volume may be being restored from it.
	InUse bool
}

// decideSweep reports whether the finalizer is to be removed. It is a pure function.
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

// Uses knows what volumes are being made from; provision.Controller is one.
type Uses interface {
	// IfUnused calls do if no volume is being made from the source, and returns false otherwise. None of
	// this process begins until do returns.
	IfUnused(ctx context.Context, of request.SourceRef, do func(context.Context) error) (unused bool, err error)
}

// SweeperConfig holds the settings of a Sweeper. The zero value is usable.
type SweeperConfig struct {
	// Interval is the time between two sweeps. Default 5 minutes, as in external-provisioner 6.4
	// (--snapshot-orphan-sweep-interval).
	Interval time.Duration
	// Uses is what creates volumes in this process. Default: nothing, so that claims are read live, and each that
	// has no volume counts for the snapshot that it names, as in external-provisioner.
	Uses Uses
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

// Sweeper removes request.SnapshotFinalizer from VolumeSnapshots of one driver that no volume is being restored
// from: those that an external-provisioner, or a process that crashed, left behind, and that could not be
// deleted otherwise. Snapshots of other drivers are left alone.
type Sweeper struct {
	cfg       SweeperConfig
	driver    string
	snapshots SnapshotProtector
	core      corev1.CoreV1Interface
	access    authorizationclient.AuthorizationV1Interface
	stop      chan struct{}
	stopped   sync.Once
}

// NewSweeper returns a Sweeper for the snapshots of a driver on the cluster that config describes, which is copied.
func NewSweeper(config *rest.Config, driver string, snapshots SnapshotProtector, cfg SweeperConfig) (*Sweeper, error) {
	switch {
	case config == nil:
		return nil, errors.New("create a sweeper: no cluster is given")
	case driver == "":
		return nil, errors.New("create a sweeper: the driver's name is empty")
	case snapshots == nil:
		return nil, errors.New("create a sweeper: no reader of snapshots is given")
	case cfg.Interval < 0:
		return nil, fmt.Errorf("create a sweeper: interval %v is negative", cfg.Interval)
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	access, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for access reviews: %w", err)
	}
	return newSweeper(clients.Core, access, driver, snapshots, cfg), nil
}

func newSweeper(core corev1.CoreV1Interface, access authorizationclient.AuthorizationV1Interface, driver string,
	snapshots SnapshotProtector, cfg SweeperConfig) *Sweeper {
	if cfg.Interval == 0 {
		cfg.Interval = 5 * time.Minute
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Sweeper{cfg: cfg, driver: driver, snapshots: snapshots, core: core, access: access, stop: make(chan struct{})}
}

// Watch waits until ctx ends: a Sweeper has no caches.
func (s *Sweeper) Watch(ctx context.Context) { <-ctx.Done() }

// Synced returns true.
func (s *Sweeper) Synced() bool { return true }

// Stop begins no further sweep, and has Run return. It does not wait.
func (s *Sweeper) Stop() { s.stopped.Do(func() { close(s.stop) }) }

// Run sweeps at once and then at each interval, until ctx ends or Stop. It is called once, by the one replica
// that leads.
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

// Sweep looks once at all VolumeSnapshots that have the finalizer. The error names those that could not be
// judged or written; the others are done.
func (s *Sweeper) Sweep(ctx context.Context) error {
	var found []request.Snapshot
	if err := s.snapshots.EachProtected(ctx, func(o request.Snapshot) { found = append(found, o) }); err != nil ||
		len(found) == 0 {
		return err
	}
	uses := s.cfg.Uses
	if uses == nil {
		// After the snapshots, so that each claim shows from which a finalizer that is in the list may be.
		live, err := readUses(ctx, s.core)
		if err != nil {
			return err
		}
		uses = live
	}
	var errs []error
	for _, o := range found {
		if ctx.Err() != nil {
			break
		}
		errs = append(errs, s.sweep(ctx, o, uses))
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// sweep looks at one snapshot, and removes the finalizer if it is to be removed.
func (s *Sweeper) sweep(ctx context.Context, listed request.Snapshot, uses Uses) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	name := types.NamespacedName{Namespace: listed.Namespace, Name: listed.Name}
	facts := sweepFacts{UID: listed.UID, Driver: s.driver}
	var err error
	if facts.Snapshot, err = s.snapshots.Read(ctx, name); err != nil {
		return err
	}
	if remove, why := decideSweep(facts); !remove {
		klog.FromContext(ctx).V(4).Info("A sweep leaves the finalizer of a VolumeSnapshot", "snapshot", name, "reason", why)
		return nil
	}
	of := request.SourceRef{Kind: request.SourceSnapshot, Namespace: listed.Namespace, Name: listed.Name, UID: listed.UID}
	unused, err := uses.IfUnused(ctx, of, func(ctx context.Context) error {
		return s.snapshots.RemoveFinalizer(ctx, name,
			listed.UID)
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

// Permissions are what a Sweeper needs to be allowed.
func (s *Sweeper) Permissions() []permission.Permission {
	const without = "VolumeSnapshots that a provisioner left with its finalizer cannot be deleted"
	rights := []permission.Permission{
		snapshot.Permission("volumesnapshots", "list", without), snapshot.Permission("volumesnapshots", "get", without),
		snapshot.Permission("volumesnapshots", "update", without),
		snapshot.Permission("volumesnapshotcontents", "get", without),
	}
	if s.cfg.Uses == nil {
		rights = append(rights, permission.Permission{Resource: "persistentvolumeclaims", Verb: "list", Without: without})
	}
	return rights
}

// MissingPermissions returns the permissions that the API server does not grant; see [permission.Missing].
func (s *Sweeper) MissingPermissions(ctx context.Context) ([]permission.Permission, error) {
	return permission.Missing(ctx, s.access, s.Permissions())
}

// liveUses are the sources of the claims that had no volume when they were listed.
type liveUses map[request.SourceRef]bool

func readUses(ctx context.Context, core corev1.CoreV1Interface) (liveUses, error) {
	uses := liveUses{}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return core.PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, o)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		claim, ok := o.(*v1.PersistentVolumeClaim)
		if !ok {
			return fmt.Errorf("got a %T", o)
		}
		if claim.Spec.VolumeName == "" {
			uses[request.SourceOf(claim)] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", err)
	}
	return uses, nil
}

// IfUnused calls do if no claim without a volume names the source.
func (u liveUses) IfUnused(ctx context.Context, of request.SourceRef, do func(context.Context) error) (bool, error) {
	of.UID = ""
	if u[of] {
		return false, nil
	}
	return true, do(ctx)
}
