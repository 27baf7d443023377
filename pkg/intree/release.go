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

// releaseTries bounds the tries for one PV that other clients keep changing.
const releaseTries = 10

// Released is the result of Release.
type Released struct {
	// PVs is the number of PVs whose finalizer was removed, and Twins the number of twins deleted.
	PVs, Twins int
	// Abandoned names the terminating PVs among them, which are deleted now, or with their claim, and their volumes stay
	// in the storage system.
	Abandoned []string
	// Left names the PVs that still have the finalizer, because another program added it or deletes the volume, or because
	// its writer is unknown.
	Left []string
}

// Release removes every finalizer that this package has added to in-tree PVs, once, and ends all twins. No volume is
// deleted, and a finalizer that another program added stays. Release is the first step of uninstalling volume-guard: it
// is called instead of Run, and no Controller may run at the same time. It fails with Config.DryRun.
//
// A PV counts only after the API server has confirmed the removal of its finalizer. Release tries all PVs, and the
// error names the failed ones.
func (c *Controller) Release(ctx context.Context) (Released, error) {
	return controller.Release(ctx, "release in-tree PVs", c.cfg.DryRun, c.release)
}

func (c *Controller) release(ctx context.Context) (out Released, err error) {
	err = controller.Watched(ctx, c.Controller, func(ctx context.Context) error {
		out, err = c.releaseAll(ctx)
		return err
	})
	return out, err
}

// releaseAll releases the PVs first, each with its twin, and then the remaining twins.
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
		errs = append(errs, controller.Each(ctx, c.cfg.Workers, names, func(name string) error {
			one, err := c.releaseOne(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			out.add(one)
			return err
		}))
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

// releaseOne releases the PV of a name, and reads it again after a conflict.
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

// record counts the End of a PV's session, where pv is the PV before the session and err the session's error.
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
	o, err := c.cluster.readPV(ctx, name)
	if err != nil || o == nil {
		return f, false, err
	}
	pv := intree.Of(o)
	if pv.TwinOf != "" {
		f.Twin, f.TwinFound = pv, true
		return f, true, nil
	}
	f.PV = pv
	twin, err := c.cluster.readPV(ctx, volume.TwinName(name))
	if f.TwinFound = twin != nil; f.TwinFound {
		f.Twin = intree.Of(twin)
	}
	return f, err == nil, err
}
