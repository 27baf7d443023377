package intree

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// releaseTries bounds how often one PV is tried that changes under our hands.
const releaseTries = 10

// Released is what Release did.
type Released struct {
	// PVs is how many PVs carry no finalizer of ours any more that did before, and Twins how many
	// twins were deleted.
	PVs, Twins int
	// Abandoned are the names of those of the PVs that were being deleted: they go now, or with
	// their claim, and their volumes stay in the storage system.
	Abandoned []string
	// Left are the names of PVs that still carry the finalizer: another program put it on, or has
	// the PV's deletion in hand, or it cannot be told who put it on.
	Left []string
}

// Release takes off every finalizer that this package has put on in-tree PVs, once, and ends all twins;
// no volume is deleted. A finalizer that another program put on stays. It is the first step of removing
// volume-guard: no Controller may run meanwhile, and it is called instead of Run.
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

// releaseAll releases the PVs first: each takes its twin with it. What is a twin still is then looked at
// by itself.
func (c *Controller) releaseAll(ctx context.Context) (Released, error) {
	var originals, twins []string
	c.observer.pvs.Each(func(pv *PV) {
		switch {
		case pv.provisioned():
			originals = append(originals, pv.Name)
		case pv.TwinOf != "":
			twins = append(twins, pv.Name)
		}
	})
	var (
		mu   sync.Mutex
		out  Released
		errs []error
	)
	for _, names := range [][]string{originals, twins} {
		var workers errgroup.Group
		workers.SetLimit(c.cfg.Workers)
		for _, name := range names {
			workers.Go(func() error {
				one, err := c.releaseOne(ctx, name)
				mu.Lock()
				defer mu.Unlock()
				out.add(one)
				errs = append(errs, err)
				return nil
			})
		}
		_ = workers.Wait() // the errors are in errs
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
		w := &run{Controller: c, facts: facts}
		_, err = w.carryOut(ctx)
		if w.facts.Twin.Terminating && !facts.Twin.Terminating {
			out.Twins++
		}
		switch pv := facts.PV; {
		case errors.Is(err, kube.ErrChanged):
			continue
		case errors.Is(err, kube.ErrGone):
			return out, nil
		case errors.Is(err, errEnded):
			out.PVs = 1
			if pv.Terminating && pv.Policy == volume.PolicyDelete && pv.claimed() {
				out.Abandoned = []string{name}
			}
			return out, nil
		case err == nil && pv.UID != "" && pv.Guard != WriterNone:
			out.Left = []string{name}
		}
		return out, err
	}
	return out, fmt.Errorf("PV %q: it changed %d times while its finalizer was to be taken off", name, releaseTries)
}

// readFacts reads a PV and its twin, or a twin alone, from the API server.
func (c *Controller) readFacts(ctx context.Context, name string) (s Snapshot, found bool, err error) {
	s = Snapshot{Manages: c.observer.notes.manages(), Releasing: true}
	o, found, err := c.cluster.readPV(ctx, name)
	if err != nil || !found {
		return s, false, err
	}
	pv := PVOf(o)
	if pv.TwinOf != "" {
		s.Twin, s.TwinFound = pv, true
		return s, true, nil
	}
	s.PV = pv
	if o, s.TwinFound, err = c.cluster.readPV(ctx, TwinName(name)); err != nil {
		return s, false, err
	}
	if s.TwinFound {
		s.Twin = PVOf(o)
	}
	return s, true, nil
}
