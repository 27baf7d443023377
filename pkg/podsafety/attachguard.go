package podsafety

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/podhold"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/session"
)

// attachGuard knows the VolumeLocks that exist: those that were listed, and those that this process has created since.
// It is safe for concurrent use.
type attachGuard struct {
	client lockClient

	mu    sync.Mutex
	locks map[string]volumeLock
	// complete are the pods whose volumes all have the lock that they need, by the names of these locks.
	complete map[types.UID][]string
}

func newAttachGuard(client lockClient) *attachGuard {
	return &attachGuard{client: client, locks: map[string]volumeLock{}, complete: map[types.UID][]string{}}
}

// of returns the locks for the pods that had or have a name.
func (g *attachGuard) of(podKey string) (locks []volumeLock) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.locks {
		if l.podKey() == podKey {
			locks = append(locks, l)
		}
	}
	return locks
}

// count returns how many locks there are.
func (g *attachGuard) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.locks)
}

func (g *attachGuard) create(ctx context.Context, l volumeLock) error {
	if err := g.client.create(ctx, l); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.locks[l.name] = l
	return nil
}

func (g *attachGuard) remove(ctx context.Context, l volumeLock) error {
	if err := g.client.delete(ctx, l); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.locks, l.name)
	delete(g.complete, l.holder)
	return nil
}

// finish notes that all volumes of a pod have the lock that they need.
func (g *attachGuard) finish(holder types.UID, locks []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.complete[holder] = locks
}

func (g *attachGuard) finished(holder types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, is := g.complete[holder]
	return is
}

func (g *attachGuard) forget(holder types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.complete, holder)
}

// refresh takes a list of all locks, which was begun when known were known. Pods of which a lock is missing no longer
// count as finished. It returns the pods that the locks are for.
func (g *attachGuard) refresh(listed []volumeLock, known map[string]bool) (podKeys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := map[string]volumeLock{}
	for _, l := range listed {
		now[l.name] = l
		podKeys = append(podKeys, l.podKey())
	}
	for name, l := range g.locks {
		if !known[name] {
			now[name] = l // it was created after the list was begun
		}
	}
	g.locks = now
	for holder, names := range g.complete {
		if slices.ContainsFunc(names, func(name string) bool { _, found := now[name]; return !found }) {
			delete(g.complete, holder)
		}
	}
	return podKeys
}

func (g *attachGuard) names() map[string]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	names := map[string]bool{}
	for name := range g.locks {
		names[name] = true
	}
	return names
}

// locks has the locks of a pod's volumes looked after.
func (c *Controller) locks(podKey string) {
	if c.cfg.VolumeLocks {
		c.lockings.Enqueue(podKey)
	}
}

// lock creates the locks that the volumes of a pod need, and removes those that nothing needs.
func (c *Controller) lock(ctx context.Context, podKey string) controller.Result {
	p, _ := c.observer.pods.Get(podKey)
	facts := podhold.LockFacts{}
	if p != nil {
		facts.Pod, facts.NodeSeen = p.facts(), c.observer.nodeSeen(p.node)
		facts.FenceSeen = c.observer.fenceSeen(p.node)
	}
	var errs []error
	for _, l := range c.guard.of(podKey) {
		errs = append(errs, c.removeUnneeded(ctx, l, facts))
	}
	if p != nil {
		errs = append(errs, c.createNeeded(ctx, facts))
	}
	err := errors.Join(errs...)
	if err != nil && ctx.Err() == nil {
		c.metrics.lockErrors.Inc()
	}
	return c.failed(ctx, "Keep the volumes of a pod from other nodes", err, "pod", podKey)
}

// decideLock returns what to do next about the lock of one volume, after a read of the fence if it depends on that.
func (c *Controller) decideLock(ctx context.Context, f *podhold.LockFacts) (podhold.LockAction, error) {
	action := podhold.DecideLock(*f, c.cfg.Clock.Now())
	if action != podhold.ReadLockFence {
		return action, nil
	}
	sent := c.cfg.Clock.Now()
	fence, err := c.cluster.readFence(ctx, f.Pod.Node, f.Pod.UID)
	if err != nil {
		return podhold.KeepLock, err
	}
	f.Fence, f.Fence.Read = fence, session.Read{Sent: sent, Order: 1}
	return podhold.DecideLock(*f, c.cfg.Clock.Now()), nil
}

// driverOf returns the CSI driver of a volume of a pod, empty for none.
func (c *Controller) driverOf(ctx context.Context, p objects.Pod, name string) (string, error) {
	for _, claim := range p.Claims {
		v, err := c.cluster.readVolume(ctx, p.Namespace, claim)
		if err != nil {
			return "", err
		}
		if v.name == name {
			return v.driver, nil
		}
	}
	return "", nil
}

// removeUnneeded removes a lock unless its pod is held, or if a fence keeps the node from the volume.
func (c *Controller) removeUnneeded(ctx context.Context, l volumeLock, f podhold.LockFacts) (err error) {
	f.Holder, f.Locked = l.holder, true
	if f.FenceSeen && f.Pod.UID == l.holder && f.Pod.Node == l.node {
		if f.Driver, err = c.driverOf(ctx, f.Pod, l.volume); err != nil {
			return err
		}
	}
	action, err := c.decideLock(ctx, &f)
	if err != nil {
		return err
	}
	if action == podhold.ReadHolder {
		sent := c.cfg.Clock.Now()
		p, _, err := c.cluster.readPod(ctx, l.namespace, l.pod)
		if err != nil {
			return err
		}
		f.Pod, f.PodRead = p, session.Read{Sent: sent, Order: 1}
		action = podhold.DecideLock(f, c.cfg.Clock.Now())
	}
	if action != podhold.RemoveLock {
		return nil
	}
	if err := c.guard.remove(ctx, l); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("The volume may be attached to other nodes again", "PV", l.volume, "node", l.node, "pod",
		l.podKey())
	return nil
}

// createNeeded creates the locks of the volumes of a pod, each once.
func (c *Controller) createNeeded(ctx context.Context, f podhold.LockFacts) error {
	f.Holder = f.Pod.UID
	if podhold.DecideLock(f, c.cfg.Clock.Now()) != podhold.CreateLock || c.guard.finished(f.Holder) {
		return nil
	}
	var names []string
	complete := true
	for _, claim := range f.Pod.Claims {
		v, err := c.cluster.readVolume(ctx, f.Pod.Namespace, claim)
		if err != nil {
			return err
		}
		f.Shared, f.Driver = v.shared, v.driver
		if v.name == "" || v.shared {
			continue
		}
		action, err := c.decideLock(ctx, &f)
		if err != nil {
			return err
		}
		if action != podhold.CreateLock {
			complete = false // it may need one when the fence ends
			continue
		}
		l := volumeLock{name: lockName(f.Holder, v.name), volume: v.name, node: f.Pod.Node, namespace: f.Pod.Namespace,
			pod: f.Pod.Name, holder: f.Holder}
		if err := c.guard.create(ctx, l); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("The volume may be attached to no other node", "PV", v.name, "node", l.node, "pod",
			l.podKey())
		names = append(names, l.name)
	}
	if complete {
		c.guard.finish(f.Holder, names)
	}
	return nil
}

// sweepEvery is how often all locks are listed: for those of an earlier leader, and those that somebody has deleted or
// that were created in a write whose answer was lost.
const sweepEvery = time.Minute

// sweepLocks lists all locks until ctx ends, and has each looked after.
func (c *Controller) sweepLocks(ctx context.Context) {
	for {
		known := c.guard.names()
		locks, err := c.guard.client.list(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.metrics.lockErrors.Inc()
			klog.FromContext(ctx).Error(err, "Cannot keep volumes from other nodes while VolumeLocks cannot be read; "+
				"retrying", "after", sweepEvery)
		default:
			for _, key := range c.guard.refresh(locks, known) {
				c.lockings.Add(key)
			}
			c.observer.pods.Each(func(p *pod) {
				if p.waits() && !c.guard.finished(p.uid) {
					c.lockings.Add(p.key())
				}
			})
		}
		timer := c.cfg.Clock.NewTimer(sweepEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}
