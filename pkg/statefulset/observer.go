package statefulset

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// wake enqueues objects without blocking.
type wake interface {
	claim(key string)
	set(key string)
	// forgetClaim and forgetSet are called when an object is gone.
	forgetClaim(c *claim)
	forgetSet(s *statefulset.Set)
	// working reports whether enqueued objects are worked on, which starts with Run.
	working() bool
}

// observer keeps the state of the watches and enqueues the objects that a change affects. It is safe for concurrent
// use.
type observer struct {
	rules statefulset.Rules
	clock interface{ Now() time.Time }
	wake  wake

	sets   kube.Lister[*statefulset.Set]
	pods   kube.Lister[*statefulset.Pod]
	claims kube.Lister[*claim]
	index  *index
	// deleted are deleted sets that may have left claims behind.
	deleted *deletedSets

	mu sync.Mutex
	// tracker and changes are guarded by mu. changes has the time of the last change of a set, its pods or its claims,
	// until the set is worked on: the search for gaps looks at each replica, and must not delay a watch.
	tracker *statefulset.Tracker
	changes map[string]time.Time
}

func newObserver(rules statefulset.Rules, clock interface{ Now() time.Time }, wake wake) *observer {
	return &observer{rules: rules, clock: clock, wake: wake, index: newIndex(), deleted: newDeletedSets(),
		tracker: statefulset.NewTracker(), changes: map[string]time.Time{}}
}

// follow creates the caches without starting them.
func (o *observer) follow(clients kube.Clients, watches *kube.Watches) []controller.Cache {
	core, apps := clients.Core.RESTClient(), clients.Apps.RESTClient()
	sets := kube.NewCache(apps, "statefulsets", &appsv1.StatefulSet{}, kube.RecordAll(setOf), setChanges{o})
	pods := kube.NewCache(core, "pods", &v1.Pod{}, recordPod, kube.OnChange[*statefulset.Pod](o.podChanged))
	claims := kube.NewCache(core, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}, recordClaim, claimChanges{o})
	watches.Share(pods, claims)
	o.sets, o.pods, o.claims = sets, pods, claims
	return []controller.Cache{sets, pods, claims}
}

// observe returns the facts about a claim without a live read. Absent permits nothing then.
func (o *observer) observe(key string) (statefulset.Facts, bool) {
	c, found := o.claims.Get(key)
	if !found {
		return statefulset.Facts{}, false
	}
	f := statefulset.Facts{Rules: o.rules, Claim: c.facts()}
	base, ordinal, _ := statefulset.SplitClaimName(c.name)
	f.Ordinal = ordinal
	f.SetName, f.Shared = o.setOf(f.Claim, base)
	f.Last, _ = o.deleted.of(c.namespace, base, o.clock.Now())
	if f.SetName = cmp.Or(f.SetName, f.Last.Name); f.SetName == "" {
		return f, true
	}
	s, found := o.sets.Get(keyOf(c.namespace, f.SetName))
	if f.SetSeen = statefulset.SeenOf(found); found {
		f.Set = *s
	}
	own := statefulset.Set{Name: f.SetName}.PodName(ordinal)
	p, found := o.pods.Get(keyOf(c.namespace, own))
	if f.PodSeen = statefulset.SeenOf(found); found {
		f.Pod = *p
	}
	f.OtherPod = o.otherPod(c, own)
	return f, true
}

// setOf returns the name of a claim's set, empty for none. A set whose template gives the claim its name comes first,
// preferably the set in its mark, and then the set in its mark alone. shared reports that several sets give the name.
func (o *observer) setOf(c statefulset.Claim, base string) (name string, shared bool) {
	sets := o.index.setsOf(c.Namespace, base)
	if len(sets) == 0 || slices.Contains(sets, c.Mark.Set) {
		return c.Mark.Set, len(sets) > 1
	}
	return sets[0], len(sets) > 1
}

// otherPod returns the name of a pod with this claim, other than the set's own, empty for none.
func (o *observer) otherPod(c *claim, own string) string {
	for _, name, more := strings.Cut(c.name, "-"); more; _, name, more = strings.Cut(name, "-") {
		p, found := o.pods.Get(keyOf(c.namespace, name))
		if found && name != own && slices.Contains(p.Claims, c.name) {
			return name
		}
	}
	return o.index.userOf(c.namespace, c.name)
}

// observeSet returns the facts about a set without its Sight.
func (o *observer) observeSet(key string) (statefulset.SetFacts, bool) {
	s, found := o.sets.Get(key)
	if !found {
		return statefulset.SetFacts{}, false
	}
	return o.setFacts(s), true
}

func (o *observer) setFacts(s *statefulset.Set) statefulset.SetFacts {
	f := statefulset.SetFacts{Rules: o.rules, Set: *s}
	f.Shared = slices.ContainsFunc(s.Templates, func(template string) bool {
		return len(o.index.setsOf(s.Namespace, s.ClaimBase(template))) > 1
	})
	if s.Policy.WhenScaled == statefulset.Delete && len(s.Templates) > 0 {
		f.Gap = statefulset.FindGap(*s, func(ordinal int) statefulset.Replica { return o.replica(s, ordinal) })
	}
	return f
}

// replica returns the state of an ordinal of a set in the watch caches.
func (o *observer) replica(s *statefulset.Set, ordinal int) statefulset.Replica {
	var pod statefulset.Pod
	if p, found := o.pods.Get(keyOf(s.Namespace, s.PodName(ordinal))); found {
		pod = *p
	}
	return statefulset.ReplicaOf(*s, ordinal, pod, func(name string) statefulset.Claim {
		if c, found := o.claims.Get(keyOf(s.Namespace, name)); found {
			return c.facts()
		}
		return statefulset.Claim{}
	})
}

// begin starts a session with these facts.
func (o *observer) begin(f statefulset.Facts, now time.Time) statefulset.Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	return statefulset.Begin(o.tracker, f, now)
}

// answer applies a reply to a session.
func (o *observer) answer(s *statefulset.Session, reply statefulset.Reply, sent, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Answer(o.tracker, reply, sent, now)
}

// sight adds the record of this process to a set's facts.
func (o *observer) sight(f statefulset.SetFacts, now time.Time) statefulset.SetFacts {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := keyOf(f.Set.Namespace, f.Set.Name)
	if at, changed := o.changes[key]; changed {
		delete(o.changes, key)
		o.tracker.SetChanged(f, at)
	}
	f.Sight = o.tracker.SetSeen(f, now)
	return f
}

// woke records that a set was woken.
func (o *observer) woke(f statefulset.SetFacts, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tracker.Woke(f, now)
}

// settleClaim and settleSet drop the records of a session about an object that is gone by now.
func (o *observer) settleClaim(key string, c statefulset.Claim) {
	if now, found := o.claims.Get(key); !found || now.uid != c.UID {
		o.forgetClaim(&claim{uid: c.UID})
	}
}

func (o *observer) settleSet(key string, s statefulset.Set) {
	if now, found := o.sets.Get(key); !found || now.UID != s.UID {
		o.forgetSet(&s)
	}
}

func (o *observer) forgetClaim(c *claim) {
	o.mu.Lock()
	o.tracker.ForgetClaim(c.uid)
	o.mu.Unlock()
	o.wake.forgetClaim(c)
}

func (o *observer) forgetSet(s *statefulset.Set) {
	o.mu.Lock()
	o.tracker.ForgetSet(s.UID)
	delete(o.changes, keyOf(s.Namespace, s.Name))
	o.mu.Unlock()
	o.wake.forgetSet(s)
}

// first returns the keys of all claims and sets that may need work, for the start.
func (o *observer) first() (claims, sets []string) {
	o.claims.Each(func(c *claim) {
		if o.concerned(c) {
			claims = append(claims, c.key())
		}
	})
	o.sets.Each(func(s *statefulset.Set) {
		if matters(s) {
			sets = append(sets, keyOf(s.Namespace, s.Name))
		}
	})
	return claims, sets
}

// matters reports whether a set may need work or a report.
func matters(s *statefulset.Set) bool {
	return !s.Policy.Keeps() || s.Woken || s.Ignored || s.Invalid != ""
}

// concerned reports whether a claim may need work: it is marked, or its name comes from a set with a policy, or from a
// remembered deleted set. Most claims are none of these.
func (o *observer) concerned(c *claim) bool {
	base, _, _ := statefulset.SplitClaimName(c.name)
	if _, left := o.deleted.of(c.namespace, base, o.clock.Now()); left || c.marked() {
		return true
	}
	return slices.ContainsFunc(o.setsWith(c.namespace, base), func(s *statefulset.Set) bool { return !s.Policy.Keeps() })
}

// setsWith returns the sets with a base. No set has an empty base, which stands for a name that no set gives.
func (o *observer) setsWith(namespace, base string) (sets []*statefulset.Set) {
	for _, name := range o.index.setsOf(namespace, base) {
		if s, found := o.sets.Get(keyOf(namespace, name)); found {
			sets = append(sets, s)
		}
	}
	return sets
}

// podOrdinal returns the set and the ordinal in the name of a pod.
func (o *observer) podOrdinal(p *statefulset.Pod) (s *statefulset.Set, ordinal int, found bool) {
	name, ordinal, _ := statefulset.SplitClaimName(p.Name) // the names of pods are made in the same way
	s, found = o.sets.Get(keyOf(p.Namespace, name))
	return s, ordinal, found
}
