package intree

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/text"
)

// maxEvent bounds what is told in one Event, in bytes: the limit that events.k8s.io sets for a note.
const maxEvent = 1024

// reports tells people what keeps a PV, once for each change, and knows what was told last. It is safe
// for concurrent use.
type reports struct {
	events record.EventRecorder
	told   func(Reason)

	events.Board[Reason]
}

// newReports returns reports that call told with the reason of each thing that is told.
func newReports(events record.EventRecorder, told func(Reason)) *reports {
	return &reports{events: events, told: told}
}

// now says that this is the reason why nothing is done about the PV. The same reason is told once,
// with the detail of that time; a silent one ends what was told before.
func (r *reports) now(ctx context.Context, pv PV, reason Reason, detail string) {
	if r.Now(pv.UID, reason, "", reason.waits()) {
		r.tell(ctx, pv, reason, detail)
	}
}

// would says what a dry run does not do.
func (r *reports) would(ctx context.Context, pv PV, d Decision) {
	detail := "Would do " + d.Action.String() + ": " + d.Reason.Sentence()
	if r.Now(pv.UID, ReasonDryRun, detail, true) {
		r.tell(ctx, pv, ReasonDryRun, detail)
	}
}

// failure says that a step failed. Only a new reason is told, for messages differ from try to try.
func (r *reports) failure(ctx context.Context, pv PV, reason Reason, err error) {
	klog.FromContext(ctx).V(2).Info("A step failed and is tried again", "reason", reason, "err", err)
	r.now(ctx, pv, reason, err.Error())
}

// aside tells something that is true besides the reason, once.
func (r *reports) aside(ctx context.Context, pv PV, reason Reason) {
	if r.Aside(pv.UID, reason) {
		r.tell(ctx, pv, reason, "")
	}
}

func (r *reports) tell(ctx context.Context, pv PV, reason Reason, detail string) {
	message := reason.Sentence()
	if detail != "" {
		message = text.Text(message+" "+detail, maxEvent)
	}
	kind := reason.EventType()
	if kind == "" {
		klog.FromContext(ctx).V(4).Info("Nothing to do", "PV", pv.Name, "reason", reason)
		return
	}
	klog.FromContext(ctx).Info(message, "PV", pv.Name, "reason", reason, "claim", klog.KRef(pv.Claim.Namespace, pv.Claim.Name))
	r.told(reason)
	r.events.Event(&v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolume", Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion,
	}, kind, string(reason), message)
	if reason == ReasonTooLateToKeep && pv.claimed() {
		// Whoever counts on the data looks at the claim.
		r.events.Event(&v1.ObjectReference{
			APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: pv.Claim.Namespace, Name: pv.Claim.Name, UID: pv.Claim.UID,
		}, kind, string(reason), message)
	}
}
