package podsafety

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
	"unique"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// pod is the cached record of a held or marked pod. It is small for pods that are held and run, which are most of them.
type pod struct {
	namespace, name string
	uid             types.UID
	node            string
	held            bool
	// marked reports the condition NodeUnreachable.
	marked bool
	// all is the full record for decisions, or nil for a held pod that was started and is not terminating.
	all *objects.Pod
}

// podOf returns the record of a Pod, which keeps no reference to o.
func podOf(o *v1.Pod) *pod {
	p := &pod{
		namespace: unique.Make(o.Namespace).Value(), name: o.Name, uid: o.UID, node: unique.Make(o.Spec.NodeName).Value(),
		held: slices.Contains(o.Finalizers, objects.RunningFinalizer), marked: isMarked(o),
	}
	if !p.held || o.DeletionTimestamp != nil || objects.Unstarted(o) {
		all := objects.PodOf(o)
		p.all = &all
	}
	return p
}

func isMarked(o *v1.Pod) bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == objects.NodeUnreachable
	})
}

func (p *pod) objectName() cache.ObjectName { return cache.NewObjectName(p.namespace, p.name) }

// on returns the name of the pod's node, or "" for no pod.
func (p *pod) on() string {
	if p == nil {
		return ""
	}
	return p.node
}

func (p *pod) key() string { return p.objectName().String() }

// facts returns the record for decisions, which for a running pod consists of its identity and node.
func (p *pod) facts() objects.Pod {
	if p.all != nil {
		return *p.all
	}
	return objects.Pod{Namespace: p.namespace, Name: p.name, UID: p.uid, Node: p.node, Held: p.held}
}

// waits reports whether the pod is held and terminating.
func (p *pod) waits() bool { return p.held && p.all != nil && p.all.Terminating }

// recordPod keeps pods that are held or marked. The record of any other pod is not cached, and nil unless its namespace
// asks for pod safety.
func recordPod(modeOf func(namespace string) podsafety.Mode) kube.Recorder[*pod] {
	return kube.RecordSome(func(o *v1.Pod, known bool) (*pod, bool) {
		keep := slices.Contains(o.Finalizers, objects.RunningFinalizer) || isMarked(o)
		if !keep && !known && modeOf(o.Namespace) == podsafety.ModeOff {
			return nil, false
		}
		return podOf(o), keep
	})
}

// podEvents is the handler of the watch of pods.
type podEvents struct {
	kube.OnEachChange[*pod]
	created func(now *pod)
}

// Created implements kube.CreationHandler.
func (e podEvents) Created(now *pod) { e.created(now) }

var _ kube.CreationHandler[*pod] = podEvents{}

func (o *observer) podHandler() podEvents {
	return podEvents{kube.OnEachChange[*pod]{OnChange: o.podChanged, LeftOutChange: o.leftOutChanged}, o.podCreated}
}

// podCreated handles the creation of a pod that the cache keeps.
func (o *observer) podCreated(now *pod) {
	o.starts(nil, now, true)
	o.podChanged(nil, now)
}

// podChanged handles the events of the watch of pods.
func (o *observer) podChanged(before, now *pod) {
	o.podsOn.Move(before.on(), now.on(), cmp.Or(now, before).objectName(), now)
	if before != nil && (now == nil || before.uid != now.uid || before.held && !now.held) {
		o.forget(before)
	}
	if now != nil {
		o.starts(before, now, false)
		o.saw(now)
		o.concern(now)
	}
}

// leftOutChanged handles the events of pods that the cache leaves out.
func (o *observer) leftOutChanged(before, now *pod) {
	switch {
	case now != nil:
		o.concern(now)
	case before != nil && o.drop(before.key(), before.uid):
		o.wake.forget(before)
	}
}

// concern wakes the reconcilers that depend on the state of a pod.
func (o *observer) concern(p *pod) {
	switch {
	case !p.held:
		o.offer(*p.all, p.key())
	case o.due(p):
		o.wake.pod(p.key())
	}
	if o.toMark(p.node) != p.marked {
		o.wake.node(p.node)
	}
}

// due reports whether a held pod may need work. A pod without a node is on none that is absent.
func (o *observer) due(p *pod) bool {
	return p.waits() || p.held && o.rules.CollectOrphans && o.nodeSeen(p.node) == objects.NodeAbsent
}

// saw records the state of a held, terminating pod.
func (o *observer) saw(p *pod) {
	if !p.waits() {
		return
	}
	o.mu.Lock()
	o.tracker.Saw(*p.all, o.nodeSeen(p.node), o.clock.Now())
	o.mu.Unlock()
	o.waiting.Move("", p.node, p.objectName(), p)
}

// waitingOn returns the held, terminating pods of a node, sorted by key.
func (o *observer) waitingOn(node string) []*pod {
	pods := o.waiting.In(node)
	slices.SortFunc(pods, func(a, b *pod) int { return cmp.Compare(a.key(), b.key()) })
	return pods
}

// waitingAll returns the nodes of all held, terminating pods, and the UIDs of these pods.
func (o *observer) waitingAll() (nodes []string, pods map[types.UID]bool) {
	pods = map[types.UID]bool{}
	for _, p := range o.waiting.All() {
		nodes, pods[p.uid] = append(nodes, p.node), true
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), pods
}

// forget drops the records of a pod that is gone or no longer held.
func (o *observer) forget(p *pod) {
	o.mu.Lock()
	o.tracker.Forget(p.uid)
	o.mu.Unlock()
	o.waiting.Move(p.node, "", p.objectName(), nil)
	o.wake.forget(p)
	// A running pod has no volumes in its record: its claims are decided again in a while.
	for _, name := range p.facts().Ephemeral {
		o.wake.claim(claimKey(p.namespace, name))
	}
}

// offer enqueues a pod as a candidate if it must get the finalizer. A candidate that must not any more, such as one
// that became terminating before the write, is dropped: the API server would refuse each write.
func (o *observer) offer(p objects.Pod, key string) {
	f := podsafety.Facts{Rules: o.rules, Mode: o.modeOf(p.Namespace), Pod: p}
	if podsafety.Decide(f, o.clock.Now()).Action != podsafety.AddFinalizer {
		if o.drop(key, p.UID) {
			o.wake.forget(&pod{uid: p.UID, node: p.Node})
		}
		return
	}
	if !o.wake.working() {
		return
	}
	o.mu.Lock()
	o.candidates[key] = p
	o.mu.Unlock()
	o.wake.pod(key)
}

// drop removes a candidate, unless another pod with its name was offered in the meantime.
func (o *observer) drop(key string, uid types.UID) (dropped bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if dropped = o.candidates[key].UID == uid; dropped {
		delete(o.candidates, key)
	}
	return dropped
}

// settle drops the records of a session about a pod that is gone or no longer held by now, because its end may precede
// the last answer.
func (o *observer) settle(key string, p objects.Pod) {
	if now, found := o.pods.Get(key); found && now.uid == p.UID && now.held {
		return
	}
	o.mu.Lock()
	offered := o.candidates[key].UID == p.UID
	if !offered {
		o.tracker.Forget(p.UID)
	}
	o.mu.Unlock()
	if !offered {
		o.wake.forget(&pod{uid: p.UID, node: p.Node})
	}
}

// observe returns the facts about a pod without a live read.
func (o *observer) observe(key string) (podsafety.Facts, bool) {
	o.mu.Lock()
	f := podsafety.Facts{Rules: o.rules}
	candidate, offered := o.candidates[key]
	o.mu.Unlock()
	switch p, found := o.pods.Get(key); {
	case found && p.held:
		f.Pod = p.facts()
	case offered:
		f.Pod = candidate
	default:
		return f, false
	}
	f.Mode, f.NodeSeen, f.FenceSeen = o.modeOf(f.Pod.Namespace), o.nodeSeen(f.Pod.Node), o.fenceSeen(f.Pod.Node)
	o.mu.Lock()
	defer o.mu.Unlock()
	f.Storage, f.ForceRefusedSince = o.tracker.Storages[f.Pod.Node], o.forceRefusedIn(f.Pod.Namespace)
	return f, true
}

// begin returns a session on these facts, recorded in the tracker.
func (o *observer) begin(f podsafety.Facts, now time.Time) podsafety.Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	return podsafety.Begin(o.tracker, f, now)
}

func (o *observer) answer(s *podsafety.Session, reply podsafety.Reply, sent, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Answer(o.tracker, reply, sent, now)
}

func (c *Controller) reconcile(ctx context.Context, key string) controller.Result {
	facts, found := c.observer.observe(key)
	if !found {
		return controller.Done()
	}
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("pod", key))
	s := c.observer.begin(facts, c.cfg.Clock.Now())
	err := c.carryOut(ctx, &s, c.observer.answer)
	if ctx.Err() != nil {
		return controller.Done()
	}
	c.recorder.ReportEnd(ctx, eventOn(s.Facts.Pod), &s, s.Facts.Detail(s.Reason()), err, false)
	// Without the write of a dry run, the pod stays a candidate with its report.
	again := s.Requeue()
	if again != session.RequeueRetry && again != session.RequeueSoon && s.End != session.Skipped {
		c.observer.drop(key, facts.Pod.UID)
	}
	c.observer.settle(key, facts.Pod)
	// A pod that is released at once needs no locks.
	if s.Facts.Pod.Terminating {
		c.locks(s.Facts.Pod.Node)
	}
	if s.End == session.Skipped && !s.Facts.Pod.Held {
		return controller.Every(candidateEvery) // no event of the pod shows that its namespace asks for no hold any more
	}
	return controller.Retries(c.cfg.Settings).Requeue(s.Requeue(), s.Decision.After)
}

// candidateEvery is the interval at which a candidate of a dry run is decided again.
const candidateEvery = 5 * time.Minute

type answerer = func(s *podsafety.Session, reply podsafety.Reply, sent, now time.Time)

// carryOut makes the calls that a session asks for until it ends: see controller.Calls.
func (c *Controller) carryOut(ctx context.Context, s *podsafety.Session, answer answerer) error {
	return controller.Calls[*podsafety.Session, podsafety.Ask, podsafety.Reply]{
		Purpose: fmt.Sprintf("find evidence for pod %q", s.Facts.Pod.Namespace+"/"+s.Facts.Pod.Name),
		Clock:   c.cfg.Clock, Call: c.call, Answer: answer, Wrote: c.wrote,
	}.CarryOut(ctx, s)
}

// wrote logs and counts a write, and reports the deletion of an orphan, because the session does not end with it.
func (c *Controller) wrote(ctx context.Context, s *podsafety.Session, ask podsafety.Ask, why string) {
	klog.FromContext(ctx).V(2).Info("Carried out a step", "action", ask.Action, "reason", why)
	switch ask.Action {
	case podsafety.AddFinalizer:
		c.metrics.added.Inc()
	case podsafety.ForceDelete:
		c.metrics.forceDeleted.WithLabelValues(why).Inc()
		if reason := podsafety.Reason(why); reason == podsafety.ReasonOrphaned {
			c.recorder.Event(ctx, eventOn(s.Facts.Pod), reason, s.Facts.Detail(reason))
		}
	case podsafety.RemoveFinalizer:
		c.metrics.released.WithLabelValues(why).Inc()
	default:
	}
}

// eventOn returns the object of reports on a pod.
func eventOn(p objects.Pod) events.Object {
	return events.Pod(p.Namespace, p.Name, p.UID, p.ResourceVersion)
}

// hold offers the finalizer to the pods that a namespace had before it asked for pod safety, and to their claims.
func (c *Controller) hold(ctx context.Context, namespace string) controller.Result {
	mode := c.observer.modeOf(namespace)
	switch mode {
	case podsafety.ModeOff:
		return controller.Done()
	case podsafety.ModeEnforce:
		for _, key := range c.observer.dueClaims(namespace) {
			c.claims.Add(key)
		}
	default:
	}
	err := c.cluster.eachPod(ctx, namespace, "", func(o *v1.Pod) {
		p := objects.PodOf(o)
		if mode == podsafety.ModeEnforce && !p.Held {
			c.observer.offer(p, cache.NewObjectName(o.Namespace, o.Name).String())
		}
		if !isMarked(o) && c.observer.toMark(p.Node) {
			c.observer.wake.node(p.Node)
		}
	})
	return c.failed(ctx, "List the pods of a namespace to be held", err, "namespace", namespace)
}
