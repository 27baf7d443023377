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

// Released is the result of Release.
type Released struct {
	// Pods counts the pods that lost the gate, and Claims the claims that lost a lock.
	Pods, Claims int
	// Unproven lists the Pods that waited for another pod that has not ended, as "namespace/name, which waited for pod
	// NAME on node NODE", without a node if the other pod has none. Both pods may write to one volume.
	Unproven []string
	// Left are pods and claims that still have the gate or a lock, as "pod namespace/name".
	Left []string
}

// ErrRestored means that pods got the gate again.
var ErrRestored = errors.New("another program or an admission policy adds the scheduling gate: remove it, and run " +
	"the command again")

// Release removes the gate from all pods, whether others use their claims or not, and the locks of all claims. It is
// the first step of uninstalling volume-guard, after the removal of the admission that adds the gate. It is called
// instead of Run, and no Controller may run at the same time. It fails with Config.DryRun.
//
// It lists the pods until none of them has got the gate for some seconds. It tries all pods and claims, and its error
// names every failure.
func (c *Controller) Release(ctx context.Context) (Released, error) {
	return controller.Release(ctx, "release pods and claims", c.cfg.DryRun, c.releaseAll)
}

func (c *Controller) releaseAll(ctx context.Context) (out Released, err error) {
	r := &releaser{Controller: c, out: &out, progress: controller.Progress{Clock: c.cfg.Clock}}
	if err = controller.UntilQuiet(ctx, c.cfg.Clock, ErrRestored, r.pass); err == nil || ctx.Err() == nil {
		err = errors.Join(err, r.claims(ctx))
	}
	slices.Sort(out.Unproven)
	slices.Sort(out.Left)
	return out, err
}

type releaser struct {
	*Controller
	mu       sync.Mutex
	out      *Released
	progress controller.Progress
}

// pass lists all pods once, removes their gates, and reports whether a pod had one.
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
	return true, controller.Each(ctx, r.cfg.Workers, seen.gated, func(p singlenode.Pod) error {
		return r.pod(ctx, p, seen.unproven(p))
	})
}

// seen has the objects of one pass.
type seen struct {
	// gated are the pods with the gate, and running the pods that may write to a claim, by the key of the claim.
	gated   []singlenode.Pod
	running map[string][]singlenode.Pod
	// locks are the locks of the claims, by the key of the claim.
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

// unproven returns the pods that a gated pod waits for and will run beside without its gate: pods that use a claim
// without its lock, and the holder of the lock. A pod that waits for users without a lock has the locks of its claims,
// so only claims with a lock matter.
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

func (r *releaser) pod(ctx context.Context, p singlenode.Pod, unproven []string) error {
	s, err := r.carryOut(ctx, singlenode.Facts{Rules: r.removing(), Pod: p})
	r.count(ctx, s.End, "pod "+keyOf(p.Namespace, p.Name), func(out *Released) {
		out.Pods++
		out.Unproven = append(out.Unproven, unproven...)
	})
	return err
}

func (r *releaser) claims(ctx context.Context) error {
	var locked []*claim
	if err := r.cluster.eachClaim(ctx, metav1.NamespaceAll, func(c *claim) {
		if c.marked() {
			locked = append(locked, c)
		}
	}); err != nil {
		return err
	}
	return controller.Each(ctx, r.cfg.Workers, locked, func(c *claim) error {
		s := singlenode.BeginLock(singlenode.LockFacts{Rules: r.removing(), Claim: c.Claim}, r.cfg.Clock.Now())
		err := r.carryOutLock(ctx, &s)
		r.count(ctx, s.End, "claim "+c.key(), func(out *Released) { out.Claims++ })
		return err
	})
}

func (r *releaser) removing() singlenode.Rules {
	rules := r.cfg.rules()
	rules.Removing = true
	return rules
}

// count adds the outcome for one object to the result, and logs the progress now and then.
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
