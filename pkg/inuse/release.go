package inuse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Released is what Release did.
type Released struct {
	// Objects is how many the finalizer was removed from.
	Objects int
	// Others: another program was seen to manage the finalizer. Objects that still carry it are left to that program.
	Others bool
	// Left are those that still carry it, with the reason behind the key, sorted.
	Left []string
}

// ErrUnproven: it is unknown whether another program manages the finalizer, so the finalizer stays.
var ErrUnproven = errors.New("it is unknown whether Kubernetes' own controller manages the finalizer, so the " +
	"finalizer stays. If all objects that carry it are in use, create one that is not in use, and run the command again")

// ErrInHand: no other program manages the finalizer, and some objects still carry it.
var ErrInHand = errors.New("no other program removes their finalizer: end their use, and run the command again")

// Release removes the finalizer from all objects of the kind if no other program manages it, so that none is kept
// forever once this program is gone. It is called instead of Run, while no Guard runs. The Config's Mode must be
// ModeFull.
//
// It finds out whether another program manages the finalizer as a Guard does: by a need that lasts for Config.Patience.
// If no object has a need, it removes the finalizer from one that loses nothing by that, and a program that manages the
// finalizer adds it again. ErrUnproven: it could not find out. Objects that are terminating and in use keep the
// finalizer until they are not, for another two times the patience; then the error is ErrInHand.
func (g *Guard) Release(ctx context.Context) (out Released, err error) {
	if g.cfg.Mode != ModeFull {
		return out, fmt.Errorf("release each %s: the Config's Mode is not ModeFull", g.name)
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { g.Watch(ctx) })
	if err = g.WaitSynced(ctx); err == nil {
		g.tracker.leads()
		out, err = g.releaseAll(ctx)
	}
	if err != nil {
		return out, fmt.Errorf("release each %s: %w", g.name, err)
	}
	return out, nil
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
		case len(out.Left) == 0 && (dropped == 0 || again): // a second look has shown whether it comes back
			return out, nil
		case !g.tracker.isAlone():
			return out, ErrUnproven
		case !again:
			since = now
		case now.Sub(since) >= 2*g.cfg.Patience:
			return out, ErrInHand
		}
		if err := g.pause(ctx, g.cfg.RetryStart); err != nil {
			return out, err
		}
	}
}

// witnesses is how many objects are read one after another where each goes before it shows anything.
const witnesses = 3

// findOut has the notes know whether others manage the finalizer, if that shows. It returns how many lost it on the
// way.
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
			return 0, nil // it is on again
		}
		if g.tracker.isAlone() {
			break
		}
	}
	return bared, nil
}

// hear waits until others were seen at work, or the need of an object stood for as long as the patience.
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
		if err := g.pause(ctx, min(left, g.cfg.RetryStart)); err != nil {
			return err
		}
	}
	return nil
}

// stands reports whether an object has, as the watch shows it, the need that it had.
func (g *Guard) stands(o Object) bool {
	now, _, found := g.kind.Decide(o.Key(), func(Object) Duty { return Duty{} })
	return found && now.UID == o.UID && now.Terminating == o.Terminating && now.Protected == o.Protected
}

// releasePass removes the finalizer once, and returns from how many it did, and who keeps it.
func (g *Guard) releasePass(ctx context.Context, all []Held) (dropped int, left []string) {
	var mu sync.Mutex
	var workers errgroup.Group
	workers.SetLimit(g.cfg.Workers)
	for _, h := range all {
		if !h.Protected || ctx.Err() != nil {
			continue
		}
		workers.Go(func() error {
			d := atRelease(h, g.tracker.isAlone())
			why := strings.TrimSpace(string(d.Reason) + " " + d.Detail)
			if d.Action == RemoveFinalizer {
				err := g.bare(ctx, h.Object)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					dropped++
					return nil
				}
				why = err.Error()
			} else {
				mu.Lock()
				defer mu.Unlock()
			}
			left = append(left, h.Key()+": "+why)
			return nil
		})
	}
	_ = workers.Wait() // what failed is in left
	slices.Sort(left)
	return dropped, left
}

// bare removes the finalizer from an object as it was read. What is gone has none.
func (g *Guard) bare(ctx context.Context, o Object) error {
	var err error
	if o.Terminating {
		// Its end is our doing. Of one that stays it is not noted: that somebody puts the finalizer back is to be seen.
		err = g.send(ctx, o, RemoveFinalizer)
	} else {
		err = g.patch(ctx, o, RemoveFinalizer)
	}
	if errors.Is(err, kube.ErrGone) {
		return nil
	}
	return err
}

// pause waits for a time. An error means that ctx ended before.
func (g *Guard) pause(ctx context.Context, wait time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-g.cfg.Clock.After(wait):
		return nil
	}
}
