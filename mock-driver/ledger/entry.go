package ledger

import (
	"cmp"
	"slices"
	"time"
)

// Phase is the stage of a process or call that an entry records.
type Phase string

const (
	// Started is the first entry of a process, Stopped the last one after an orderly end.
	Started Phase = "started"
	Stopped Phase = "stopped"
	// Received is a call on arrival, before anything else happens.
	Received Phase = "received"
	// Changed follows the moment at which the call creates, deletes or alters an object, and is missing for other calls.
	Changed Phase = "changed"
	// Answered is the answer that is sent to the client.
	Answered Phase = "answered"
)

// Entry is one line of the ledger.
type Entry struct {
	// Time is the time just before the write of the entry.
	Time time.Time `json:"time"`
	// Boot identifies the process; each start of a driver has its own.
	Boot string `json:"boot"`
	// Seq counts the entries of a boot from 1, without gaps, in the order of the file.
	Seq   uint64 `json:"seq"`
	Phase Phase  `json:"phase"`
	// Call is the Seq of the call's Received entry.
	Call uint64 `json:"call,omitempty"`
	// Method is the method name of the RPC, such as DeleteVolume.
	Method string `json:"method,omitempty"`
	// Volume is the volume's id (its handle), Name the requested name of a volume or snapshot, Snapshot a snapshot's id,
	// and Node a node's id: from the request, or for node calls the node of the service. Values that the request lacks
	// are added once they are known, so an answered CreateVolume has both Name and Volume.
	Volume   string `json:"volume,omitempty"`
	Name     string `json:"name,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
	Node     string `json:"node,omitempty"`
	// Path is the path on the node at which a volume is staged or published, or ceases to be: the request's target path,
	// or else its staging path.
	Path string `json:"path,omitempty"`
	// SecretKeys are the keys of the call's secrets, sorted.
	SecretKeys []string `json:"secretKeys,omitempty"`
	// Request is a digest of a CreateVolume request without its secrets (Received). Drivers of one build compute equal
	// digests for equal requests.
	Request string `json:"request,omitempty"`
	// Code is the gRPC code for the client, such as OK or Internal, and Error its message.
	Code  string `json:"code,omitempty"`
	Error string `json:"error,omitempty"`
	// Did is the code of the work itself, if a fault changed the answer.
	Did string `json:"did,omitempty"`
	// Changed is true if the call created, deleted or altered an object.
	Changed bool `json:"changed,omitempty"`
	// Faults are the names of the applied fault rules.
	Faults []string `json:"faults,omitempty"`
	// Duration is the time from Received to Answered, in nanoseconds.
	Duration time.Duration `json:"durationNs,omitempty"`
	// Note describes the driver of the process (Started).
	Note string `json:"note,omitempty"`
	// PID is the process's own id (Started) or the caller's (other phases), and 0 if the system does not report it.
	PID int `json:"pid,omitempty"`
}

// Call combines the information in all entries of one call.
type Call struct {
	Boot                         string
	Seq                          uint64
	Method                       string
	Volume, Name, Snapshot, Node string
	Path                         string
	SecretKeys                   []string
	Request                      string
	// PID is the caller's process id, or 0 if unknown.
	PID int
	// Received is never zero, while Done, the time of the first change, and Answered, the time of the answer, are zero
	// without that event.
	Received, Done, Answered time.Time
	// Code, Error and Did are as in Entry, except that Code is empty while the call is unanswered.
	Code, Error, Did string
	Changed          bool
	Faults           []string
	// Lost is true if the driver's process ended before the answer.
	Lost bool
}

// Calls combines entries into calls, in the order of their arrival.
func Calls(entries []Entry) []Call {
	type key struct {
		boot string
		seq  uint64
	}
	var calls []Call
	index := map[key]int{}
	for _, e := range entries {
		switch e.Phase {
		case Started, Stopped:
			loseUnanswered(calls)
		case Received:
			index[key{e.Boot, e.Seq}] = len(calls)
			calls = append(calls, Call{Boot: e.Boot, Seq: e.Seq, Method: e.Method, Received: e.Time, SecretKeys: e.SecretKeys,
				Request: e.Request, PID: e.PID, Path: e.Path})
			calls[len(calls)-1].identify(e)
		case Changed, Answered:
			if at, ok := index[key{e.Boot, e.Call}]; ok {
				calls[at].add(e)
			}
		}
	}
	return calls
}

// loseUnanswered marks all open calls as lost, because their process has ended.
func loseUnanswered(calls []Call) {
	for i := range calls {
		calls[i].Lost = calls[i].Answered.IsZero()
	}
}

func (c *Call) add(e Entry) {
	c.identify(e)
	c.Changed = c.Changed || e.Changed
	if e.Phase == Changed {
		if c.Done.IsZero() {
			c.Done = e.Time
		}
		return
	}
	c.Answered, c.Code, c.Error, c.Did, c.Faults = e.Time, e.Code, e.Error, e.Did, e.Faults
}

func (c *Call) identify(e Entry) {
	c.Volume, c.Name, c.Snapshot, c.Node = cmp.Or(e.Volume, c.Volume), cmp.Or(e.Name, c.Name),
		cmp.Or(e.Snapshot, c.Snapshot), cmp.Or(e.Node, c.Node)
}

// Select returns the calls of the given methods, or all calls without methods.
func Select(calls []Call, methods ...string) []Call {
	if len(methods) == 0 {
		return calls
	}
	var selected []Call
	for _, c := range calls {
		if slices.Contains(methods, c.Method) {
			selected = append(selected, c)
		}
	}
	return selected
}
