package statefulset

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Released is the result of Release.
type Released struct {
	// Claims counts the claims that lost the mark and the owner references of volume-guard, and Sets the StatefulSets that
	// lost WokenAnnotation.
	Claims, Sets int
	// Condemned are the claims among Claims that a Controller would have deleted, as "namespace/name". They stay.
	Condemned []string
	// Left are claims and sets that were not released, as "claim namespace/name" or "StatefulSet namespace/name".
	Left []string
}

// releaseTries bounds the passes of a release when objects change during a pass.
const releaseTries = 5

// Release removes everything that volume-guard has added to claims and StatefulSets, and deletes nothing. It is the
// first step of uninstalling volume-guard, called instead of Run, and no Controller may run at the same time. It fails
// with Config.DryRun.
//
// It tries all objects, and its error names every failure.
func (c *Controller) Release(ctx context.Context) (Released, error) {
	return controller.Release(ctx, "release claims of StatefulSets", c.cfg.DryRun, c.releaseAll)
}

func (c *Controller) releaseAll(ctx context.Context) (Released, error) {
	r := &releaser{Controller: c, progress: controller.Progress{Clock: c.cfg.Clock}}
	for try := 1; ; try++ {
		r.out.Left = nil
		err := r.pass(ctx)
		slices.Sort(r.out.Condemned)
		slices.Sort(r.out.Left)
		if err != nil || len(r.out.Left) == 0 || try == releaseTries {
			return r.out, err
		}
	}
}

type releaser struct {
	*Controller
	mu       sync.Mutex
	out      Released
	progress controller.Progress
}

// pass lists all claims and sets once, and releases woken sets and marked claims.
func (r *releaser) pass(ctx context.Context) error {
	sets := map[string]statefulset.Set{}
	var marked []statefulset.Claim
	err := r.cluster.eachSet(ctx, func(s statefulset.Set) { sets[keyOf(s.Namespace, s.Name)] = s })
	if err == nil {
		err = r.cluster.eachClaim(ctx, func(c statefulset.Claim) {
			if c.Marked {
				marked = append(marked, c)
			}
		})
	}
	all := slices.Collect(maps.Values(sets))
	return errors.Join(controller.Each(ctx, r.cfg.Workers, all, func(s statefulset.Set) error {
		return r.set(ctx, s)
	}), controller.Each(ctx, r.cfg.Workers, marked, func(c statefulset.Claim) error {
		s, found := sets[keyOf(c.Namespace, c.Mark.Set)]
		return r.claim(ctx, c, s, statefulset.SeenOf(found))
	}), err)
}

// claim releases one claim, with the set s that its mark names.
func (r *releaser) claim(ctx context.Context, c statefulset.Claim, s statefulset.Set, known statefulset.Seen) error {
	f := statefulset.Facts{Rules: r.cfg.rules(), Claim: c, SetName: c.Mark.Set, SetSeen: known, Set: s,
		Ordinal: c.Mark.Ordinal}
	condemned := f.Condemned() && !c.Terminating && !c.Hold
	f.Rules.Removing = true
	work := r.observer.begin(f, r.cfg.Clock.Now())
	err := r.carryOut(ctx, &work)
	name := keyOf(c.Namespace, c.Name)
	switch work.End {
	case session.Written:
		r.count(ctx, func(out *Released) {
			out.Claims++
			if condemned {
				out.Condemned = append(out.Condemned, name)
			}
		})
	case session.CallFailed, session.Conflicted:
		r.count(ctx, func(out *Released) { out.Left = append(out.Left, "claim "+name) })
	default:
	}
	return err
}

func (r *releaser) set(ctx context.Context, s statefulset.Set) error {
	f := statefulset.SetFacts{Rules: r.cfg.rules(), Set: s}
	f.Rules.Removing = true
	if statefulset.DecideSet(f, r.cfg.Clock.Now()).Action != statefulset.EndWake {
		return nil
	}
	err := r.cluster.patchWoken(ctx, s, nil)
	switch {
	case err == nil:
		r.count(ctx, func(out *Released) { out.Sets++ })
	case errors.Is(err, kube.ErrGone):
		return nil
	default:
		r.count(ctx, func(out *Released) { out.Left = append(out.Left, "StatefulSet "+keyOf(s.Namespace, s.Name)) })
	}
	return err
}

// count changes the result, and logs the progress now and then.
func (r *releaser) count(ctx context.Context, change func(*Released)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.out)
	r.progress.Log(ctx, "Releasing claims of StatefulSets", "released", r.out.Claims)
}
