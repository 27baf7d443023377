package provision

import (
	"context"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// pace limits a claim's Events, in addition to the growing delay between tries: at most one a minute for a message that
// changes from try to try, such as one with the id of a request. A repeated Event is recorded again with the first try
// after 20 minutes, so that it exists when the API server removes the earlier one.
var pace = events.Pace{Change: time.Minute, Repeat: 20 * time.Minute}

// ownEvents is the recorder of a Controller without Config.Events. It drops Events until it is started.
type ownEvents struct{ record.EventRecorder }

// start records Events with this client until stop is called. It is called before the first Event.
func (e *ownEvents) start(client corev1.EventsGetter, component string) (stop func()) {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&corev1.EventSinkImpl{Interface: client.Events(metav1.NamespaceAll)})
	e.EventRecorder = broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: component})
	return broadcaster.Shutdown
}

// eventOn returns the object of the run's Events, which is its claim. If the claim is gone, its namespace may be gone
// too, so the Events are on the Lease of the entry, and their message names the claim.
func (w *run) eventOn() events.Object {
	claim := w.facts.Claim
	log, names := w.log.(interface {
		LeaseOf(volume string) v1.ObjectReference
	})
	if !claim.Gone || !names {
		return eventOn(claim)
	}
	return events.Object{ObjectReference: log.LeaseOf(w.name), Key: types.UID(w.name),
		Prefix: fmt.Sprintf("Claim %s/%s, which is gone, volume %s: ", claim.Namespace, claim.Name, w.name)}
}

// eventOn returns the object of a claim's Events.
func eventOn(c provision.Claim) events.Object {
	on := events.Claim(c.Namespace, c.Name, c.UID)
	on.ResourceVersion = c.ResourceVersion
	return events.Object{ObjectReference: on}
}

// eventOnSource returns the object of the Events of a claim or snapshot that volumes are created from.
func eventOnSource(of request.SourceRef) events.Object {
	on := events.Claim(of.Namespace, of.Name, of.UID)
	if of.Kind == request.SourceSnapshot {
		on.APIVersion, on.Kind = snapshotv1.SchemeGroupVersion.String(), string(of.Kind)
	}
	return events.Object{ObjectReference: on}
}

// announce records once which other program provisions the volume, unless that program says so itself.
func (p *Controller) announce(ctx context.Context, claim *v1.PersistentVolumeClaim, err error) {
	if !request.ReasonOf(err).Announced() {
		return
	}
	p.recorder.ReportAside(ctx, eventOn(p.claimOf(claim)), provision.ReasonLeftToPopulator, err.Error())
}

// Reason is the reason of a decision. The same word is an Event's reason, a value in the log and a label of the
// metrics. It is a string with methods: Sentence() string explains it, EventType() string is the type of its Events,
// empty for none, and Waits() bool reports whether a claim with it waits.
type Reason = provision.Reason

// Reasons returns all reasons.
func Reasons() []Reason { return provision.Reasons() }
