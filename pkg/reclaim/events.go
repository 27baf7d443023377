package reclaim

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// maxMessage bounds what is told in one Event, in bytes: the limit that events.k8s.io sets for
// a note. Handles and the words of a driver may be megabytes long.
const maxMessage = 1024

// reports tells people what keeps a PV, once for each change, and knows what was told last.
// It is safe for concurrent use.
type reports struct {
	events record.EventRecorder
	told   func(Reason)
	// lease says whether this replica may still report; nil: always.
	lease Lease

	events.Board[Reason]
}

// newReports returns reports that call told with the reason of each thing that is told.
func newReports(events record.EventRecorder, told func(Reason)) *reports {
	return &reports{events: events, told: told}
}

// mayTell tells whether this replica may report what it knows: another one may have changed it by now.
func (r *reports) mayTell() bool { return holds(r.lease) }

// now says that this is the reason why nothing is done about the PV. The same reason is told
// once, with the detail of that time; a silent one ends what was told before.
func (r *reports) now(ctx context.Context, pv volume.PV, reason Reason, detail string) {
	if r.mayTell() && r.Now(pv.UID, reason, "", reason.waits()) {
		r.tell(ctx, pv, reason, detail)
	}
}

// would says what a dry run does not do.
func (r *reports) would(ctx context.Context, pv volume.PV, d Decision) {
	detail := "Would do " + d.Action.String() + ": " + d.Reason.Sentence()
	if r.mayTell() && r.Now(pv.UID, ReasonDryRun, detail, true) {
		r.tell(ctx, pv, ReasonDryRun, detail)
	}
}

// braked tells on the Lease that deletions are stopped.
func (r *reports) braked(ctx context.Context, lease types.NamespacedName, message string) {
	if !r.mayTell() {
		return
	}
	klog.FromContext(ctx).Info(message, "lease", lease)
	r.told(ReasonBraked)
	r.events.Event(&v1.ObjectReference{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: lease.Namespace, Name: lease.Name,
	}, v1.EventTypeWarning, string(ReasonBraked), message)
}

// failure says that a step failed. eachMessage tells every new message of err; otherwise
// only a new reason is told, for messages that differ from try to try.
func (r *reports) failure(ctx context.Context, pv volume.PV, reason Reason, err error, eachMessage bool) {
	text, detail := text.Text(err.Error(), maxMessage), ""
	if eachMessage {
		detail = text
	}
	klog.FromContext(ctx).V(2).Info("A step failed and is tried again", "PV", pv.Name, "reason", reason, "err", text)
	if r.mayTell() && r.Now(pv.UID, reason, detail, reason.waits()) {
		r.tell(ctx, pv, reason, text)
	}
}

// aside tells something that is true besides the reason, once.
func (r *reports) aside(ctx context.Context, pv volume.PV, reason Reason, detail string) {
	if r.mayTell() && r.Aside(pv.UID, reason) {
		r.tell(ctx, pv, reason, detail)
	}
}

func (r *reports) tell(ctx context.Context, pv volume.PV, reason Reason, detail string) {
	message := reason.Sentence()
	if detail != "" {
		message = text.Text(message+" "+detail, maxMessage)
	}
	traceWait(ctx, reason)
	kind := reason.EventType()
	if kind == "" {
		klog.FromContext(ctx).V(4).Info("Nothing to do", "PV", pv.Name, "reason", reason)
		return
	}
	klog.FromContext(ctx).Info(message, "PV", pv.Name, "reason", reason, "claim", klog.KRef(pv.Claim.Namespace, pv.Claim.Name))
	ref := &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolume", Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion}
	r.told(reason)
	r.events.Event(ref, kind, string(reason), message)
	if reason == ReasonTooLateToKeep && pv.Claimed() {
		// Whoever counts on the data looks at the claim.
		r.events.Event(&v1.ObjectReference{
			APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: pv.Claim.Namespace, Name: pv.Claim.Name, UID: pv.Claim.UID,
		}, kind, string(reason), message)
	}
}
