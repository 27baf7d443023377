package intree

import (
	"sync"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// observer feeds the watch of PVs to the tracker, and enqueues the affected PVs; it is safe for concurrent use.
type observer struct {
	// enqueue adds a PV to the queue without blocking.
	enqueue func(pv string)
	// forget is called when a PV is gone.
	forget func(types.UID)

	pvs   pvCache
	watch *kube.Cache[*intree.PV]
	log   klog.Logger

	mu sync.Mutex
	// tracker is guarded by mu, under which the watch cache may be read, because it calls its handler without holding its
	// own lock.
	tracker *intree.Tracker
}

// pvCache is the used part of the watch cache of PVs.
type pvCache interface {
	intree.PVs
	Each(visit func(*intree.PV))
}

func newObserver(enqueue func(string), forget func(types.UID)) *observer {
	return &observer{enqueue: enqueue, forget: forget, tracker: intree.NewTracker(), log: klog.Background()}
}

// follow creates the cache, which does not run yet.
func (o *observer) follow(clients kube.Clients, watches *kube.Watches) {
	o.watch = kube.NewCache(clients.Core.RESTClient(), "persistentvolumes", &v1.PersistentVolume{}, recordPV, handler{o})
	watches.Share(o.watch)
	o.pvs = o.watch
}

// recordPV keeps the PVs of in-tree volumes: provisioned PVs, their twins, and other PVs that may name the same
// volumes.
var recordPV = kube.RecordSome(func(api *v1.PersistentVolume, _ bool) (_ *intree.PV, keep bool) {
	if api.Spec.CSI != nil {
		return &intree.PV{Name: api.Name, UID: api.UID, ResourceVersion: api.ResourceVersion}, false
	}
	pv := intree.Of(api)
	pv.Intern()
	return &pv, true
})

// handler handles the watch events.
type handler struct{ *observer }

func (h handler) Added(now *intree.PV) {
	h.take(func(t *intree.Tracker) intree.Wake { return t.Added(now, h.pvs) }, now)
}

func (h handler) Updated(before, now *intree.PV) {
	if before.UID != now.UID {
		h.forget(before.UID)
	}
	h.take(func(t *intree.Tracker) intree.Wake { return t.Updated(before, now, h.pvs) }, now)
}

func (h handler) Deleted(last *intree.PV, final bool) {
	h.take(func(t *intree.Tracker) intree.Wake { return t.Deleted(last, final, h.pvs) }, last)
	h.forget(last.UID)
}

// take passes an event to the tracker, and enqueues the resulting PVs.
func (o *observer) take(event func(*intree.Tracker) intree.Wake, pv *intree.PV) {
	o.mu.Lock()
	wake := event(o.tracker)
	other := o.tracker.Other()
	o.mu.Unlock()
	if wake.OtherChanged {
		if other == intree.OtherPresent {
			o.log.Info("Another program manages the finalizer of in-tree PVs, so volume-guard leaves them to it", "finalizer",
				intree.Finalizer, "PV", pv.Name, "manager", pv.Manager)
		} else {
			o.log.Info("No PV shows any more that another program manages the finalizer of in-tree PVs", "finalizer",
				intree.Finalizer)
		}
		wake.PVs = append(o.names(), wake.PVs...)
	}
	for _, name := range wake.PVs {
		o.enqueue(name)
	}
}

// names returns the names of the PVs that may need a decision.
func (o *observer) names() []string {
	var names []string
	o.pvs.Each(func(pv *intree.PV) {
		if pv.Decided() {
			names = append(names, pv.Name)
		}
	})
	return names
}

// observe returns the facts about the PV of a name, without a live read.
func (o *observer) observe(name string, now time.Time) (intree.Facts, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tracker.Observe(name, o.pvs, now)
}

// answer applies a reply to a session.
func (o *observer) answer(s *intree.Session, reply intree.Reply, sent, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Answer(o.tracker, o.pvs, reply, sent, now)
}

// settle drops the records and reports of a session about PVs that are gone by now.
func (o *observer) settle(f intree.Facts) {
	for _, uid := range o.gone(f) {
		o.forget(uid)
	}
}

func (o *observer) gone(f intree.Facts) []types.UID {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tracker.Settle(f, o.pvs)
}

// other returns whether another program manages the finalizer, and the PV that shows it.
func (o *observer) other() (other intree.Other, evidence string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tracker.Other(), o.tracker.Evidence()
}
