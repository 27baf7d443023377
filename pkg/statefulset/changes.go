package statefulset

import (
	"reflect"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
)

// wakeClaim enqueues a claim, if it may need work.
func (o *observer) wakeClaim(namespace, name string) {
	key := keyOf(namespace, name)
	if c, found := o.claims.Get(key); found && o.concerned(c) {
		o.wake.claim(key)
	}
}

// changed records a change of a set, its pods or its claims, and enqueues the set.
func (o *observer) changed(s *statefulset.Set) {
	key := keyOf(s.Namespace, s.Name)
	o.mu.Lock()
	o.changes[key] = o.clock.Now()
	o.mu.Unlock()
	o.wake.set(key)
}

// claimChanges handles the events of the watch of claims.
type claimChanges struct{ *observer }

func (o claimChanges) Added(now *claim) {
	o.index.claim(now, true)
	o.concern(now)
}

func (o claimChanges) Updated(before, now *claim) {
	if before.uid != now.uid {
		o.forgetClaim(before)
	}
	if !before.same(now) {
		o.concern(now)
	}
}

func (o claimChanges) Deleted(last *claim, _ bool) {
	o.index.claim(last, false)
	o.forgetClaim(last)
	o.concern(last)
}

// concern enqueues everything that the state of a claim affects.
func (o *observer) concern(c *claim) {
	if !o.wake.working() {
		return
	}
	o.wakeClaim(c.namespace, c.name)
	base, _, _ := statefulset.SplitClaimName(c.name)
	for _, s := range o.setsWith(c.namespace, base) {
		if matters(s) {
			o.changed(s)
		}
	}
}

// podChanged handles the events of the watch of pods.
func (o *observer) podChanged(before, now *statefulset.Pod) {
	if reflect.DeepEqual(before, now) {
		return // only the status changed, as in most updates of a pod
	}
	o.index.pod(before, now)
	o.concernPod(before)
	o.concernPod(now)
}

// concernPod enqueues everything that the state of a pod affects: its claims, the claims of its ordinal, and its set.
func (o *observer) concernPod(p *statefulset.Pod) {
	if p == nil || !o.wake.working() {
		return
	}
	for _, name := range p.Claims {
		o.wakeClaim(p.Namespace, name)
	}
	s, ordinal, found := o.podOrdinal(p)
	if !found {
		return
	}
	for _, template := range s.Templates {
		o.wakeClaim(p.Namespace, s.ClaimName(template, ordinal))
	}
	if matters(s) {
		o.changed(s)
	}
}

// setChanges handles the events of the watch of StatefulSets.
type setChanges struct{ *observer }

func (o setChanges) Added(now *statefulset.Set) {
	o.index.set(nil, now)
	o.deleted.lives(now)
	o.concernSet(nil, now)
}

func (o setChanges) Updated(before, now *statefulset.Set) {
	o.index.set(before, now)
	if before.UID != now.UID {
		o.deleted.add(*before, false, o.clock.Now())
		o.forgetSet(before)
	}
	o.deleted.lives(now)
	o.concernSet(before, now)
}

func (o setChanges) Deleted(last *statefulset.Set, final bool) {
	o.index.set(last, nil)
	o.deleted.add(*last, final, o.clock.Now())
	o.forgetSet(last)
	o.concernSet(last, nil)
}

// concernSet enqueues everything that a change of a set affects: the set and, if more than its status changed, its
// claims and the sets that share them. Either state may be nil.
func (o *observer) concernSet(before, now *statefulset.Set) {
	if !o.wake.working() {
		return
	}
	if now != nil && (matters(now) || before != nil && matters(before)) {
		o.changed(now)
	}
	if reflect.DeepEqual(before, now) {
		return
	}
	for _, s := range []*statefulset.Set{before, now} {
		if s == nil {
			continue
		}
		for _, name := range o.index.claimsOf(s) {
			if s.Policy.Keeps() {
				o.wakeClaim(s.Namespace, name)
			} else {
				o.wake.claim(keyOf(s.Namespace, name))
			}
		}
		for _, template := range s.Templates {
			for _, other := range o.setsWith(s.Namespace, s.ClaimBase(template)) {
				if matters(other) {
					o.changed(other)
				}
			}
		}
	}
}
