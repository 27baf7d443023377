package podsafety

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Released is the result of Release.
type Released struct {
	// Pods and Claims count the objects that lost the finalizer, Locks the deleted VolumeLocks, and Conditions the pods
	// that lost the condition NodeUnreachable.
	Pods, Claims, Locks, Conditions int
	// Unproven lists the released pods that were terminating without evidence of the end of their processes, as
	// "namespace/name on node NODE".
	Unproven []string
	// Left lists the pods that still have the finalizer, as "namespace/name".
	Left []string
}

// ErrRestored means that pods or claims got the finalizer again.
var ErrRestored = errors.New("another program or an admission policy adds the finalizer: remove it, and run the " +
	"command again")

// Release removes the finalizer from all pods, whether or not their processes run, and from all claims, and removes
// VolumeLocks and conditions. It is the first step of uninstalling volume-guard, after the removal of the admission
// that adds the finalizer, and replaces Run: no Controller may run at the same time. It fails with Config.DryRun.
//
// Release lists the pods, and then the claims, until none has got the finalizer for some seconds. It tries all of them,
// and the error names the ones that were not released.
func (c *Controller) Release(ctx context.Context) (Released, error) {
	return controller.Release(ctx, "release pods", c.cfg.DryRun, c.releaseAll)
}

func (c *Controller) releaseAll(ctx context.Context) (out Released, err error) {
	r := &releaser{Controller: c, out: &out, progress: controller.Progress{Clock: c.cfg.Clock}}
	err = errors.Join(controller.UntilQuiet(ctx, c.cfg.Clock, ErrRestored, r.pass),
		controller.UntilQuiet(ctx, c.cfg.Clock, ErrRestored, r.claims), r.locks(ctx))
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

// pass lists all pods once, removes their finalizers and conditions, and reports whether a pod had the finalizer.
func (r *releaser) pass(ctx context.Context) (found bool, err error) {
	type listed struct {
		objects.Pod
		marked bool
	}
	var todo []listed
	r.out.Left = nil
	err = r.cluster.eachPod(ctx, metav1.NamespaceAll, "", func(o *v1.Pod) {
		p := listed{objects.PodOf(o), isMarked(o)}
		found = found || p.Held
		if p.Held || p.marked {
			todo = append(todo, p)
		}
	})
	return found, errors.Join(controller.Each(ctx, r.cfg.Workers, todo, func(p listed) error {
		return r.one(ctx, p.Pod, p.marked)
	}), err)
}

func (r *releaser) one(ctx context.Context, p objects.Pod, marked bool) error {
	var err error
	if marked {
		err = r.cluster.patchCondition(ctx, p.Namespace, kube.ConditionPatch{Name: p.Name, UID: p.UID,
			Condition: v1.PodCondition{Type: objects.NodeUnreachable}, Remove: true})
		if err == nil {
			r.count(ctx, func(out *Released) { out.Conditions++ })
		}
		if errors.Is(err, kube.ErrGone) {
			return nil
		}
	}
	rules := r.cfg.rules()
	rules.RemovingFinalizers = true
	tracker := podsafety.NewTracker()
	s := podsafety.Begin(tracker, podsafety.Facts{Rules: rules, Pod: p}, r.cfg.Clock.Now())
	err = errors.Join(err, r.carryOut(ctx, &s, func(s *podsafety.Session, reply podsafety.Reply, sent, now time.Time) {
		s.Answer(tracker, reply, sent, now)
	}))
	name := cache.NewObjectName(p.Namespace, p.Name).String()
	switch s.End {
	case session.Written:
		r.count(ctx, func(out *Released) {
			out.Pods++
			if p.Terminating && !p.Finished() && p.Node != "" {
				out.Unproven = append(out.Unproven, name+" on node "+p.Node)
			}
		})
	case session.CallFailed, session.Conflicted:
		r.count(ctx, func(out *Released) { out.Left = append(out.Left, name) })
	default:
	}
	return err
}

// count changes the result, and logs the progress from time to time.
func (r *releaser) count(ctx context.Context, change func(*Released)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.out)
	r.progress.Log(ctx, "Releasing pods", "released", r.out.Pods)
}

// claims lists all claims once, removes their finalizers, and reports whether a claim had one. It follows the pods,
// whose claims get the finalizer only while a Controller runs.
func (r *releaser) claims(ctx context.Context) (found bool, err error) {
	var todo []podsafety.Claim
	err = r.cluster.eachClaim(ctx, func(claim podsafety.Claim) {
		f := podsafety.ClaimFacts{Claim: claim, RemovingFinalizers: true}
		if podsafety.DecideClaim(f, r.cfg.Clock.Now()) == podsafety.ReleaseClaim {
			todo = append(todo, claim)
		}
	})
	return len(todo) > 0, errors.Join(controller.Each(ctx, r.cfg.Workers, todo, func(claim podsafety.Claim) error {
		err := r.patchClaim(ctx, claim, podsafety.ReleaseClaim)
		if err == nil {
			r.count(ctx, func(out *Released) { out.Claims++ })
		}
		if errors.Is(err, kube.ErrGone) {
			return nil
		}
		return err
	}), err)
}

func (r *releaser) locks(ctx context.Context) error {
	locks, err := r.volumeLocks.client.list(ctx)
	switch {
	case r.nothingToRemove(err):
		return nil
	case err != nil:
		return err
	}
	var errs []error
	for _, l := range locks {
		f := podsafety.LockFacts{Locked: true, RemovingLocks: true}
		if podsafety.DecideLock(f, r.cfg.Clock.Now()) != podsafety.RemoveLock {
			continue
		}
		err := r.volumeLocks.set(ctx, l, nil)
		if err == nil {
			r.count(ctx, func(out *Released) { out.Locks++ })
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
