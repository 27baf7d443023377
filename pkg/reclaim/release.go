package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// releaseTries bounds the tries for one PV that others change at the same time.
const releaseTries = 10

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
// same time. Release is called instead of Run, after the in-flight log was taken over, and fails with Config.DryRun.
//
// A PV counts only when the API server has answered that the finalizer is gone. If an admission policy adds the
// finalizer again, Release stops after the first PV with ErrFinalizerRestored. Otherwise it tries all PVs, and the
// error names each PV that was not released.
func (r *Controller) Release(ctx context.Context) (Released, error) {
	return controller.Release(ctx, "release finalizers", r.cfg.DryRun, r.release)
}

func (r *Controller) release(ctx context.Context) (out Released, err error) {
	if r.cfg.Mode != ModeRelease {
		return out, errors.New("the Config's Mode is not ModeRelease")
	}
	if r.logUnread() {
		return out, errors.New("the in-flight log has not been read: take it over first (inflight.Log.TakeOver)")
	}
	ctx, stop := leadership.WhileHeld(ctx, r.cfg.Lease, r.cfg.Clock)
	defer stop()
	todo, inFlight, err := r.toRelease(ctx)
	if err != nil {
		return out, err
	}
	out, err = r.releaseAll(ctx, todo)
	out.InFlight = inFlight
	return out, err
}

// toRelease returns the PVs to release, and the names of the PVs that keep our finalizers for the in-flight log. It
// lists them live, because the watch may not have a PV yet that was stored just before the release began.
func (r *Controller) toRelease(ctx context.Context) (todo []volume.PV, inFlight []string, err error) {
	err = r.cluster.eachPV(ctx, func(pv volume.PV) {
		facts := reclaim.Facts{Rules: r.engine.Rules, Leading: true, PV: pv, Log: r.moment(pv.Name).Log}
		switch d := reclaim.Decide(facts, r.cfg.Clock.Now()); {
		case d.Action == reclaim.RemoveFinalizer:
			todo = append(todo, pv)
		case d.Reason == reclaim.ReasonInFlight, d.Reason == reclaim.ReasonLogNotRead,
			d.Reason == reclaim.ReasonLogUnreadable:
			inFlight = append(inFlight, pv.Name)
		}
	})
	slices.Sort(inFlight)
	return todo, inFlight, err
}

func (r *Controller) releaseAll(ctx context.Context, todo []volume.PV) (out Released, err error) {
	var mu sync.Mutex
	failed, of := 0, len(todo)
	progress := controller.Progress{Clock: r.cfg.Clock}
	note := func(pv volume.PV, err error) error {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed++
		} else {
			out.PVs++
			if pv.Terminating && pv.Policy == volume.PolicyDelete && pv.Claimed() {
				out.Abandoned = append(out.Abandoned, pv.Name)
			}
		}
		r.cfg.Progress(out.PVs, failed, of)
		progress.Log(ctx, "Removing the finalizers", "released", out.PVs, "failed", failed, "of", of)
		return err
	}
	var first error
	if of > 0 {
		// The first PV goes alone, to show whether the write has any effect.
		pv, err := r.releaseOne(ctx, todo[0])
		if errors.Is(err, ErrFinalizerRestored) {
			return out, err
		}
		first = note(pv, err)
		todo = todo[1:]
	}
	err = errors.Join(first, controller.Each(ctx, r.cfg.Workers, todo, func(pv volume.PV) error {
		return note(r.releaseOne(ctx, pv))
	}))
	slices.Sort(out.Abandoned)
	return out, err
}

// releaseOne removes our finalizers from one PV, and reads the PV again after a conflict. It returns the state from
// which they were removed: the PV may have been deleted since it was listed.
func (r *Controller) releaseOne(ctx context.Context, pv volume.PV) (volume.PV, error) {
	uid := pv.UID
	for range releaseTries {
		if len(r.engine.Rules.Finalizers(pv)) == 0 {
			return pv, nil
		}
		if err := r.mayAct(); err != nil {
			return pv, err
		}
		_, err := r.cluster.patchFinalizers(ctx, pv, nil, r.engine.Rules.Finalizers(pv), true)
		if err == nil || errors.Is(err, kube.ErrGone) {
			return pv, nil
		}
		if !errors.Is(err, kube.ErrChanged) {
			return pv, err
		}
		now, found, err := r.cluster.readPV(ctx, pv.Name)
		switch {
		case err != nil:
			return pv, err
		case !found || now.UID != uid:
			return pv, nil
		}
		pv = now
	}
	return pv, fmt.Errorf("PV %q: it changed %d times while its finalizer was being removed", pv.Name, releaseTries)
}
