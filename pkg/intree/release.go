package intree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// releaseTries bounds how often one PV is tried that others change meanwhile.
const releaseTries = 10

// Released is what Release did.
type Released struct {
	// PVs is from how many PVs a finalizer of ours was removed, and Twins how many twins were deleted.
	PVs, Twins int
	// Abandoned are the names of those of the PVs that are terminating: they are deleted now, or with their claim, and
	// their volumes stay in the storage system.
	Abandoned []string
	// Left are the names of PVs that still have the finalizer: another program added it, or deletes the volume, or it is
	// not known who added it.
	Left []string
}

// Release removes every finalizer that this package has added to in-tree PVs, once, and ends all twins; no volume is
// deleted. A finalizer that another program added stays. It is the first step of uninstalling volume-guard: no
// Controller may run meanwhile, and it is called instead of Run.
//
// A PV counts only when the API server has answered that the finalizer is gone. All PVs are tried, and
// the error names those that were not released.
func (c *Controller) Release(ctx context.Context) (out Released, err error) {
	err = c.watched(ctx, func(ctx context.Context) error {
		out, err = c.releaseAll(ctx)
		return err
	})
	if err != nil {
		return out, fmt.Errorf("release in-tree PVs: %w", err)
	}
	return out, nil
}

// watched does something while the cache is kept up to date, once it is filled.
func (c *Controller) watched(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() { c.Watch(ctx) })
	if err := c.WaitSynced(ctx); err != nil {
		return err
	}
	return do(ctx)
}

// releaseAll releases the PVs first, each with its twin. A twin that is left is then released by itself.
func (c *Controller) releaseAll(ctx context.Context) (Released, error) {
	var originals, second []string
	c.observer.pvs.Each(func(pv *intree.PV) {
		switch {
		case pv.Provisioned():
			originals = append(originals, pv.Name)
		case pv.TwinOf != "":
			second = append(second, pv.Name)
		}
	})
	var (
		mu   sync.Mutex
		out  Released
		errs []error
	)
	for _, names := range [][]string{originals, second} {
		workers := controller.NewWorkers(c.cfg.Workers)
		for _, name := range names {
			workers.Go(func() error {
				one, err := c.releaseOne(ctx, name)
				mu.Lock()
				defer mu.Unlock()
				out.add(one)
				return err
			})
		}
		errs = append(errs, workers.Wait())
	}
	slices.Sort(out.Abandoned)
	slices.Sort(out.Left)
	return out, errors.Join(errs...)
}

func (r *Released) add(one Released) {
	r.PVs += one.PVs
	r.Twins += one.Twins
	r.Abandoned = append(r.Abandoned, one.Abandoned...)
	r.Left = append(r.Left, one.Left...)
}

// releaseOne releases the PV of a name. What changed meanwhile is read again.
func (c *Controller) releaseOne(ctx context.Context, name string) (out Released, err error) {
	for range releaseTries {
		facts, found, err := c.readFacts(ctx, name)
		if err != nil || !found {
			return out, err
		}
		s := intree.Begin(facts, c.cfg.rules(), c.cfg.Clock.Now())
		err = c.carryOut(ctx, &s)
		if s.Facts.Twin.Terminating && !facts.Twin.Terminating {
			out.Twins++
		}
		if s.End == session.Conflicted || s.End == session.Written && s.Decision.Action == intree.RemoveTwinFinalizer {
			continue
		}
		out.record(name, facts.PV, s.End, err)
		return out, err
	}
	return out, fmt.Errorf("PV %q: it changed %d times while its finalizer was to be removed", name, releaseTries)
}

// record counts how the session of a PV ended; pv is the PV before the session, err the session's error.
func (r *Released) record(name string, pv intree.PV, end session.End, err error) {
	switch {
	case end == session.Written:
		r.PVs = 1
		if pv.Terminating && pv.Policy == volume.PolicyDelete && pv.Claimed() {
			r.Abandoned = []string{name}
		}
	case err == nil && end != session.ObjectGone && pv.UID != "" && pv.Writer != intree.WriterNone:
		r.Left = []string{name}
	}
}

// readFacts reads a PV and its twin, or a twin alone, from the API server.
func (c *Controller) readFacts(ctx context.Context, name string) (f intree.Facts, found bool, err error) {
	f = intree.Facts{RemovingFinalizers: true}
	f.Other, _ = c.observer.other()
	o, found, err := c.cluster.readPV(ctx, name)
	if err != nil || !found {
		return f, false, err
	}
	pv := intree.Of(o)
	if pv.TwinOf != "" {
		f.Twin, f.TwinFound = pv, true
		return f, true, nil
	}
	f.PV = pv
	if o, f.TwinFound, err = c.cluster.readPV(ctx, TwinName(name)); err != nil {
		return f, false, err
	}
	if f.TwinFound {
		f.Twin = intree.Of(o)
	}
	return f, true, nil
}
