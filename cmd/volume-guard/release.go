package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/permissions"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
)

// keepOut is how long replicas that are still there are kept from beginning anew after a release: enough to
// remove them.
const keepOut = 10 * time.Minute

// release takes what the controllers have put on objects off again, and prints what came of it. Replicas
// that run are stopped by taking their Lease.
func (o *options) release(ctx context.Context, config *rest.Config, stdout io.Writer) error {
	clock := o.leader.Clock(false)
	acting := cluster.Acting(config, clock)
	all, err := o.guards(acting, nil, nil)
	if err != nil {
		return err
	}
	missing, err := permissions.Missing(ctx, all.askers())
	if err != nil {
		return err
	}
	for _, right := range missing {
		err = errors.Join(err, errors.New(right.String()))
	}
	if err != nil {
		return fmt.Errorf("release finalizers: %w", err)
	}
	elector, err := o.leader.Elector(config, name, clock)
	if err != nil {
		return err
	}
	out := printer{stdout}
	err = elector.Seize(ctx, keepOut, func(ctx context.Context) error {
		var errs []error
		for _, one := range all {
			switch c := one.(type) {
			case *intree.Controller:
				done, err := c.Release(ctx)
				errs = append(errs, err, out.inTree(done))
			case *pvc.Protector:
				done, err := c.Release(ctx)
				errs = append(errs, err, out.protected("claims", pvc.Finalizer, done))
			case *pv.Protector:
				done, err := c.Release(ctx)
				errs = append(errs, err, out.protected("PVs", pv.Finalizer, done))
			}
		}
		if len(o.releaseDrivers) > 0 {
			done, err := admission.Release(ctx, acting, o.releaseDrivers)
			errs = append(errs, err, out.drivers(done))
		}
		return errors.Join(errs...)
	})
	if err != nil || elector == nil {
		return err
	}
	return out.say("No replica of volume-guard begins anew for %v; to have one begin, delete the Lease %s/%s", keepOut, o.leader.Namespace(), name)
}

// printer tells what a release did.
type printer struct{ to io.Writer }

func (p printer) say(format string, args ...any) error {
	_, err := fmt.Fprintf(p.to, format+"\n", args...)
	return err
}

// abandoned names PVs that go without their volume.
func (p printer) abandoned(pvs []string) error {
	var errs []error
	for _, pv := range pvs {
		errs = append(errs, p.say("PV %s was being deleted: its volume stays in the storage system", pv))
	}
	return errors.Join(errs...)
}

func (p printer) drivers(done admission.Released) error {
	errs := []error{
		p.say("%d PVs of the drivers %s were released", done.PVs, strings.Join(done.Drivers, ", ")),
		p.abandoned(done.Abandoned),
	}
	for _, e := range done.InFlight {
		errs = append(errs, p.say("volume %s of driver %s, for claim %s/%s, is in flight: whether it exists is not known, and its PV keeps its finalizer (annotation %s of Lease %s)",
			e.Volume, e.Driver, e.Claim.Namespace, e.Claim.Name, e.Annotation, e.Lease))
	}
	if len(done.InFlight) > 0 {
		errs = append(errs, fmt.Errorf("%d volumes are in flight: run csi-reclaimer --release-finalizers in the driver's pod, which finishes them, or look for each in the storage system", len(done.InFlight)))
	}
	if len(done.Left) > 0 {
		errs = append(errs, fmt.Errorf("%d PVs have got their finalizer back: %s; stop csi-reclaimer beside their driver, or whatever else puts it on, and run again", len(done.Left), some(done.Left)))
	}
	return errors.Join(errs...)
}

func (p printer) inTree(done intree.Released) error {
	errs := []error{
		p.say("%d in-tree PVs were released, %d twins were deleted", done.PVs, done.Twins),
		p.abandoned(done.Abandoned),
	}
	if len(done.Left) > 0 {
		errs = append(errs, p.say("%d in-tree PVs keep the finalizer %s, for another program put it on or has their deletion in hand: %s",
			len(done.Left), intree.Finalizer, some(done.Left)))
	}
	return errors.Join(errs...)
}

// protected tells of the objects that Kubernetes' own finalizer protects.
func (p printer) protected(what, finalizer string, done inuse.Released) error {
	errs := []error{p.say("%d %s were released from %s", done.Objects, what, finalizer)}
	switch {
	case done.Others:
		errs = append(errs, p.say("%s stays on %d %s: another controller was seen to manage it", finalizer, len(done.Left), what))
	case len(done.Left) > 0:
		errs = append(errs, p.say("%d %s keep %s: %s", len(done.Left), what, finalizer, some(done.Left)))
	}
	if done.Objects > 0 && !done.Others {
		errs = append(errs, p.say("New %s get %s from the API server all the same, and nobody takes it off: have kube-controller-manager run its own controller for it, or the API server run without the admission plugin StorageObjectInUseProtection", what, finalizer))
	}
	return errors.Join(errs...)
}

// some names no more than the first of many.
func some(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + ", …"
}
