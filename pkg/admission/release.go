package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// allDrivers has Release release every driver that is listed, or was when an earlier Release of allDrivers began and
// did not finish.
const allDrivers = "*"

const (
	// propagationTimeout is the longest time in which API servers observe that a driver was removed from a list.
	propagationTimeout = time.Minute
	// quietPeriod is the time for which no finalizer must have come back.
	quietPeriod = 5 * time.Second
	callTimeout = time.Minute
)

// ErrInUse means that a program that may need a driver's finalizers holds a Lease of the driver.
var ErrInUse = errors.New("csi-reclaimer or external-provisioner runs for the driver, and may need the finalizers")

// Released is the result of Release.
type Released struct {
	// Drivers are the drivers that no list has any more.
	Drivers []string
	// PVs is the number of PVs that lost their finalizers.
	PVs int
	// Abandoned names the terminating PVs among them, whose volumes stay in the storage system.
	Abandoned []string
	// InFlight are the volumes of the drivers that are in flight, which no program finishes once csi-reclaimer is gone;
	// their PVs keep their finalizers.
	InFlight []inflight.Located
	// Left names the PVs that still have a finalizer, or have it again because another program adds it.
	Left []string
}

type releaser struct {
	clients kube.Clients
	lists   driverLists
	clock   clock.Clock
	timeout time.Duration

	// inFlight are the drivers' entries in the in-flight log.
	inFlight []inflight.Located
	// seen holds the PVs whose finalizer was removed, in their earlier state.
	seen map[types.UID]*v1.PersistentVolume
}

// Release removes drivers, given by their names or as allDrivers, from the policies and webhooks that add
// csi-reclaimer's finalizers, like [RemoveDrivers], and then the finalizers from the drivers' PVs. A driver that is
// still listed would get each back in the write that removes it. Nothing is deleted, and the drivers' csi-reclaimer
// must not run at the same time.
//
// The finalizer of role owner stays on PVs of a driver that was listed for role companion alone, because it is
// external-provisioner's. Release fails before any change with ErrInUse while a program that may need a finalizer holds
// a driver's Lease.
//
// Every PV is read again until no finalizer was seen for some seconds, for a minute at most. A PV counts only if its
// finalizer is gone then.
func Release(ctx context.Context, config *rest.Config, drivers []string) (Released, error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return Released{}, err
	}
	r := newReleaser(clients, clock.RealClock{})
	out, err := r.run(ctx, drivers)
	if err != nil {
		return out, fmt.Errorf("release drivers: %w", err)
	}
	return out, nil
}

func newReleaser(clients kube.Clients, clock clock.Clock) *releaser {
	return &releaser{
		clients: clients, lists: driverLists{clients.Admission, callTimeout}, clock: clock, timeout: callTimeout,
		seen: map[types.UID]*v1.PersistentVolume{},
	}
}

func (r *releaser) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.timeout)
}

func (r *releaser) run(ctx context.Context, drivers []string) (out Released, err error) {
	if err := r.refuseHeld(ctx, drivers); err != nil {
		return out, err
	}
	removed, err := r.lists.remove(ctx, drivers)
	if err != nil {
		return out, err
	}
	out.Drivers = removed.Drivers
	gone := removal{drivers: removed.Drivers, listed: removed.listed, companions: removed.companions}
	if err := r.readLog(ctx, out.Drivers); err != nil {
		return out, err
	}
	out.InFlight = r.inFlight
	if out.Left, err = r.untilQuiet(ctx, gone); err != nil {
		return out, err
	}
	for _, pv := range r.seen {
		if slices.Contains(out.Left, pv.Name) {
			continue
		}
		out.PVs++
		if gone.abandons(pv) {
			out.Abandoned = append(out.Abandoned, pv.Name)
		}
	}
	slices.Sort(out.Abandoned)
	if len(out.Left)+len(out.InFlight) > 0 {
		return out, nil
	}
	return out, r.lists.forget(ctx, out.Drivers)
}

// untilQuiet removes the finalizers until none has come back for quietPeriod, and returns the names of the PVs that
// still got one at the end of propagationTimeout.
func (r *releaser) untilQuiet(ctx context.Context, gone removal) (left []string, _ error) {
	for until := (time.Time{}); ; {
		again, err := r.pass(ctx, gone)
		if err != nil {
			return nil, err
		}
		if until.IsZero() { // the first pass has written to all PVs, which shows nothing about their return
			until = r.clock.Now().Add(propagationTimeout)
		}
		quiet := len(again) == 0 && len(left) == 0
		left = again
		if quiet || !r.clock.Now().Before(until) {
			return left, nil
		}
		if !controller.Pause(ctx, r.clock, quietPeriod) {
			return nil, ctx.Err()
		}
	}
}

// refuseHeld fails while a program that may need the finalizers of one of the drivers holds its Lease.
func (r *releaser) refuseHeld(ctx context.Context, asked []string) error {
	all, err := r.lists.read(ctx)
	if err != nil {
		return err
	}
	drivers := driversToRemove(all, asked)
	companions := companionsAmong(drivers, all)
	var errs []error
	err = kube.Each(ctx, "the Leases of drivers", metav1.ListOptions{},
		r.clients.Coordination.Leases(metav1.NamespaceAll).List, func(l *coordinationv1.Lease) {
			d := driverOf(l, drivers, companions)
			if d == "" || !objects.IsHeld(*l, r.clock.Now()) {
				return
			}
			errs = append(errs, fmt.Errorf("driver %s: %w: %s holds Lease %s/%s. Stop all its replicas (kubectl scale "+
				"--replicas=0), and run the command again. If external-provisioner 5.0 or newer is to stay, release other "+
				"drivers by name, and remove this one from csi-reclaimer's policies and webhooks (protectedDrivers)",
				d, ErrInUse, leadership.HostOf(*l.Spec.HolderIdentity), l.Namespace, l.Name))
		})
	if err != nil {
		return err
	}
	return errors.Join(errs...)
}

// driverOf is a pure function that returns the driver whose finalizers the holder of a Lease may need, empty for none.
// The external-provisioner beside a companion needs no finalizer that is removed.
func driverOf(l *coordinationv1.Lease, drivers, companions []string) string {
	for _, d := range drivers {
		names := objects.ElectionLeases(d)
		if slices.Contains(companions, d) {
			names = names[1:]
		}
		if slices.Contains(names, l.Name) || l.Labels[objects.DriverLabel] == d {
			return d
		}
	}
	return ""
}

// readLog reads the drivers' volumes in flight; while these are unknown no finalizer is removed, because a call in
// flight may create the volume of a PV again.
func (r *releaser) readLog(ctx context.Context, drivers []string) error {
	asked := func(driver string) bool { return slices.Contains(drivers, driver) }
	shards, err := inflight.List(ctx, r.clients.Coordination, metav1.ListOptions{}, asked)
	if err != nil {
		return err
	}
	entries, problems := inflight.Locate(shards, asked)
	for _, p := range problems {
		if p.HidesEntries() {
			return fmt.Errorf("read the in-flight log: %s; %s", p.Problem, inflight.IfForged)
		}
	}
	r.inFlight = entries
	return nil
}

// pass removes the finalizers once, and returns the names of the PVs that had one.
func (r *releaser) pass(ctx context.Context, gone removal) (names []string, err error) {
	var todo []*v1.PersistentVolume
	err = kube.Each(ctx, "PVs", metav1.ListOptions{}, r.clients.Core.PersistentVolumes().List,
		func(pv *v1.PersistentVolume) {
			kept := slices.ContainsFunc(r.inFlight, func(e inflight.Located) bool { return e.Of(pv.Name) })
			if !kept && len(gone.finalizers(pv)) > 0 {
				todo = append(todo, pv)
			}
		})
	if err != nil {
		return nil, err
	}
	for _, pv := range todo {
		names = append(names, pv.Name)
		if err := r.removeFinalizers(ctx, pv, gone.finalizers(pv)); err != nil {
			return nil, err
		}
		r.seen[pv.UID] = pv
	}
	return names, nil
}

// removeFinalizers removes finalizers from a PV that has not changed since it was read. A PV that is gone has none, and
// a changed PV, or one that got them again in the write, is left to the next pass.
func (r *releaser) removeFinalizers(ctx context.Context, pv *v1.PersistentVolume, drop []string) error {
	ctx, cancel := r.withTimeout(ctx)
	defer cancel()
	_, err := kube.PatchFinalizers(ctx, r.clients.Core.PersistentVolumes(), kube.FinalizerPatch{
		Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion, Remove: drop,
	})
	if errors.Is(err, kube.ErrGone) || errors.Is(err, kube.ErrChanged) || errors.Is(err, kube.ErrUndone) {
		return nil
	}
	return err
}

// removal holds the drivers that were removed from the lists, and the drivers that are still listed.
type removal struct {
	drivers []string
	listed  Drivers
	// companions are the removed drivers whose PVs keep the finalizer of role owner.
	companions []string
}

// abandons is a pure function that reports whether nothing deletes the volume of a PV that loses its finalizers.
func (r removal) abandons(pv *v1.PersistentVolume) bool {
	kept := slices.Contains(pv.Finalizers, volume.Finalizer) && !slices.Contains(r.finalizers(pv), volume.Finalizer)
	return pv.DeletionTimestamp != nil && pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete &&
		pv.Spec.ClaimRef != nil && !kept
}

// finalizers is a pure function that returns the finalizers of a PV to remove with the removed drivers, except those
// that another listed driver of the PV needs, and that of role owner if all its removed drivers are companions.
func (r removal) finalizers(pv *v1.PersistentVolume) (drop []string) {
	of := slices.DeleteFunc(driversOf(pv), func(d string) bool { return !slices.Contains(r.drivers, d) })
	if len(of) == 0 {
		return nil
	}
	keep := r.listed.finalizersOf(pv)
	if len(except(of, r.companions)) == 0 {
		keep = append(keep, volume.Finalizer)
	}
	for _, f := range []string{volume.Finalizer, volume.CompanionFinalizer} {
		if slices.Contains(pv.Finalizers, f) && !slices.Contains(keep, f) {
			drop = append(drop, f)
		}
	}
	return drop
}
