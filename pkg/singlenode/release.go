package singlenode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Released is what Release did.
type Released struct {
	// Pods is how many lost the gate, and Claims how many lost a lock.
	Pods, Claims int
	// Unproven says which of the Pods waited for another that has not ended, as "namespace/name, which waited for pod NAME
	// on node NODE", without a node where the other has none: both may write to one volume.
	Unproven []string
	// Left are pods and claims that have the gate or a lock, as "pod namespace/name".
	Left []string
}

// ErrRestored: pods have the gate again.
var ErrRestored = errors.New("another program or an admission policy adds the scheduling gate: remove it, and run " +
	"the command again")

// Release removes the gate from all pods, whether others use their claims or not, and the locks of all claims. It is
// the first step of uninstalling volume-guard, after the admission that adds the gate was removed: no Controller may
// run meanwhile, and it is called instead of Run.
//
// It lists the pods until none of them got the gate for some seconds. All pods and claims are tried, and the error
// names those that were not released.
func (c *Controller) Release(ctx context.Context) (out Released, err error) {
	r := &releaser{Controller: c, out: &out, progress: controller.Progress{Clock: c.cfg.Clock}}
	if err = controller.UntilQuiet(ctx, c.cfg.Clock, ErrRestored, r.pass); err == nil || ctx.Err() == nil {
		err = errors.Join(err, r.claims(ctx))
	}
	slices.Sort(out.Unproven)
	slices.Sort(out.Left)
	if err != nil {
		return out, fmt.Errorf("release pods and claims: %w", err)
	}
	return out, nil
}

// releaser is one release.
type releaser struct {
	*Controller
	mu       sync.Mutex
	out      *Released
	progress controller.Progress
}

// pass lists all pods once and removes their gates. It reports whether one had it.
func (r *releaser) pass(ctx context.Context) (found bool, err error) {
	seen := seen{running: map[string][]singlenode.Pod{}, locks: map[string]singlenode.Lock{}}
	if err := r.cluster.eachPod(ctx, metav1.NamespaceAll, func(o *v1.Pod) { seen.pod(objects.PodOf(o)) }); err != nil {
		return false, err
	}
	if len(seen.gated) == 0 {
		return false, nil
	}
	if err := r.cluster.eachClaim(ctx, metav1.NamespaceAll, func(c *claim) {
		if c.Locked {
			seen.locks[c.key()] = c.Lock
		}
	}); err != nil {
		return true, err
	}
	return true, r.each(len(seen.gated), func(i int) error {
		return r.pod(ctx, seen.gated[i], seen.unproven(seen.gated[i]))
	})
}

// seen is what one pass has listed.
type seen struct {
	// gated are the pods that have the gate, and running those that may write to a claim, by its key.
	gated   []singlenode.Pod
	running map[string][]singlenode.Pod
	// locks are those of the claims, by their keys.
	locks map[string]singlenode.Lock
}

func (s *seen) pod(p singlenode.Pod) {
	switch {
	case p.Gated:
		s.gated = append(s.gated, p)
	case !p.Completed():
		for _, name := range p.Claims {
			key := keyOf(p.Namespace, name)
			s.running[key] = append(s.running[key], p)
		}
	}
}

// unproven returns the pods that a gated pod waits for, and beside which it runs without its gate: those that use a
// claim without its lock, and the one that has the lock. A pod that waits for the first has the locks of its claims, so
// only claims with a lock matter.
func (s *seen) unproven(p singlenode.Pod) (of []string) {
	if p.Terminating || p.Final {
		return nil
	}
	for _, name := range p.Claims {
		key := keyOf(p.Namespace, name)
		lock, found := s.locks[key]
		if !found {
			continue
		}
		others := slices.Clone(s.running[key])
		for _, other := range s.gated {
			if other.UID == lock.UID && other.UID != p.UID {
				others = append(others, other)
			}
		}
		for _, other := range others {
			text := fmt.Sprintf("%s, which waited for pod %s", keyOf(p.Namespace, p.Name), other.Name)
			if other.Node != "" {
				text += " on node " + other.Node
			}
			of = append(of, text)
		}
	}
	return of
}

// each does something for each of so many, some at once.
func (r *releaser) each(count int, do func(i int) error) error {
	workers := controller.NewWorkers(r.cfg.Workers)
	for i := range count {
		workers.Go(func() error { return do(i) })
	}
	return workers.Wait()
}

// pod releases one pod.
func (r *releaser) pod(ctx context.Context, p singlenode.Pod, unproven []string) error {
	s, err := r.carryOut(ctx, singlenode.Facts{Rules: r.removing(), Pod: p})
	r.count(ctx, s.End, "pod "+keyOf(p.Namespace, p.Name), func(out *Released) {
		out.Pods++
		out.Unproven = append(out.Unproven, unproven...)
	})
	return err
}

// claims frees all locks.
func (r *releaser) claims(ctx context.Context) error {
	var locked []*claim
	if err := r.cluster.eachClaim(ctx, metav1.NamespaceAll, func(c *claim) {
		if c.marked() {
			locked = append(locked, c)
		}
	}); err != nil {
		return err
	}
	return r.each(len(locked), func(i int) error {
		s := singlenode.BeginLock(singlenode.LockFacts{Rules: r.removing(), Claim: locked[i].Claim}, r.cfg.Clock.Now())
		err := r.carryOutLock(ctx, &s)
		r.count(ctx, s.End, "claim "+locked[i].key(), func(out *Released) { out.Claims++ })
		return err
	})
}

func (r *releaser) removing() singlenode.Rules {
	rules := r.cfg.rules()
	rules.Removing = true
	return rules
}

// count changes the result by how the release of one object has ended, and logs now and then how far the release is.
func (r *releaser) count(ctx context.Context, end session.End, name string, written func(*Released)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch end {
	case session.Written:
		r.out.Left = slices.DeleteFunc(r.out.Left, func(left string) bool { return left == name })
		written(r.out)
	case session.CallFailed, session.Conflicted:
		if !slices.Contains(r.out.Left, name) {
			r.out.Left = append(r.out.Left, name)
		}
	default:
	}
	r.progress.Log(ctx, "Releasing pods and claims", "pods", r.out.Pods, "claims", r.out.Claims)
}
