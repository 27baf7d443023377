package provision

import (
	"context"
	"fmt"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

// pace is how often a claim's Events follow each other, beside the growing delay between two tries: at most one a
// minute for what changes from try to try, such as the id of a request in a driver's message. One that repeats is
// recorded again with the first try after 20 minutes: the last one stands when the API server removes it.
var pace = events.Pace{Change: time.Minute, Repeat: 20 * time.Minute}

// eventOn returns what the Events of the run are about: its claim. Where that is gone, its namespace may be gone too,
// so it is the Lease that has the entry. The message names the claim then.
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

// eventOn returns what the Events of a claim are about.
func eventOn(c provision.Claim) events.Object {
	return events.Object{ObjectReference: v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
		ResourceVersion: c.ResourceVersion,
	}}
}

// announce records once for the claim's owner who provisions the volume, where nobody else would say so.
func (p *Controller) announce(ctx context.Context, claim *v1.PersistentVolumeClaim, err error) {
	if !request.ReasonOf(err).Announced() {
		return
	}
	p.recorder.ReportAside(ctx, eventOn(p.claimOf(claim)), provision.ReasonLeftToPopulator, err.Error())
}

// Reason says why a decision is what it is. The same word is an Event's reason, a value in the log and a label of
// the metrics. Its Sentence says what it means, its EventType which Events have it.
type Reason = provision.Reason

// Reasons returns every reason there is.
func Reasons() []Reason { return provision.Reasons() }
