package inuse

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Released is the result of Release.
type Released struct {
	// Objects is the number of objects whose finalizer was removed.
	Objects int
	// Others means that another program was seen to manage the finalizer. Objects that still have it are left to that
	// program.
	Others bool
	// Left names the objects that still have the finalizer, sorted, each with its reason after the key.
	Left []string
}

// ErrUnproven means that the finalizer stays, because it is unknown whether another program manages it.
var ErrUnproven = errors.New("a controller of Kubernetes may manage the finalizer, so the finalizer stays. If all " +
	"objects with the finalizer are in use, create an unused one, and run the command again")

// ErrInHand means that no other program manages the finalizer, and some objects still have it.
var ErrInHand = errors.New("no other program removes their finalizer: end their use, and run the command again")

// Release removes the finalizer from all objects of the kind if no other program manages it, so that none is kept
// forever once this program is gone. It is called instead of Run, while no Guard runs. The Config's Mode must be
// ModeFull, and Release fails with DryRun.
//
// Release finds out like a Guard whether another program manages the finalizer: by a need that stands for
// Config.Patience. If no object has a need, it removes the finalizer from one that loses nothing by that, and a program
// that manages the finalizer adds it again; if this question stays open, the error is ErrUnproven. Objects that are
// terminating and in use keep the finalizer until their use ends, for at most two more times the patience; then the
// error is ErrInHand.
func (g *Guard) Release(ctx context.Context) (Released, error) {
	return controller.Release(ctx, "release each "+g.name, g.cfg.DryRun, g.release)
}

func (g *Guard) release(ctx context.Context) (out Released, err error) {
	if g.cfg.Mode != ModeFull {
		return out, errors.New("the Config's Mode is not ModeFull")
	}
	err = controller.Watched(ctx, g.Controller, func(ctx context.Context) error {
		g.tracker.leads()
		out, err = g.releaseAll(ctx)
		return err
	})
	return out, err
}

func (g *Guard) releaseAll(ctx context.Context) (out Released, err error) {
	if out.Objects, err = g.findOut(ctx); err != nil {
		return out, err
	}
	for since := (time.Time{}); ; {
		all, err := g.kind.List(ctx)
		if err != nil {
			return out, err
		}
		var dropped int
		dropped, out.Left = g.releasePass(ctx, all)
		out.Objects += dropped
		now, again := g.cfg.Clock.Now(), !since.IsZero()
		switch {
		case ctx.Err() != nil:
			return out, ctx.Err()
		case g.tracker.othersSeen():
			out.Others = true
			return out, nil
		case len(out.Left) == 0 && (dropped == 0 || again): // the second list has shown whether it comes back
			return out, nil
		case !g.tracker.isAlone():
			return out, ErrUnproven
		case !again:
			since = now
		case now.Sub(since) >= 2*g.cfg.Patience:
			return out, ErrInHand
		}
		if !controller.Pause(ctx, g.cfg.Clock, g.cfg.RetryStart) {
			return out, ctx.Err()
		}
	}
}

// witnesses bounds the objects tried one after another if each is gone before it proves anything.
const witnesses = 3

// findOut has the tracker learn whether another program manages the finalizer, if an object can show it. It returns the
// number of objects that lost the finalizer in the attempt.
func (g *Guard) findOut(ctx context.Context) (bared int, err error) {
	for range witnesses {
		all, err := g.kind.List(ctx)
		if err != nil {
			return bared, err
		}
		w, found := witness(all)
		if !found || !slices.ContainsFunc(all, func(h Held) bool { return h.Protected }) {
			break
		}
		if !w.Needs() {
			switch err := g.bare(ctx, w.Object); {
			case errors.Is(err, kube.ErrChanged):
				continue
			case err != nil:
				return bared, err
			}
			w.Protected = false
			bared++
		}
		if err := g.hear(ctx, w.Object); err != nil {
			return bared, err
		}
		if g.tracker.othersSeen() {
			return 0, nil // the finalizer is on again
		}
		if g.tracker.isAlone() {
			break
		}
	}
	return bared, nil
}

// hear waits until other programs were seen at work, or the need of an object has stood for the patience.
func (g *Guard) hear(ctx context.Context, o Object) error {
	klog.FromContext(ctx).Info("Checking whether another program manages the finalizer", "kind", g.name, "by", o.Key(),
		"patience", g.cfg.Patience)
	for !g.tracker.othersSeen() {
		left := g.tracker.due(o.UID, g.cfg.Clock.Now())
		if left == 0 {
			if g.stands(o) {
				g.tracker.alone()
			}
			return nil
		}
		if !controller.Pause(ctx, g.cfg.Clock, min(left, g.cfg.RetryStart)) {
			return ctx.Err()
		}
	}
	return nil
}

// stands reports whether the watch still shows the same need of an object.
func (g *Guard) stands(o Object) bool {
	now, found := g.kind.Get(o.Key())
	return found && now.UID == o.UID && now.Terminating == o.Terminating && now.Protected == o.Protected
}

// releasePass removes the finalizer from each object once, and returns the number of removals and the objects that keep
// it.
func (g *Guard) releasePass(ctx context.Context, all []Held) (dropped int, left []string) {
	var mu sync.Mutex
	all = slices.DeleteFunc(all, func(h Held) bool { return !h.Protected })
	_ = controller.Each(ctx, g.cfg.Workers, all, func(h Held) error {
		d := atRelease(h, g.tracker.isAlone())
		why, removed := strings.TrimSpace(string(d.Reason)+" "+d.Detail), false
		if d.Action == RemoveFinalizer {
			err := g.bare(ctx, h.Object)
			if removed = err == nil; !removed {
				why = err.Error()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if removed {
			dropped++
		} else {
			left = append(left, h.Key()+": "+why)
		}
		return nil
	}) // failures are in left, and the caller checks ctx
	slices.Sort(left)
	return dropped, left
}

// bare removes the finalizer from an object that has not changed since it was read; an object that is gone counts as
// success.
func (g *Guard) bare(ctx context.Context, o Object) error {
	var err error
	if o.Terminating {
		// Its deletion is our own, but for an object that stays, the write is not tracked, so that another program that adds
		// the finalizer again is seen.
		err = g.send(ctx, o, RemoveFinalizer)
	} else {
		err = g.patch(ctx, o, RemoveFinalizer)
	}
	if errors.Is(err, kube.ErrGone) {
		return nil
	}
	return err
}
