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
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// AllDrivers has Release release every driver that is listed, or was when a Release began before.
const AllDrivers = "*"

const (
	// propagationTimeout is how long API servers may take to observe that a driver was removed from a list.
	propagationTimeout = time.Minute
	// quietPeriod is how long no finalizer must have come back.
	quietPeriod = 5 * time.Second
	// pvPage is how many PVs one request asks for.
	pvPage = 500
	// callTimeout bounds one call to the API server.
	callTimeout = time.Minute
)

// Released is what Release did.
type Released struct {
	// Drivers are those that no list has.
	Drivers []string
	// PVs is how many PVs lost their finalizers.
	PVs int
	// Abandoned are the names of those that were terminating: their volumes stay in the storage system.
	Abandoned []string
	// InFlight are the volumes of the drivers that are in flight: nothing finishes them once csi-reclaimer is gone. PVs of
	// these keep their finalizers.
	InFlight []inflight.Located
	// Left are the names of those that carry one still, or again: another program adds it.
	Left []string
}

// releaser is one run of Release.
type releaser struct {
	clients kube.Clients
	lists   driverLists
	clock   clock.Clock
	timeout time.Duration

	// inFlight are the drivers' entries in the in-flight log.
	inFlight []inflight.Located
	// seen are the PVs whose finalizer was removed, and whether they were terminating.
	seen map[types.UID]*v1.PersistentVolume
}

// Release removes drivers from the policies and webhooks that add csi-reclaimer's finalizers, as [RemoveDrivers]
// does, and then the finalizers from the drivers' PVs: a driver that is still listed gets each back in the write
// that removes it. Nothing is deleted. Their csi-reclaimer must not run meanwhile. drivers are their names, or
// AllDrivers.
//
// Every PV is read again until no finalizer was seen for some seconds, a minute at most. A PV counts only when its
// finalizer is gone then.
func Release(ctx context.Context, config *rest.Config, drivers []string) (Released, error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return Released{}, err
	}
	admission, err := admissionclient.NewForConfig(config)
	if err != nil {
		return Released{}, fmt.Errorf("create a client for admissionregistration.k8s.io/v1: %w", err)
	}
	r := newReleaser(clients, admission, clock.RealClock{})
	out, err := r.run(ctx, drivers)
	if err != nil {
		return out, fmt.Errorf("release drivers: %w", err)
	}
	return out, nil
}

func newReleaser(clients kube.Clients, admission admissionclient.AdmissionregistrationV1Interface,
	clock clock.Clock) *releaser {
	return &releaser{
		clients: clients, lists: driverLists{admission, callTimeout}, clock: clock, timeout: callTimeout,
		seen: map[types.UID]*v1.PersistentVolume{},
	}
}

func (r *releaser) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.timeout)
}

func (r *releaser) run(ctx context.Context, drivers []string) (out Released, err error) {
	removed, err := r.lists.remove(ctx, drivers)
	if err != nil {
		return out, err
	}
	out.Drivers = removed.Drivers
	gone := removal{removed.Drivers, removed.listed}
	if err := r.readLog(ctx, out.Drivers); err != nil {
		return out, err
	}
	out.InFlight = r.inFlight
	var left []string
	for until := r.clock.Now().Add(propagationTimeout); ; {
		again, err := r.pass(ctx, gone)
		if err != nil {
			return out, err
		}
		quiet := len(again) == 0 && len(left) == 0
		left = again
		if quiet || !r.clock.Now().Before(until) {
			break
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-r.clock.After(quietPeriod):
		}
	}
	out.Left = left
	for _, pv := range r.seen {
		if slices.Contains(left, pv.Name) {
			continue
		}
		out.PVs++
		if pv.DeletionTimestamp != nil && pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete &&
			pv.Spec.ClaimRef != nil {
			out.Abandoned = append(out.Abandoned, pv.Name)
		}
	}
	slices.Sort(out.Abandoned)
	return out, nil
}

// readLog reads what is in flight for the drivers. While that is not known no finalizer is removed: the volume of a
// PV may be created anew by a call that is still under way.
func (r *releaser) readLog(ctx context.Context, drivers []string) error {
	var shards []coordinationv1.Lease
	options := metav1.ListOptions{Limit: pvPage, LabelSelector: inflight.LabelLog + "=true"}
	err := kube.EachPage(ctx, options, r.timeout, func(ctx context.Context, o metav1.ListOptions) (string, error) {
		page, err := r.clients.Coordination.Leases(metav1.NamespaceAll).List(ctx, o)
		if err != nil {
			return "", err
		}
		shards = append(shards, page.Items...)
		return page.Continue, nil
	})
	if err != nil {
		return fmt.Errorf("list the Leases of in-flight logs: %w", err)
	}
	entries, problems := inflight.Locate(shards)
	for _, p := range problems {
		if p.Driver == "" || slices.Contains(drivers, p.Driver) {
			return fmt.Errorf("read the in-flight log: %s", p.Problem)
		}
	}
	r.inFlight = slices.DeleteFunc(entries, func(e inflight.Located) bool { return !slices.Contains(drivers, e.Driver) })
	return nil
}

// pass removes the finalizers once, and returns the names of the PVs that had one.
func (r *releaser) pass(ctx context.Context, gone removal) (names []string, err error) {
	var todo []*v1.PersistentVolume
	err = kube.EachPage(ctx, metav1.ListOptions{Limit: pvPage}, r.timeout,
		func(ctx context.Context, o metav1.ListOptions) (string, error) {
			page, err := r.clients.Core.PersistentVolumes().List(ctx, o)
			if err != nil {
				return "", err
			}
			for i := range page.Items {
				pv := &page.Items[i]
				kept := slices.ContainsFunc(r.inFlight, func(e inflight.Located) bool { return e.Of(pv.Name) })
				if !kept && len(gone.finalizers(pv)) > 0 {
					todo = append(todo, pv)
				}
			}
			return page.Continue, nil
		})
	if err != nil {
		return nil, fmt.Errorf("list PVs: %w", err)
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

// removeFinalizers removes finalizers from a PV as it was read. A PV that is
// gone has none; one that changed is left to the next pass.
func (r *releaser) removeFinalizers(ctx context.Context, pv *v1.PersistentVolume, drop []string) error {
	ctx, cancel := r.withTimeout(ctx)
	defer cancel()
	_, err := kube.PatchFinalizers(ctx, r.clients.Core.PersistentVolumes(), kube.FinalizerPatch{
		Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion, Remove: drop,
	})
	if errors.Is(err, kube.ErrGone) || errors.Is(err, kube.ErrChanged) {
		return nil
	}
	return err
}

// removal is what was removed from the lists, and what they still have.
type removal struct {
	drivers []string
	listed  Drivers
}

// finalizers returns which finalizers of a PV go with the drivers that were removed: none that another driver of the
// PV, which is still listed, has on it. It is a pure function.
func (r removal) finalizers(pv *v1.PersistentVolume) (drop []string) {
	if !slices.ContainsFunc(driversOf(pv), func(d string) bool { return slices.Contains(r.drivers, d) }) {
		return nil
	}
	keep := r.listed.finalizersOf(pv)
	for _, f := range []string{volume.Finalizer, volume.CompanionFinalizer} {
		if slices.Contains(pv.Finalizers, f) && !slices.Contains(keep, f) {
			drop = append(drop, f)
		}
	}
	return drop
}
