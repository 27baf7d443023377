package provision

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// MaxRequests is the maximum number of requests of an entry. A claim that binds late gets a second one when the
// outcome of the first is in doubt and another node is selected.
const MaxRequests = 2

// Record is one process's knowledge about an open entry, as plain data that can be copied and compared. It ends with
// its process, and the next process begins with [Inherited].
type Record struct {
	Claim types.UID
	// Requests are the entry's requests in its order, and Count is their number.
	Requests [MaxRequests]Request
	Count    int
	// Next is the index of the request that is sent next.
	Next int
	// Unanswered is the end of the last call whose effect may still come, because it was not answered or an earlier
	// process sent it. It is zero for none.
	Unanswered time.Time
	// By is the index of the request that was answered last.
	By int
	// Volume is the state of the volume, Handle is its id, and Unfit reports that it differs from the request.
	Volume Volume
	Handle string
	Unfit  bool
	// InPVForm is true if Handle has the form that a PersistentVolume of the volume names. The driver's id of a migrated
	// volume may have another form, so that the comparison with a PersistentVolume proves nothing.
	InPVForm bool
	// Discarding is true if a DeleteVolume may have been sent, as the log records.
	Discarding bool
	// Failed is true if the last call was refused or not answered.
	Failed bool
}

// Request is a process's knowledge about one request of an entry.
type Request struct {
	// Node is the node that it was composed for, empty for none, and MayReschedule reports that another node may have
	// room.
	Node          string
	MayReschedule bool
	// Sent is true if a process may have sent it, and Settled if it created nothing and no call of it is under way.
	Sent, Settled bool
}

// Volume is the state of the volume in the storage system.
type Volume uint8

const (
	// VolumeUnknown means that the volume may exist, or come to exist.
	VolumeUnknown Volume = iota
	// VolumeMade means that the driver named the volume.
	VolumeMade
)

// Opened returns the record of an entry that this process has just added, with one request.
func Opened(claim types.UID, request Request) Record {
	r := Record{Claim: claim, Count: 1}
	r.Requests[0] = Request{Node: request.Node, MayReschedule: request.MayReschedule}
	return r
}

// Inherited returns the record of an entry that an earlier process added, and whose calls may still arrive. The caller
// sets Discarding from the log.
func Inherited(claim types.UID, requests []Request, now time.Time) Record {
	r := Record{Claim: claim, Unanswered: now}
	for _, q := range requests {
		if r.Count < MaxRequests {
			r.Requests[r.Count] = Request{Node: q.Node, MayReschedule: q.MayReschedule, Sent: true}
			r.Count++
		}
	}
	return r
}

// Add adds a request for another node as the next to send. It replaces a request that is settled or was never sent.
func (r *Record) Add(request Request) (index int) {
	index = r.Count
	for i := range r.Count {
		if r.Requests[i].Settled || !r.Requests[i].Sent {
			index = i
			break
		}
	}
	if index == r.Count {
		r.Count++
	}
	r.Requests[index] = Request{Node: request.Node, MayReschedule: request.MayReschedule}
	r.Next, r.Failed = index, false
	return index
}

// Sending is called before CreateVolume is sent, and reports whether no process has sent the request before.
func (r *Record) Sending() (first bool) {
	q := &r.Requests[r.Next]
	first = !q.Sent
	q.Sent = true
	return first
}

// Answered applies the outcome of the CreateVolume that Sending announced and that began at that time.
//
// The driver's first answer to a request shows whether it created a volume. After a call with a doubtful outcome it
// does not, because a driver may refuse before it checks whether the volume exists. Only InvalidArgument and
// OutOfRange judge the request itself (CSI spec, CreateVolume errors), and only if no earlier call can still arrive
// and no other request can have created a volume. Another version of the driver may refuse a request that the previous
// one accepted, as may a driver that did not get the Secret, so their refusals settle no doubt.
func (r *Record) Answered(reply Reply, first bool, began, now time.Time, quiet time.Duration) {
	q := &r.Requests[r.Next]
	r.Failed, r.By = reply.Class != errclass.Done, r.Next
	switch reply.Class {
	case errclass.Done:
		r.Volume, r.Handle, r.Unfit, r.InPVForm = VolumeMade, reply.Handle, reply.Unfit, reply.InPVForm
		return
	case errclass.Uncertain, errclass.InProgress:
		r.Unanswered = now
	case errclass.Unfit:
		q.Settled = first || r.Quiet(began, quiet) && reply.Comparable
	case errclass.Refused, errclass.Exhausted, errclass.NotFound:
		q.Settled = first
	}
	r.turn()
}

// turn makes the other request the next, if it exists, because either of the two may have created the volume.
func (r *Record) turn() {
	for i := 1; i <= r.Count; i++ {
		if next := (r.Next + i) % r.Count; !r.Requests[next].Settled {
			r.Next = next
			return
		}
	}
}

// Unheard records an unanswered write of the PersistentVolume, an unanswered DeleteVolume, or a call that ended in a
// panic.
func (r *Record) Unheard(now time.Time) { r.Unanswered = now }

// Deleted records the driver's answer to a DeleteVolume, begun at that time, that the volume is gone. If no call was
// under way then that could create it again, every request is settled.
func (r *Record) Deleted(began time.Time, quiet time.Duration) {
	r.Forget()
	r.Failed = true
	if r.Quiet(began, quiet) {
		for i := range r.Count {
			r.Requests[i].Settled = true
		}
	}
}

// Forget drops the volume that the driver named, so that CreateVolume is called again.
func (r *Record) Forget() {
	r.Volume, r.Handle, r.Unfit, r.InPVForm = VolumeUnknown, "", false, false
}

// Quiet reports whether no earlier call can still arrive at that time.
func (r *Record) Quiet(at time.Time, quiet time.Duration) bool {
	return r.Unanswered.IsZero() || at.Sub(r.Unanswered) >= quiet
}

// Begun reports whether any process may have sent a request.
func (r *Record) Begun() bool {
	for i := range r.Count {
		if r.Requests[i].Sent {
			return true
		}
	}
	return false
}

// Unsent reports whether the record has requests, none of which any process has sent.
func (r *Record) Unsent() bool { return r.Count > 0 && !r.Begun() }

// hasOneVolume reports whether the entry can have created only one volume: it has one request, and none of its volumes
// was to be deleted.
func (r *Record) hasOneVolume() bool { return r.Count == 1 && !r.Discarding }

// nothingMade reports whether every request is known to have created nothing.
func (r *Record) nothingMade() bool {
	for i := range r.Count {
		if !r.Requests[i].Settled {
			return false
		}
	}
	return r.Count > 0 && r.Volume == VolumeUnknown
}

// takesNode reports whether a request for this node can be added: none of the open requests is for it, one of them may
// be placed elsewhere, and the entry has room. A settled request that was refused last counts as open for its own
// node, so that the other is sent next, because AlreadyExists means that the other created the volume.
func (r *Record) takesNode(node string) bool {
	sent, may := 0, false
	for i := range r.Count {
		q := r.Requests[i]
		if q.Settled && (q.Node != node || r.By != i) {
			continue
		}
		if q.Node == node {
			return false
		}
		may = may || q.MayReschedule
		if q.Sent {
			sent++
		}
	}
	return node != "" && may && sent < MaxRequests
}

// Settled reports whether no outcome is in doubt: every request is known to have created nothing.
func (r *Record) Settled() bool { return r.nothingMade() }
