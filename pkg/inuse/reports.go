package inuse

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/text"
)

// maxMessage bounds what is told in one Event, in bytes: the limit that events.k8s.io sets for a
// note.
const maxMessage = 1024

// reports tells people what keeps an object, once for each change. It is safe for concurrent use.
type reports struct {
	kind   string
	events record.EventRecorder
	told   func(Reason)

	events.Board[Reason]
}

func newReports(kind string, events record.EventRecorder, told func(Reason)) *reports {
	return &reports{kind: kind, events: events, told: told}
}

// now says that this is the reason why nothing is done about the object. The same reason is told
// once, with the detail of that time; a silent one ends what was told before.
func (r *reports) now(ctx context.Context, o Object, reason Reason, detail string) {
	if r.Now(o.UID, reason, "", reason.waits()) {
		r.tell(ctx, o, reason, detail)
	}
}

func (r *reports) tell(ctx context.Context, o Object, reason Reason, detail string) {
	message := reason.Sentence()
	if detail != "" {
		message = text.Text(message+" "+detail, maxMessage)
	}
	kind := reason.EventType()
	if kind == "" {
		klog.FromContext(ctx).V(4).Info(message, "reason", reason)
		return
	}
	klog.FromContext(ctx).Info(message, "reason", reason)
	r.told(reason)
	r.events.Event(&v1.ObjectReference{
		APIVersion: "v1", Kind: r.kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
	}, kind, string(reason), message)
}
