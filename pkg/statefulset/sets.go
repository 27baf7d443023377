package statefulset

import (
	"reflect"
	"slices"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// keyOf returns the key of an object in caches and queues.
func keyOf(namespace, name string) string { return cache.NewObjectName(namespace, name).String() }

// recordClaim and recordPod keep the claims and pods that may concern a set, even if the set appears only later.
var recordClaim, recordPod = kube.RecordIf(claimOf, (*claim).matters), kube.RecordIf(podOf, podMatters)

// shaped reports whether a set may give the name to a claim, or to a pod.
func shaped(name string) bool {
	_, _, ok := statefulset.SplitClaimName(name)
	return ok
}

// setOf returns the cached record of a StatefulSet. The cache keeps every set, because a set without a policy may give
// a claim the same name as another set.
func setOf(o *appsv1.StatefulSet) *statefulset.Set {
	s := statefulset.SetOf(o)
	s.Namespace = unique.Make(o.Namespace).Value()
	return &s
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

// changed records a change of a set, its pods or its claims, and enqueues the set.
func (o *observer) changed(s *statefulset.Set) {
	key := keyOf(s.Namespace, s.Name)
	o.mu.Lock()
	o.changes[key] = o.clock.Now()
	o.mu.Unlock()
	o.wake.set(key)
}

// podOf returns the cached record of a pod, without the names of claims that no set can have made.
func podOf(o *v1.Pod) statefulset.Pod {
	p := statefulset.PodOf(o)
	p.Namespace, p.Controller = unique.Make(o.Namespace).Value(), unique.Make(p.Controller).Value()
	p.Claims = slices.Clip(slices.DeleteFunc(p.Claims, func(name string) bool { return !shaped(name) }))
	return p
}

func podMatters(p *statefulset.Pod) bool { return shaped(p.Name) || len(p.Claims) > 0 }

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
