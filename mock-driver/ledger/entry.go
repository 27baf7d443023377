package ledger

import (
	"slices"
	"time"
)

// Phase says what an entry is about.
type Phase string

const (
	// Started is the first entry of a process, Stopped the last of one that ended in peace.
	Started Phase = "started"
	Stopped Phase = "stopped"
	// Received is a call as it came in, before anything else happened.
	Received Phase = "received"
	// Changed says that the call has just created, deleted or altered something. Only then is there such an entry.
	Changed Phase = "changed"
	// Answered is the answer as it goes out to the client.
	Answered Phase = "answered"
)

// Entry is one line of the ledger.
type Entry struct {
	// Time is taken just before the entry is written.
	Time time.Time `json:"time"`
	// Boot names the process: unique for each start of a driver.
	Boot string `json:"boot"`
	// Seq counts the entries of a boot from 1, without gaps, in the order of the file.
	Seq   uint64 `json:"seq"`
	Phase Phase  `json:"phase"`
	// Call is the Seq of the Received entry of the call that this entry belongs to.
	Call uint64 `json:"call,omitempty"`
	// Method is the bare name of the RPC, such as DeleteVolume.
	Method string `json:"method,omitempty"`
	// Volume is the volume's id (its handle), Name the name under which a volume or snapshot was asked for, Snapshot a
	// snapshot's id, Node a node's: the one that the request names, or of node calls the one that they were made on. What
	// the request does not say is filled in once it is known: an answered CreateVolume has both Name and Volume.
	Volume   string `json:"volume,omitempty"`
	Name     string `json:"name,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
	Node     string `json:"node,omitempty"`
	// Path is where on the node a volume is staged or published, or no longer: the target path of the request, or else
	// its staging path.
	Path string `json:"path,omitempty"`
	// SecretKeys are the names of the secrets that came with the call, sorted.
	SecretKeys []string `json:"secretKeys,omitempty"`
	// Request is a digest of a CreateVolume request without its secrets (Received): the same for equal requests to
	// drivers of one build.
	Request string `json:"request,omitempty"`
	// Code is the gRPC code that the client gets, such as OK or Internal, and Error its message.
	Code  string `json:"code,omitempty"`
	Error string `json:"error,omitempty"`
	// Did is the code of the work itself, where a fault made the driver answer something else.
	Did string `json:"did,omitempty"`
	// Changed is true if the call really created, deleted or altered something.
	Changed bool `json:"changed,omitempty"`
	// Faults are the names of the fault rules that were applied.
	Faults []string `json:"faults,omitempty"`
	// Duration from Received to Answered, in nanoseconds.
	Duration time.Duration `json:"durationNs,omitempty"`
	// Note describes the process (Started).
	Note string `json:"note,omitempty"`
	// PID is the id of the process (Started), or of the one that the call comes from (the others), 0 if the system does
	// not report it.
	PID int `json:"pid,omitempty"`
}

// Call is what the entries of one call say together.
type Call struct {
	Boot                         string
	Seq                          uint64
	Method                       string
	Volume, Name, Snapshot, Node string
	Path                         string
	SecretKeys                   []string
	Request                      string
	// PID is the id of the process that the call came from, 0 if unknown.
	PID int
	// Received is never zero. Done is when the call changed something, Answered when the answer went out; zero where
	// that did not happen.
	Received, Done, Answered time.Time
	// Code, Error and Did as in Entry. Code is empty while the call is unanswered.
	Code, Error, Did string
	Changed          bool
	Faults           []string
	// Lost is true if the driver's process ended before it answered.
	Lost bool
}

// Calls folds entries into calls, in the order in which they were received.
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

// loseUnanswered is called where a process has ended: whatever was open then stays so.
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
	c.Volume, c.Name, c.Snapshot, c.Node = first(e.Volume, c.Volume), first(e.Name, c.Name),
		first(e.Snapshot, c.Snapshot), first(e.Node, c.Node)
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// Select returns the calls of the given methods, or all if none is given.
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
