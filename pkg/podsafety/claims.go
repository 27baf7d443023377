package podsafety

import (
	"cmp"
	"context"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// claimEvery is the interval at which a terminating claim is decided again while its pod is held, in case the event
// that shows the release of the pod was missed.
const claimEvery = time.Minute

// claimKey returns the key of a claim, or of its pod, in caches and queues.
func claimKey(namespace, name string) string { return cache.NewObjectName(namespace, name).String() }

// recordClaim keeps the claims of generic ephemeral volumes, and claims with the finalizer.
var recordClaim = kube.RecordSome(func(o *v1.PersistentVolumeClaim, _ bool) (c podsafety.Claim, keep bool) {
	c = podsafety.ClaimOf(o)
	return c, c.Held || c.PodUID != ""
})

// claimChanged handles the events of the watch of claims.
func (o *observer) claimChanged(before, now podsafety.Claim) {
	key := claimKey(cmp.Or(now.Namespace, before.Namespace), cmp.Or(now.Name, before.Name))
	o.claimsIn.Move(before.Namespace, now.Namespace, key, key)
	if o.isClaimDue(now) {
		o.wake.claim(key)
	}
}

// claimFacts returns the facts about a claim without a live read.
func (o *observer) claimFacts(c podsafety.Claim) podsafety.ClaimFacts {
	f := podsafety.ClaimFacts{Claim: c, Mode: o.modeOf(c.Namespace)}
	if p, found := o.pods.Get(claimKey(c.Namespace, c.Pod)); found {
		f.Pod = p.facts()
	}
	return f
}

func (o *observer) isClaimDue(c podsafety.Claim) bool {
	return podsafety.DecideClaim(o.claimFacts(c), o.clock.Now()) != podsafety.LeaveClaim
}

// dueClaims returns the keys of the claims of a namespace that may need work.
func (o *observer) dueClaims(namespace string) (keys []string) {
	for _, key := range o.claimsIn.In(namespace) {
		if c, found := o.claims.Get(key); found && o.isClaimDue(c) {
			keys = append(keys, key)
		}
	}
	return keys
}

// beginClaims enqueues every claim in the cache that may need work.
func (c *Controller) beginClaims(ctx context.Context) {
	var keys []string
	c.observer.claims.Each(func(of podsafety.Claim) {
		if c.observer.isClaimDue(of) {
			keys = append(keys, claimKey(of.Namespace, of.Name))
		}
	})
	c.claims.AddAll(ctx, keys)
}

// settleClaim adds the finalizer to a claim, or removes it.
func (c *Controller) settleClaim(ctx context.Context, key string) controller.Result {
	claim, found := c.observer.claims.Get(key)
	if !found {
		return controller.Done()
	}
	f := c.observer.claimFacts(claim)
	action := podsafety.DecideClaim(f, c.cfg.Clock.Now())
	if action == podsafety.ReadClaimPod {
		sent := c.cfg.Clock.Now()
		pod, _, err := c.cluster.readPod(ctx, claim.Namespace, claim.Pod)
		if err != nil {
			return c.failed(ctx, "Read the pod of a claim", err, "claim", key)
		}
		f.Pod, f.PodRead = pod, session.Read{Sent: sent, Order: 1}
		action = podsafety.DecideClaim(f, c.cfg.Clock.Now())
	}
	switch {
	case action == podsafety.LeaveClaim, c.cfg.DryRun:
		return controller.Done()
	case action == podsafety.AwaitPod, action == podsafety.ReadClaimPod:
		return controller.Every(claimEvery)
	}
	return c.failed(ctx, "Change the finalizers of a claim", c.patchClaim(ctx, claim, action), "claim", key)
}

// patchClaim makes the write of an action.
func (c *Controller) patchClaim(ctx context.Context, claim podsafety.Claim, action podsafety.ClaimAction) error {
	err := c.cluster.patchClaim(ctx, claim, action == podsafety.HoldClaim)
	if err == nil {
		klog.FromContext(ctx).V(2).Info("Carried out a step", "action", action, "claim",
			claimKey(claim.Namespace, claim.Name))
	}
	return err
}
