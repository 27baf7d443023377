package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	// releaseTries bounds the tries for one PV that others change at the same time.
	releaseTries = 10
	// sayEvery is the interval of progress messages in the log.
	sayEvery = 5 * time.Second
)

// Released is the result of Release.
type Released struct {
	// PVs is the number of PVs from which our finalizers were removed.
	PVs int
	// Abandoned names the PVs among them that were being deleted: each goes now, or with its claim, and its volume stays
	// in the storage system.
	Abandoned []string
	// InFlight names the PVs that keep our finalizers, because the in-flight log has an entry for their volume, or may
	// have one.
	InFlight []string
}

// Release removes our finalizers from all PVs of the driver, once, and deletes nothing: it is the first step of
// removing csi-reclaimer. The Config's Mode must be ModeRelease, and no Controller that adds finalizers may run at the
// same time. Release is called instead of Run.
//
// A PV counts only when the API server has answered that the finalizer is gone. If an admission policy adds the
// finalizer again, Release stops after the first PV with ErrFinalizerRestored. Otherwise it tries all PVs, and the
// error names each PV that was not released.
func (r *Controller) Release(ctx context.Context) (Released, error) {
	if r.cfg.Mode != ModeRelease {
		return Released{}, errors.New("release finalizers: the Config's Mode is not ModeRelease")
	}
	ctx, stop := leadership.WhileHeld(ctx, r.cfg.Lease, r.cfg.Clock)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	watching.Go(func() { r.Watch(ctx) })
	if err := r.WaitSynced(ctx); err != nil {
		return Released{}, err
	}
	rules := r.engine.Rules
	var todo []volume.PV
	var inFlight []string
	r.pvs.Each(func(pv *volume.PV) {
		facts := reclaim.Facts{Rules: rules, Leading: true, PV: *pv, Log: r.moment(pv.Name).Log}
		switch d := reclaim.Decide(facts, r.cfg.Clock.Now()); {
		case d.Action == reclaim.RemoveFinalizer:
			todo = append(todo, *pv)
		case d.Reason == reclaim.ReasonInFlight, d.Reason == reclaim.ReasonLogNotRead,
			d.Reason == reclaim.ReasonLogUnreadable:
			inFlight = append(inFlight, pv.Name)
		}
	})
	released, err := r.releaseAll(ctx, todo)
	slices.Sort(inFlight)
	released.InFlight = inFlight
	return released, err
}

func (r *Controller) releaseAll(ctx context.Context, todo []volume.PV) (Released, error) {
	var (
		mu   sync.Mutex
		out  Released
		errs []error
	)
	said, of := r.cfg.Clock.Now(), len(todo)
	note := func(pv volume.PV, err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			errs = append(errs, err)
		default:
			out.PVs++
			if pv.Terminating && pv.Policy == volume.PolicyDelete && pv.Claimed() {
				out.Abandoned = append(out.Abandoned, pv.Name)
			}
		}
		r.cfg.Progress(out.PVs, len(errs), of)
		if now := r.cfg.Clock.Now(); now.Sub(said) >= sayEvery {
			klog.FromContext(ctx).Info("Removing the finalizers", "released", out.PVs, "failed", len(errs), "of", of)
			said = now
		}
	}
	if len(todo) > 0 {
		// The first PV goes alone, to show whether the write has any effect.
		err := r.releaseOne(ctx, todo[0])
		if errors.Is(err, ErrFinalizerRestored) {
			return out, fmt.Errorf("release finalizers: %w", err)
		}
		note(todo[0], err)
		todo = todo[1:]
	}
	var workers errgroup.Group
	workers.SetLimit(r.cfg.Workers)
	for _, pv := range todo {
		if ctx.Err() != nil {
			break
		}
		workers.Go(func() error { note(pv, r.releaseOne(ctx, pv)); return nil })
	}
	if err := errors.Join(workers.Wait(), ctx.Err()); err != nil {
		errs = append(errs, err)
	}
	slices.Sort(out.Abandoned)
	if len(errs) > 0 {
		return out, fmt.Errorf("release finalizers: %w", errors.Join(errs...))
	}
	return out, nil
}

// releaseOne removes our finalizers from one PV, and reads the PV again after a conflict.
func (r *Controller) releaseOne(ctx context.Context, pv volume.PV) error {
	uid := pv.UID
	for range releaseTries {
		if len(r.engine.Rules.Finalizers(pv)) == 0 {
			return nil
		}
		if err := r.mayAct(); err != nil {
			return err
		}
		_, err := r.cluster.patchFinalizers(ctx, pv, nil, r.engine.Rules.Finalizers(pv), true)
		if err == nil || errors.Is(err, kube.ErrGone) {
			return nil
		}
		if !errors.Is(err, kube.ErrChanged) {
			return err
		}
		now, found, err := r.cluster.readPV(ctx, pv.Name)
		switch {
		case err != nil:
			return err
		case !found || now.UID != uid:
			return nil
		}
		pv = now
	}
	return fmt.Errorf("PV %q: it changed %d times while its finalizer was being removed", pv.Name, releaseTries)
}
