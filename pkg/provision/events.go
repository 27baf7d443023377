package provision

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/text"
)

// maxMessage bounds what is told in one Event, in bytes: the limit that events.k8s.io sets for a
// note.
const maxMessage = 1024

// reports tells people why a claim waits, once for each change. It is safe for concurrent use.
type reports struct {
	events record.EventRecorder

	// announced are the claims, by UID, whose owner knows that others make the volume.
	announced sync.Map

	mu   sync.Mutex
	last map[types.UID]Reason
}

func newReports(events record.EventRecorder) *reports {
	return &reports{events: events, last: map[types.UID]Reason{}}
}

// now says that this is the reason why nothing is done for the claim. The same reason is told
// once, with the detail of that time; a silent one ends what was told before.
func (r *reports) now(ctx context.Context, c provisioning.Claim, reason Reason, detail string) {
	r.mu.Lock()
	before := r.last[c.UID]
	if reason.EventType() == "" {
		delete(r.last, c.UID)
	} else {
		r.last[c.UID] = reason
	}
	r.mu.Unlock()
	if before != reason {
		r.event(ctx, c, reason, detail)
	}
}

// event records a reason that has Events. The log has it as well: Events of a claim that is gone may be lost.
func (r *reports) event(ctx context.Context, c provisioning.Claim, reason Reason, detail string) {
	kind := reason.EventType()
	if kind == "" {
		return
	}
	message := reason.Sentence()
	if detail != "" && detail != message {
		message += " " + detail
	}
	message = text.Text(message, maxMessage)
	klog.FromContext(ctx).Info(message, "claim", klog.KRef(c.Namespace, c.Name), "reason", reason)
	r.events.Event(&v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
	}, kind, string(reason), message)
}

func (r *reports) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, uid)
}
