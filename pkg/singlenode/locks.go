package singlenode

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"
	"unique"

	"k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// claim is the cached part of a claim, without Unasked and Volume.
type claim struct {
	singlenode.Claim
	// class and volume are the names of its StorageClass and PV, empty for none.
	class, volume string
	// asks reports that it has Label with SelectValue, shared that it requests an access mode for many nodes.
	asks, shared bool
}

// claimOf converts a claim and keeps no reference to it.
func claimOf(o *v1.PersistentVolumeClaim) *claim {
	c := &claim{Claim: singlenode.ClaimOf(o), volume: o.Spec.VolumeName, asks: singlenode.Asks(o.Labels),
		shared: objects.Shared(o.Spec.AccessModes)}
	c.Namespace = unique.Make(o.Namespace).Value()
	c.class = unique.Make(objects.ClaimClass(o)).Value()
	return c
}

func (c *claim) key() string { return keyOf(c.Namespace, c.Name) }

// marked reports whether the claim has a lock, or a part of one.
func (c *claim) marked() bool { return c.Locked || c.Kept }

// same reports whether two states are equal in everything that decisions depend on.
func (c *claim) same(other *claim) bool {
	a, b := *c, *other
	a.ResourceVersion, b.ResourceVersion = "", ""
	return reflect.DeepEqual(a, b)
}

// recordClaim keeps claims in namespaces that ask for locks, and claims that have one.
func recordClaim(modeOf func(namespace string) singlenode.Mode) kube.Recorder[*claim] {
	return kube.RecordSome(func(o *v1.PersistentVolumeClaim, _ bool) (*claim, bool) {
		c := claimOf(o)
		return c, c.marked() || modeOf(o.Namespace) != singlenode.ModeOff
	})
}

// claimChanged handles the events of the watch of claims.
func (o *observer) claimChanged(before, now *claim) {
	last := cmp.Or(now, before)
	same := before != nil && now != nil && before.UID == now.UID
	if before != nil {
		o.showedClaim(before)
		if !same || !now.marked() {
			o.wake.forgetClaim(before.UID)
		}
	}
	switch {
	case !same, now.marked():
		o.noTurn(last.key())
	case before.marked() && o.wake.working():
		o.beginTurn(last.key())
	}
	if !same || !before.same(now) {
		o.concernClaim(last)
	}
}

func (o *observer) concernClaim(c *claim) {
	if !o.wake.working() {
		return
	}
	if _, turn := o.turn(c.key()); turn || c.marked() {
		o.wake.claim(c.key())
	}
	o.wakeWaiting(c.key())
}

// holder returns the pod with the name in a lock, from the watch cache.
func (o *observer) holder(c *claim) singlenode.User {
	p, found := o.pods.Get(keyOf(c.Namespace, c.Lock.Name))
	if !found {
		return singlenode.User{}
	}
	return o.user(p.facts())
}

// observeLock returns the facts about the lock of a claim without a live read. It finds no claim while the watch shows
// a lock that this process has freed: the end of a pod is several events, each of which enqueues the lock.
func (o *observer) observeLock(key string) (singlenode.LockFacts, bool) {
	o.mu.Lock() // see current
	c, found := o.claims.Get(key)
	freed := found && o.outdated[c.UID] == c.ResourceVersion
	o.mu.Unlock()
	if !found || freed {
		return singlenode.LockFacts{}, false
	}
	return o.lockFacts(c), true
}

func (o *observer) lockFacts(c *claim) singlenode.LockFacts {
	f := singlenode.LockFacts{Rules: o.rules, Claim: o.complete(c), Holder: o.holder(c)}
	o.mu.Lock()
	defer o.mu.Unlock()
	f.HolderGone = o.tracker.Gone(c.Lock.UID, o.clock.Now())
	return f
}

// freedLock records that this process has freed the lock that a claim from the cache has, unless the watch already
// shows a later version.
func (o *observer) freedLock(c singlenode.Claim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen, found := o.claims.Get(keyOf(c.Namespace, c.Name))
	if found && seen.UID == c.UID && seen.ResourceVersion == c.ResourceVersion {
		o.outdated[c.UID] = c.ResourceVersion
	}
}

// showedClaim records that the watch shows a later version of a claim, or its end.
func (o *observer) showedClaim(before *claim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.outdated, before.UID)
	o.tracker.ShowedLock(before.Lock.UID)
}

// reconcileLock works on the lock of the claim of a key, or waits for the pod that has its turn to take it.
func (c *Controller) reconcileLock(ctx context.Context, key string) controller.Result {
	if left := c.observer.leftOfTurn(key); left > 0 {
		return controller.After(left)
	}
	facts, found := c.observer.observeLock(key)
	if !found {
		return controller.Done()
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("claim", key))
	s := singlenode.BeginLock(facts, c.cfg.Clock.Now())
	err := c.carryOutLock(ctx, &s)
	if ctx.Err() != nil {
		return controller.Done()
	}
	claim := s.Facts.Claim
	about := events.Object{ObjectReference: events.Claim(claim.Namespace, claim.Name, claim.UID)}
	c.claimReports.ReportEnd(ctx, about, &s, s.Facts.Detail(s.Decision), err, true)
	if now, found := c.observer.claims.Get(key); !found || now.UID != facts.Claim.UID || !now.marked() {
		c.claimReports.Forget(facts.Claim.UID) // the claim or its lock is gone
	}
	return controller.Retries(c.cfg.Settings).Requeue(s.Requeue(), s.Decision.After)
}

func (c *Controller) carryOutLock(ctx context.Context, s *singlenode.LockSession) error {
	claim := s.Facts.Claim
	return controller.Calls[*singlenode.LockSession, singlenode.Ask, answered]{
		Purpose: fmt.Sprintf("find the holder of the lock of claim %q", keyOf(claim.Namespace, claim.Name)),
		Clock:   c.cfg.Clock, Call: c.call, Wrote: c.wroteLock,
		Answer: func(s *singlenode.LockSession, a answered, sent, now time.Time) { s.Answer(a.Reply, a.sent(sent), now) },
	}.CarryOut(ctx, s)
}

// wroteLock records, logs and counts a freed lock.
func (c *Controller) wroteLock(ctx context.Context, s *singlenode.LockSession, ask singlenode.Ask, why string) {
	c.observer.freedLock(s.Facts.Claim)
	klog.FromContext(ctx).V(2).Info("Carried out a step", "action", ask.Action, "reason", why, "holder",
		s.Facts.Claim.Lock.Name)
	c.metrics.freed.WithLabelValues(why).Inc()
}
