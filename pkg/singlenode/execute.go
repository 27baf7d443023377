package singlenode

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// settlingFor is the minimal age of a pod before a claim that it cannot use is reported. The claim of an ephemeral
// volume is created after the pod, and the claim of an earlier pod with the same name is deleted only then.
const settlingFor = 5 * time.Second

// settles reports whether a wait may end by itself while a pod is young.
func settles(r singlenode.Reason) bool {
	return r == singlenode.ReasonClaimMissing || r == singlenode.ReasonClaimOfOther ||
		r == singlenode.ReasonClaimTerminating
}

// answered is the reply to a call.
type answered struct {
	singlenode.Reply
	// began, if not zero, is when the call behind the reply began: a shared list begins later than its request.
	began time.Time
}

// sent returns the time at which the request behind the reply was sent.
func (a answered) sent(asked time.Time) time.Time {
	if a.began.IsZero() {
		return asked
	}
	return a.began
}

// reconcile works on the gated pod of a key.
func (c *Controller) reconcile(ctx context.Context, key string) controller.Result {
	facts, found := c.observer.observe(key)
	if !found || c.observer.waitsForTurn(key) {
		return controller.Done()
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("pod", key))
	s, err := c.carryOut(ctx, facts)
	if ctx.Err() != nil {
		return controller.Done()
	}
	p, found := c.observer.pods.Get(key)
	if !found || p.uid != facts.Pod.UID || !p.gated() {
		defer c.podReports.Forget(facts.Pod.UID) // the pod or its gate is gone
	} else if settles(s.Reason()) {
		if left := settlingFor - c.age(p); left > 0 {
			return controller.After(left)
		}
	}
	pod := s.Facts.Pod
	about := events.Pod(pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion)
	c.podReports.ReportEnd(ctx, about, &s, s.Facts.Detail(s.Decision), err, true)
	return c.cfg.Retries().Requeue(s.Requeue(), s.Decision.After)
}

func (c *Controller) age(p *pod) time.Duration { return c.cfg.Clock.Now().Sub(time.Unix(p.created, 0)) }

// carryOut carries out a session about a gated pod. A claim that is missing in the watch cache may exist, so it is read
// before the session ends for this reason.
func (c *Controller) carryOut(ctx context.Context, facts singlenode.Facts) (s singlenode.Session, err error) {
	asks, unanswered := false, false // the namespace is read; the request for the gate is unanswered
	defer func() {
		if asks {
			c.ungating.end(facts.Pod.UID, unanswered, c.cfg.Clock.Now())
		}
	}()
	call := func(ctx context.Context, ask singlenode.Ask) (answered, error) {
		if ask.Call == singlenode.GetNamespace && !asks {
			asks = true
			c.ungating.begin(facts.Pod.UID)
		}
		reply, err := c.call(ctx, ask)
		unanswered = ask.Call == singlenode.PatchGate && reply.Outcome == session.Unanswered
		return reply, err
	}
	calls := controller.Calls[*singlenode.Session, singlenode.Ask, answered]{
		Purpose: fmt.Sprintf("find the users of the claims of pod %q", keyOf(facts.Pod.Namespace, facts.Pod.Name)),
		Clock:   c.cfg.Clock, Call: call, Wrote: c.wrote,
		Answer: func(s *singlenode.Session, a answered, sent, now time.Time) { s.Answer(a.Reply, a.sent(sent), now) },
	}
	for range len(facts.Pod.Claims) + 1 {
		s = singlenode.Begin(facts, c.cfg.Clock.Now())
		err = calls.CarryOut(ctx, &s)
		if s.Decision.Reason != singlenode.ReasonClaimMissing {
			break
		}
		name := s.Decision.Claim
		if slices.ContainsFunc(facts.Claims, func(f singlenode.ClaimFacts) bool { return f.Claim.Name == name }) {
			break // the session has read it
		}
		reply, err := c.call(ctx, singlenode.Ask{Call: singlenode.GetClaim, Namespace: facts.Pod.Namespace, Name: name})
		if err != nil {
			s.End = session.CallFailed
			s.Decision.Action = singlenode.ReadClaim
			return s, err
		}
		if reply.Claim.UID == "" {
			break
		}
		facts.Claims = append(facts.Claims, singlenode.ClaimFacts{Claim: reply.Claim})
	}
	return s, err
}

// reconcileLock works on the lock of the claim of a key, or waits for the pod that has its turn to take it.
func (c *Controller) reconcileLock(ctx context.Context, key string) controller.Result {
	if left := c.observer.endTurn(key); left > 0 {
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
	return c.cfg.Retries().Requeue(s.Requeue(), s.Decision.After)
}

func (c *Controller) carryOutLock(ctx context.Context, s *singlenode.LockSession) error {
	claim := s.Facts.Claim
	return controller.Calls[*singlenode.LockSession, singlenode.Ask, answered]{
		Purpose: fmt.Sprintf("find the holder of the lock of claim %q", keyOf(claim.Namespace, claim.Name)),
		Clock:   c.cfg.Clock, Call: c.call, Wrote: c.wroteLock,
		Answer: func(s *singlenode.LockSession, a answered, sent, now time.Time) { s.Answer(a.Reply, a.sent(sent), now) },
	}.CarryOut(ctx, s)
}

// slot waits for permission to make one more call, and returns the function that ends the call.
func (c *Controller) slot(ctx context.Context) (end func(), err error) {
	select {
	case c.slots <- struct{}{}:
		return func() { <-c.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// call makes a call, and returns an error for any outcome but Succeeded.
func (c *Controller) call(ctx context.Context, ask singlenode.Ask) (reply answered, err error) {
	if ask.Call == singlenode.ListUsers {
		reply, err = c.usersOf(ctx, ask)
	} else {
		reply.Reply, err = c.callOne(ctx, ask)
	}
	reply.Outcome = controller.OutcomeOf(err)
	return reply, err
}

// callOne makes a call about one object.
func (c *Controller) callOne(ctx context.Context, ask singlenode.Ask) (reply singlenode.Reply, err error) {
	end, err := c.slot(ctx)
	if err != nil {
		return reply, err
	}
	defer end()
	switch ask.Call {
	case singlenode.GetNamespace:
		reply.Mode, err = c.cluster.readMode(ctx, ask.Namespace)
	case singlenode.GetClaim:
		reply.Claim, err = c.readClaim(ctx, ask)
	case singlenode.GetPod:
		p, found, failed := c.cluster.readPod(ctx, ask.Namespace, ask.Name)
		if err = failed; found {
			reply.Users = []singlenode.User{c.observer.user(p)}
		}
	case singlenode.GetFence:
		reply.Fence, err = c.cluster.readFence(ctx, ask.Name, ask.UID)
	case singlenode.GetNode:
		reply.Node, err = c.cluster.readNode(ctx, ask.Name)
	case singlenode.PatchClaim:
		var o *claim
		if o, err = c.cluster.patchClaim(ctx, ask); err == nil {
			reply.Claim = o.Claim
		}
	case singlenode.PatchGate:
		if err = c.cluster.patchGate(ctx, ask); err == nil {
			c.observer.removedGate(keyOf(ask.Namespace, ask.Name), ask.UID)
		}
	case singlenode.NoCall, singlenode.ListUsers: // never pending here
	}
	return reply, err
}

// readClaim reads a claim, and confirms by live reads of its StorageClass and PV that it needs no lock.
func (c *Controller) readClaim(ctx context.Context, ask singlenode.Ask) (singlenode.Claim, error) {
	o, found, err := c.cluster.readClaim(ctx, ask.Namespace, ask.Name)
	if !found {
		return singlenode.Claim{}, err
	}
	out, asking := c.observer.complete(o), c.observer.asking(o, ask.Mode)
	if out.Unasked = asking.Unasked(); !out.Unasked || o.shared {
		return out, nil
	}
	if o.class != "" {
		seen, found, err := c.cluster.readClass(ctx, o.class)
		if err != nil {
			return singlenode.Claim{}, err
		}
		asking.Class, asking.ClassSeen = askingLabels(seen.asks), found
	}
	seen, found, err := c.cluster.readVolume(ctx, o.volume)
	if err != nil {
		return singlenode.Claim{}, err
	}
	asking.PV, asking.PVSeen = askingLabels(seen.asks), found
	out.Unasked = asking.Unasked()
	return out, nil
}

// usersOf returns the pods that use some claims.
func (c *Controller) usersOf(ctx context.Context, ask singlenode.Ask) (reply answered, err error) {
	var pods []singlenode.Pod
	pods, reply.began, err = c.users.of(ctx, ask.Namespace)
	for _, p := range pods {
		if slices.ContainsFunc(p.Claims, func(name string) bool { return slices.Contains(ask.Claims, name) }) {
			reply.Users = append(reply.Users, c.observer.user(p))
		}
	}
	return reply, err
}

// listUsers lists the pods of a namespace that have claims and no gate, or may be about to lose it without a lock.
func (c *Controller) listUsers(ctx context.Context, namespace string) (pods []singlenode.Pod, err error) {
	end, err := c.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	c.metrics.lists.Inc()
	err = c.cluster.eachPod(ctx, namespace, func(o *v1.Pod) {
		p := objects.PodOf(o)
		if p.Gated = p.Gated && !c.ungating.may(p.UID, c.cfg.Clock.Now()); !p.Gated && len(p.Claims) > 0 {
			pods = append(pods, p)
		}
	})
	return pods, err
}

// wrote logs a write for a pod, and observes the metric if it removed the gate.
func (c *Controller) wrote(ctx context.Context, s *singlenode.Session, ask singlenode.Ask, why string) {
	klog.FromContext(ctx).V(2).Info("Carried out a step", "action", ask.Action, "reason", why, "object",
		klog.KRef(ask.Namespace, ask.Name))
	// TakeLock has the UID of a claim, which equals no pod's UID.
	if p, found := c.observer.pods.Get(keyOf(ask.Namespace, ask.Name)); found && p.uid == ask.UID {
		c.metrics.gated.Observe(max(0, c.age(p).Seconds()))
	}
}

// wroteLock records, logs and counts a freed lock.
func (c *Controller) wroteLock(ctx context.Context, s *singlenode.LockSession, ask singlenode.Ask, why string) {
	c.observer.freedLock(s.Facts.Claim)
	klog.FromContext(ctx).V(2).Info("Carried out a step", "action", ask.Action, "reason", why, "holder",
		s.Facts.Claim.Lock.Name)
	c.metrics.freed.WithLabelValues(why).Inc()
}
