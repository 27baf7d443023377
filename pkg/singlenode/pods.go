package singlenode

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"
	"unique"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// pod is the cached part of a pod with claims. Most pods run and take little memory.
type pod struct {
	namespace, name string
	uid             types.UID
	node            string
	claims          []string
	// created is the creation time in seconds since 1970.
	created int64
	// all has every field that decisions need. It is nil for a pod that has no gate, is not terminating or final, and fits
	// a node.
	all *singlenode.Pod
}

// podOf converts a Pod and keeps no reference to it.
func podOf(o *v1.Pod) *pod {
	all := objects.PodOf(o)
	p := &pod{namespace: unique.Make(o.Namespace).Value(), name: o.Name, uid: o.UID,
		node: unique.Make(o.Spec.NodeName).Value(), claims: all.Claims, created: o.CreationTimestamp.Unix()}
	if all.Gated || all.Terminating || all.Final || all.Unschedulable {
		p.all = &all
	}
	return p
}

func (p *pod) objectName() cache.ObjectName { return cache.NewObjectName(p.namespace, p.name) }

func (p *pod) key() string { return p.objectName().String() }

// claimKeys returns the keys of its claims.
func (p *pod) claimKeys() (keys []string) {
	for _, name := range p.claims {
		keys = append(keys, keyOf(p.namespace, name))
	}
	return keys
}

func (p *pod) waiting() waiting { return waiting{p.key(), p.created} }

func (p *pod) gated() bool { return p.all != nil && p.all.Gated }

// groups returns the group of the pod in podsOn, and in gatedIn, empty for none.
func (p *pod) groups() (node, gated string) {
	switch {
	case p == nil:
		return "", ""
	case p.gated():
		return p.node, p.namespace
	}
	return p.node, ""
}

// facts returns the pod for decisions.
func (p *pod) facts() singlenode.Pod {
	if p.all != nil {
		return *p.all
	}
	return objects.Pod{Namespace: p.namespace, Name: p.name, UID: p.uid, Node: p.node, Claims: p.claims}
}

// same reports whether two states are equal in everything that decisions depend on.
func (p *pod) same(other *pod) bool {
	if p.all == nil || other.all == nil {
		return reflect.DeepEqual(p, other)
	}
	a, b := *p.all, *other.all
	a.ResourceVersion, b.ResourceVersion = "", ""
	return reflect.DeepEqual(a, b)
}

// recordPod keeps pods with the gate, and pods with claims in a namespace that asks for locks. Other pods are left out,
// with a record if one of their claims has a lock or a waiting pod, and nil otherwise.
func recordPod(o *observer) kube.Recorder[*pod] {
	return kube.RecordSome(func(p *v1.Pod, known bool) (*pod, bool) {
		keep := objects.HasVolumeGate(p) || objects.HasClaims(p) && o.modeOf(p.Namespace) != singlenode.ModeOff
		if !keep && !known && !slices.ContainsFunc(objects.PodOf(p).Claims, func(claim string) bool {
			return o.concerned(keyOf(p.Namespace, claim))
		}) {
			return nil, false
		}
		return podOf(p), keep
	})
}

// podEvents is the handler of the watch of pods.
type podEvents struct {
	kube.OnEachChange[*pod]
	deleted func(last *pod)
}

// Deleted implements kube.Handler. A list that lacks the pod does not show its end as an event does: a proxy that
// filters lists returns a shorter one without an error.
func (e podEvents) Deleted(last *pod, final bool) {
	if final {
		e.deleted(last)
	}
	e.OnEachChange.Deleted(last, final)
}

func (o *observer) podHandler() podEvents {
	return podEvents{kube.OnEachChange[*pod]{OnChange: o.podChanged, LeftOutChange: o.leftOutChanged}, o.recordEnd}
}

// podChanged handles the events of the watch of pods.
func (o *observer) podChanged(before, now *pod) {
	o.index(before, now)
	switch {
	case before == nil:
	case now == nil:
		o.ended(before)
	case before.uid != now.uid:
		o.recordEnd(before)
		o.ended(before)
	case !now.gated():
		o.showedNoGate(now.uid)
		o.wake.forgetPod(before.uid)
	}
	if now != nil && (before == nil || !before.same(now)) {
		o.concern(now)
	}
}

// leftOutChanged handles the events of pods that the cache leaves out.
func (o *observer) leftOutChanged(before, now *pod) {
	switch {
	case now != nil:
		o.concern(now)
	case before != nil:
		o.ended(before)
	}
}

// concern enqueues everything that the state of a pod affects: the pod, the locks of its claims, and the pods that wait
// for them.
func (o *observer) concern(p *pod) {
	if !o.wake.working() {
		return
	}
	if p.gated() {
		o.wake.pod(p.key())
	}
	o.concernUsed(p, false)
}

// concernUsed enqueues the locks of the claims of a pod, and the pods that wait for it. Pods wait for a gated pod only
// if it has a lock. Once a pod has ended, the pods that wait for its lock are enqueued by the freed claim.
func (o *observer) concernUsed(p *pod, ended bool) {
	for _, key := range p.claimKeys() {
		c, found := o.claims.Get(key)
		holds := found && c.Lock.UID == p.uid
		if p.gated() && !holds {
			continue
		}
		if found && c.marked() {
			o.wake.claim(key)
		}
		if !holds || !ended {
			o.wakeWaiting(key)
		}
	}
}

// ended drops the records of a pod that is no longer in the watch cache.
func (o *observer) ended(p *pod) {
	o.mu.Lock()
	o.tracker.Forget(p.uid)
	o.mu.Unlock()
	o.wake.forgetPod(p.uid)
	o.passTurns(o.turnsOf(p, p.claimKeys()))
	if o.wake.working() {
		o.concernUsed(p, true)
	}
}

// recordEnd records the end of a pod that had a lock. The mutex orders the record before the next event of a claim,
// which ends it.
func (o *observer) recordEnd(p *pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.ContainsFunc(p.claims, func(name string) bool {
		c, found := o.claims.Get(keyOf(p.namespace, name))
		return found && c.Lock.UID == p.uid
	}) {
		o.tracker.SawEnd(p.uid, o.clock.Now())
	}
}

// index replaces the entries of a pod in podsOn, gatedIn and gated, with nil for a pod without entries. Each is
// replaced in one step: an update that changes nothing enqueues nothing, so an event of another object, at the same
// time, must find the pod.
func (o *observer) index(before, now *pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := cmp.Or(now, before).objectName()
	key := id.String()
	fromNode, fromGated := before.groups()
	toNode, toGated := now.groups()
	o.podsOn.Move(fromNode, toNode, id, now)
	o.gatedIn.Move(fromGated, toGated, key, key)
	if before != nil {
		for _, name := range before.claims {
			claim := keyOf(before.namespace, name)
			left := slices.DeleteFunc(o.gated[claim], func(other waiting) bool { return other.key == key })
			o.gated[claim] = left
		}
	}
	if now != nil && now.gated() {
		for _, name := range now.claims {
			claim := keyOf(now.namespace, name)
			one := now.waiting()
			i, _ := slices.BinarySearchFunc(o.gated[claim], one, waiting.compare)
			o.gated[claim] = slices.Insert(o.gated[claim], i, one)
		}
	}
	if before != nil {
		for _, claim := range before.claimKeys() {
			if len(o.gated[claim]) == 0 {
				delete(o.gated, claim)
				delete(o.turns, claim)
			}
		}
	}
}

// waiting returns the keys of the gated pods that name a claim, the oldest first.
func (o *observer) waiting(claim string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys := make([]string, 0, len(o.gated[claim]))
	for _, w := range o.gated[claim] {
		keys = append(keys, w.key)
	}
	return keys
}

// concerned reports whether a claim has a lock, or a gated pod waits for it.
func (o *observer) concerned(key string) bool {
	if c, found := o.claims.Get(key); found && c.marked() {
		return true
	}
	return len(o.waiting(key)) > 0
}

// current returns the pod under a key in the watch cache, and the same pod after the writes of this process. The lock
// covers both reads: in between, the watch could show a write and end its record, while the pod from the first read is
// older.
func (o *observer) current(key string) (p *pod, written singlenode.Pod, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p, found = o.pods.Get(key); !found {
		return nil, singlenode.Pod{}, false
	}
	return p, o.tracker.Expected(p.facts()), true
}

// gatedPod returns the pod with this UID under a key, if the watch cache shows it with its gate.
func (o *observer) gatedPod(key string, uid types.UID) (p *pod, found bool) {
	p, found = o.pods.Get(key)
	return p, found && p.uid == uid && p.gated()
}

// removedGate records that this process has removed the gate of a pod, unless the watch already shows it. The lock
// orders the record before the next event of the watch.
func (o *observer) removedGate(key string, uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, found := o.gatedPod(key, uid); found {
		o.tracker.RemovedGate(uid)
	}
}

// showedNoGate records that the watch shows a pod without its gate.
func (o *observer) showedNoGate(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tracker.ShowedNoGate(uid)
}

// user adds the records about a pod and its node from the watches.
func (o *observer) user(p singlenode.Pod) singlenode.User {
	fence, _ := o.fences.Get(p.Node)
	u := singlenode.User{Pod: p, NodeSeen: o.nodeSeen(p.Node), FenceSeen: fence.InForce}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.clock.Now()
	if now.Sub(o.pruned) > singlenode.PruneEvery {
		o.tracker.Prune(o.rules, now)
		o.pruned = now
	}
	u.EndedSince, u.Storage = o.tracker.Saw(p, u.NodeSeen, now), o.tracker.Storages[p.Node]
	return u
}

// observe returns a pod and the facts about it without a live read.
func (o *observer) observe(key string) (p *pod, f singlenode.Facts, found bool) {
	p, written, found := o.current(key)
	if !found {
		return nil, f, false
	}
	f = singlenode.Facts{Rules: o.rules, Mode: o.modeOf(p.namespace), Pod: written}
	for _, name := range p.claims {
		if c, found := o.claims.Get(keyOf(p.namespace, name)); found {
			f.Claims = append(f.Claims, singlenode.ClaimFacts{Claim: o.complete(c), Holder: o.holder(c)})
		}
	}
	return p, f, true
}

// settlingFor is the minimal age of a pod before a claim that it cannot use is reported. The claim of an ephemeral
// volume is created after the pod, and the claim of an earlier pod with the same name is deleted only then.
const settlingFor = 5 * time.Second

// settles reports whether a wait may end by itself while a pod is young.
func settles(r singlenode.Reason) bool {
	return r == singlenode.ReasonClaimMissing || r == singlenode.ReasonClaimOfOther ||
		r == singlenode.ReasonClaimTerminating
}

// reconcile works on the gated pod of a key.
func (c *Controller) reconcile(ctx context.Context, key string) controller.Result {
	p, facts, found := c.observer.observe(key)
	if !found {
		return controller.Done()
	}
	waits := c.observer.waitsForTurn(p, facts)
	free, _ := freeClaims(facts)
	turns := c.observer.turnsOf(p, free)
	if waits {
		c.observer.passTurns(turns)
		return controller.Done()
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("pod", key))
	s, err := c.carryOut(ctx, facts)
	if ctx.Err() != nil {
		return controller.Done()
	}
	if s.End != session.Conflicted { // otherwise another pod has the lock, or this one tries again at once
		c.observer.passTurns(turns)
	}
	pod := s.Facts.Pod
	if p, waits := c.observer.gatedPod(key, pod.UID); waits && settles(s.Reason()) {
		if left := settlingFor - c.age(p); left > 0 {
			return controller.After(left)
		}
	}
	about := events.Pod(pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion)
	c.podReports.ReportEnd(ctx, about, &s, s.Facts.Detail(s.Decision), err, true)
	if _, waits := c.observer.gatedPod(key, pod.UID); !waits {
		c.podReports.Forget(pod.UID) // after the report, because no later event may come
	}
	return controller.Retries(c.cfg.Settings).Requeue(s.Requeue(), s.Decision.After)
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
		if ask.Action == singlenode.ReadNamespace && !asks {
			asks = true
			c.ungating.begin(facts.Pod.UID)
		}
		reply, err := c.call(ctx, ask)
		unanswered = ask.Action == singlenode.RemoveGate && reply.Outcome == session.Unanswered
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
		reply, err := c.call(ctx, singlenode.Ask{Action: singlenode.ReadClaim, Namespace: facts.Pod.Namespace, Name: name})
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

// wrote logs a write for a pod, and observes the metric if it removed the gate.
func (c *Controller) wrote(ctx context.Context, s *singlenode.Session, ask singlenode.Ask, why string) {
	klog.FromContext(ctx).V(2).Info("Carried out a step", "action", ask.Action, "reason", why, "object",
		klog.KRef(ask.Namespace, ask.Name))
	if ask.Action == singlenode.TakeLock {
		c.observer.tookLock(keyOf(ask.Namespace, ask.Name))
	}
	// TakeLock has the UID of a claim, which equals no pod's UID.
	if p, found := c.observer.pods.Get(keyOf(ask.Namespace, ask.Name)); found && p.uid == ask.UID {
		c.metrics.gated.Observe(max(0, c.age(p).Seconds()))
	}
}
