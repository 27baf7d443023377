package statefulset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Released is what Release did.
type Released struct {
	// Claims is from how many claims the mark and the owner references of this project were removed, Sets from how many
	// StatefulSets WokenAnnotation was.
	Claims, Sets int
	// Condemned are those of the Claims that a Controller would have deleted, as "namespace/name". They stay.
	Condemned []string
	// Left are claims and sets that were not released, as "claim namespace/name" or "StatefulSet namespace/name".
	Left []string
}

// releaseTries is how often a release lists the claims and sets of which some changed meanwhile.
const releaseTries = 5

// Release removes what this project has added to claims and StatefulSets, and deletes nothing. It is the first step of
// uninstalling volume-guard: no Controller may run meanwhile, and it is called instead of Run.
//
// All objects are tried, and the error names those that were not released.
func (c *Controller) Release(ctx context.Context) (Released, error) {
	r := &releaser{Controller: c, progress: controller.Progress{Clock: c.cfg.Clock}}
	for try := 1; ; try++ {
		r.out.Left = nil
		err := r.pass(ctx)
		slices.Sort(r.out.Condemned)
		slices.Sort(r.out.Left)
		switch {
		case err != nil:
			return r.out, fmt.Errorf("release claims of StatefulSets: %w", err)
		case len(r.out.Left) == 0 || try == releaseTries:
			return r.out, nil
		}
	}
}

// releaser is one release.
type releaser struct {
	*Controller
	mu       sync.Mutex
	out      Released
	progress controller.Progress
}

// pass lists all claims and sets once, and releases those that are marked.
func (r *releaser) pass(ctx context.Context) error {
	workers := controller.NewWorkers(r.cfg.Workers)
	sets := map[string]statefulset.Set{}
	err := r.cluster.eachSet(ctx, func(s statefulset.Set) {
		sets[keyOf(s.Namespace, s.Name)] = s
		workers.Go(func() error { return r.set(ctx, s) })
	})
	if err == nil {
		err = r.cluster.eachClaim(ctx, func(c statefulset.Claim) {
			if c.Marked {
				s, found := sets[keyOf(c.Namespace, c.Mark.Set)]
				workers.Go(func() error { return r.claim(ctx, c, s, seen(found)) })
			}
		})
	}
	return errors.Join(workers.Wait(), err)
}

// claim releases one claim; s is the set that its mark names.
func (r *releaser) claim(ctx context.Context, c statefulset.Claim, s statefulset.Set, known statefulset.Seen) error {
	f := statefulset.Facts{Rules: r.cfg.rules(), Claim: c, SetName: c.Mark.Set, SetSeen: known, Set: s,
		Ordinal: c.Mark.Ordinal}
	condemned := f.Condemned() && !c.Terminating && !c.Hold
	f.Rules.Removing = true
	tracker := statefulset.NewTracker()
	work := statefulset.Begin(tracker, f, r.cfg.Clock.Now())
	err := r.carryOut(ctx, &work, func(s *statefulset.Session, reply statefulset.Reply, sent, now time.Time) {
		s.Answer(tracker, reply, sent, now)
	})
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

// set releases one set.
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

// count changes the result, and logs now and then how far the release is.
func (r *releaser) count(ctx context.Context, change func(*Released)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.out)
	r.progress.Log(ctx, "Releasing claims of StatefulSets", "released", r.out.Claims)
}
