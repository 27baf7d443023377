package provision

import (
	"fmt"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// World names bounds: what there is, and how often what can happen does.
type World struct {
	// Name is how it is called in tables and on the command line.
	Name string
	// About says in a sentence what it is for.
	About string
	// Constant is what it holds constant although it matters for what the world is about, and why that hides nothing.
	// What all worlds hold constant is in the package's documentation.
	Constant string
	// Claims are the names of one or two claims. The first is there in the beginning; of two with one name, the
	// second can come when the first is gone.
	Claims []string
	// Short: so few characters of the UID are in a volume's name that all claims have the same.
	Short bool
	// Late: claims bind late, to a node that is selected.
	Late bool
	// Local: each node has a provisioner, a storage system and a log of its own.
	Local bool
	// Unique: a volume that is made again has another handle.
	Unique bool
	// Compatible: the driver takes a volume that another request of ours made.
	Compatible bool
	// Guarded: terminating claims stay for a while, as pods use them.
	Guarded bool
	// Occupied: a volume of the name is there, which is none of ours.
	Occupied bool
	// Full: the driver answers ResourceExhausted and nothing else, also where it has made the volume.
	Full bool
	// Rejects: the driver answers InvalidArgument to requests that were composed with another version of it.
	Rejects bool
	// Scheduled: the selected node is taken back as the engine asks for, and a scheduler selects one.
	Scheduled bool
	// Gap: the log can change between reclaim's look at it and the driver's call.
	Gap      bool
	Replicas int
	// Lag is 1 if watches lag, each object's on its own: they show what it is now, at any time; 2 if they also show
	// what it was once, later; 0 if caches are up to date.
	Lag    int
	Budget Budget
	// Deep worlds are explored only when asked for.
	Deep bool

	// For tests. strict: what is an excuse is judged all the same. anew: requests are composed for each CreateVolume
	// anew, as versions without a log did. credulous: each refusal counts as one that judges the request. insistent:
	// that a second request could not be added is not remembered. forgetful: the log has the first version of the driver
	// alone that is called. hasty: the log is not read before a step with a volume that the driver has named.
	strict, anew, credulous, insistent, forgetful, hasty bool
}

// Budget is how often each thing may happen in one history.
type Budget struct {
	// What users do. BindElsewhere: the claim is bound to another PV. Retain: a PV's policy is turned to Retain.
	// TakeName: a PV of another driver gets the name of a claim's PV. CreateClass: with other parameters. Zone: the
	// last node of a zone goes, or comes back. Node: another node is selected, or none. Leave: node a goes, or comes
	// back. Secret: the Secret is deleted, or created again. Replace: another version of the driver is installed, or the
	// first one again.
	DeleteClaim, CreateClaim, BindElsewhere, DeletePV, Retain, TakeName, DeleteClass, CreateClass, Zone, Node uint8
	Leave, Secret, Replace                                                                                    uint8
	// What is an excuse: a PV's finalizer removed by hand; an entry that is settled; the log deleted by hand; a
	// provisioner beside ours that does not wait; calls that arrive later than the engine counts on.
	Strip, SettleEntry, DeleteLog, Peer, Overdue uint8
	// What breaks: processes that end, and those that are paused while another leads; calls of the API server and
	// of the driver that are not answered, done, done later, or not; a driver that answers InvalidArgument to a
	// request that made nothing, refuses unseen, or makes another volume than was asked for; processes that stall; a log
	// without room for more, as other names have it.
	Crash, Overlap, API, RPC, Unfit, Refuse, Spoil, Slow, LogFull uint8
}

// Bounds says in short what is in the world.
func (w *World) Bounds() string {
	return search.Bounds(w.Budget, "claims "+strings.Join(w.Claims, " and "),
		fmt.Sprintf("%d replica, lag %d", w.Replicas, w.Lag),
		search.If(w.Short, "short"), search.If(w.Late, "late"), search.If(w.Local, "local"), search.If(w.Unique, "unique"),
		search.If(w.Compatible, "compatible"), search.If(w.Guarded, "guarded"), search.If(w.Occupied, "occupied"),
		search.If(w.Full, "full"), search.If(w.Rejects, "rejects"), search.If(w.Scheduled, "scheduled"),
		search.If(w.Gap, "gap"))
}
