package protect

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/brief"
)

// maxMessage bounds what is told in one Event, in bytes: the limit that events.k8s.io sets for a
// note.
const maxMessage = 1024

// reports tells people what keeps an object, once for each change. It is safe for concurrent use.
type reports struct {
	kind   string
	events record.EventRecorder
	told   func(Reason)

	mu   sync.Mutex
	last map[types.UID]Reason
}

func newReports(kind string, events record.EventRecorder, told func(Reason)) *reports {
	return &reports{kind: kind, events: events, told: told, last: map[types.UID]Reason{}}
}

// now says that this is the reason why nothing is done about the object. The same reason is told
// once, with the detail of that time; a silent one ends what was told before.
func (r *reports) now(ctx context.Context, o Object, reason Reason, detail string) {
	r.mu.Lock()
	before := r.last[o.UID]
	if reason.waits() {
		r.last[o.UID] = reason
	} else {
		delete(r.last, o.UID)
	}
	r.mu.Unlock()
	if before != reason {
		r.tell(ctx, o, reason, detail)
	}
}

func (r *reports) tell(ctx context.Context, o Object, reason Reason, detail string) {
	message := reason.Sentence()
	if detail != "" {
		message = brief.Text(message+" "+detail, maxMessage)
	}
	kind := v1.EventTypeNormal
	switch reason.notice() {
	case silent, quiet:
		klog.FromContext(ctx).V(4).Info(message, "reason", reason)
		return
	case warning:
		kind = v1.EventTypeWarning
	case normal:
	}
	klog.FromContext(ctx).Info(message, "reason", reason)
	r.told(reason)
	r.events.Event(&v1.ObjectReference{
		APIVersion: "v1", Kind: r.kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}, kind, string(reason), message)
}

// forget ends what is known of an object that is gone.
func (r *reports) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, uid)
}

// waiting counts the objects that wait, by reason.
func (r *reports) waiting() map[Reason]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := map[Reason]int{}
	for _, reason := range r.last {
		count[reason]++
	}
	return count
}

// noEvents is the recorder of a Guard that was given none.
type noEvents struct{}

func (noEvents) Event(runtime.Object, string, string, string)          {}
func (noEvents) Eventf(runtime.Object, string, string, string, ...any) {}
func (noEvents) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
}
