package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/preflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
)

// keepOut is how long replicas that are still there are kept from beginning anew after a release: enough to
// remove them.
const keepOut = 10 * time.Minute

// release takes what the controllers have put on objects off again, and prints what came of it. Replicas
// that run are stopped by taking their Lease.
func (o *options) release(ctx context.Context, config *rest.Config, stdout io.Writer) error {
	all, err := o.guards(config, nil, nil)
	if err != nil {
		return err
	}
	missing, err := preflight.Missing(ctx, all.askers())
	if err != nil {
		return err
	}
	for _, right := range missing {
		err = errors.Join(err, errors.New(right.String()))
	}
	if err != nil {
		return fmt.Errorf("release finalizers: %w", err)
	}
	elector, err := o.leader.Elector(config, name, false)
	if err != nil {
		return err
	}
	out := printer{stdout}
	err = elector.Seize(ctx, keepOut, func(ctx context.Context) error {
		var errs []error
		for _, one := range all {
			if c, is := one.(*intree.Controller); is {
				done, err := c.Release(ctx)
				errs = append(errs, err, out.inTree(done))
			}
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

func (p printer) inTree(done intree.Released) error {
	errs := []error{p.say("%d in-tree PVs were released, %d twins were deleted", done.PVs, done.Twins)}
	for _, pv := range done.Abandoned {
		errs = append(errs, p.say("PV %s was being deleted: its volume stays in the storage system", pv))
	}
	if len(done.Left) > 0 {
		errs = append(errs, p.say("%d in-tree PVs keep the finalizer %s, for another program put it on or has their deletion in hand: %s",
			len(done.Left), intree.Finalizer, some(done.Left)))
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
