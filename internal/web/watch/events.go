package watch

import (
	"context"
	"errors"
	"slices"
	"sync"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// maxEventWatches limits the watches of Events of one page, for its object and related objects.
const maxEventWatches = 4

// events holds the Events that a page follows. Its methods are safe for concurrent use.
type events struct {
	c *Cluster

	mu     sync.Mutex
	start  func(func(context.Context))
	tables map[string]*table[v1.Event]
}

// follow watches the Events that a field selector selects, up to maxEventWatches.
func (e *events) follow(namespace string, selects fields.Set) {
	key := namespace + "/" + selects.String()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tables[key] != nil || len(e.tables) >= maxEventWatches {
		return
	}
	t := newTable(e.c, kind{resource: "events", what: "Events", open: "which Events it has"},
		kube.Selection{Namespace: namespace, Fields: selects.AsSelector().String()}, e.c.cluster.Core.RESTClient(),
		&v1.Event{}, kube.RecordAll(eventOf), never)
	e.tables[key] = t
	e.start(t.run)
}

func (e *events) followObject(namespace string, uid types.UID) {
	if uid != "" {
		e.follow(namespace, fields.Set{"involvedObject.uid": string(uid)})
	}
}

func eventOf(o *v1.Event) v1.Event { return *unmanaged(o) }

// all returns the Events read so far, the latest last, and an error if others cannot be read.
func (e *events) all() explain.Read[[]v1.Event] {
	e.mu.Lock()
	defer e.mu.Unlock()
	read := explain.Found[[]v1.Event](nil)
	for _, t := range e.tables {
		its := t.read()
		if its.Err != nil && !errors.Is(its.Err, errNotYet) {
			read.Err = its.Err
		}
		read.Value = append(read.Value, its.Value...)
	}
	explain.SortEvents(read.Value)
	return read
}

func (e *events) of(uid types.UID) explain.Read[[]v1.Event] {
	read := e.all()
	read.Value = slices.DeleteFunc(read.Value, func(o v1.Event) bool { return o.InvolvedObject.UID != uid })
	return read
}

// followed is a Cluster with the Events that a page follows.
type followed struct {
	*Cluster
	events *events
}

// Events returns the Events about an object, and follows them from the first call on.
func (f followed) Events(_ context.Context, namespace string, about metav1.Object) explain.Read[[]v1.Event] {
	f.events.followObject(namespace, about.GetUID())
	return f.events.of(about.GetUID())
}
