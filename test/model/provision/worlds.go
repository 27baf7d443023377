package provision

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// World names bounds: what there is, and how often what can happen does.
type World struct {
	search.Purpose
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

var (
	one  = []string{"data"}
	anew = []string{"data", "data"}
	two  = []string{"data", "logs"}
)

// Worlds are the bounds that are explored.
func Worlds() []World {
	worlds := slices.Clone(table)
	for i := range worlds {
		worlds[i].Replicas = max(worlds[i].Replicas, 1)
	}
	return worlds
}

const (
	oneLeader = "one replica, whose end the restarts stand for: two replicas have worlds of their own"
	upToDate  = "caches are up to date: those that lag have worlds of their own"
)

// table has the explored worlds.
var table = []World{
	// Claims and classes that change while volumes are made.
	{Purpose: search.About("claim",
		"a claim that is deleted while its volume is made, calls that are not answered, a process that ends", oneLeader),
		Claims: one, Lag: 1, Guarded: true, Budget: Budget{DeleteClaim: 1, Crash: 1, API: 1, RPC: 1}},
	{Purpose: search.About("claim anew", "a claim that is deleted and made again under its name", oneLeader),
		Claims: anew, Lag: 1, Budget: Budget{DeleteClaim: 2, CreateClaim: 1, RPC: 1}},
	{Purpose: search.About("lost answers", "calls of the API server that are not answered, twice", oneLeader),
		Claims: one, Lag: 1, Budget: Budget{DeleteClaim: 1, API: 2, Crash: 1}},
	{Purpose: search.About("bound elsewhere", "a claim that is bound to another PV while its volume is made", oneLeader),
		Claims: one, Lag: 1, Budget: Budget{DeleteClaim: 1, BindElsewhere: 1, RPC: 1, API: 1, Crash: 1}},
	{Purpose: search.About("class",
		"a StorageClass that is deleted and made again with other parameters while an outcome is open",
		"the class's binding mode: late binding has worlds of its own"),
		Claims: one, Lag: 1, Budget: Budget{DeleteClaim: 1, DeleteClass: 1, CreateClass: 1, RPC: 1, Unfit: 1, Crash: 1}},

	// Requests that change, with nodes, and names that two claims share.
	{Purpose: search.About("zone", "the last node of a zone goes while an outcome is open",
		"the class: what a request is composed from matters only in that it differs"),
		Claims: one, Lag: 1, Budget: Budget{DeleteClaim: 1, Zone: 2, RPC: 1, Unfit: 1, Crash: 1}},
	{Purpose: search.About("node", "another node is selected while an outcome is open",
		"the class and the zones: a request for another node differs as much"),
		Claims: one, Late: true, Lag: 1, Budget: Budget{DeleteClaim: 1, Node: 2, RPC: 1, Refuse: 1}},
	{Purpose: search.About("node, restart", "the same, and a process that ends", upToDate),
		Claims: one, Late: true, Budget: Budget{DeleteClaim: 1, Node: 2, RPC: 1, Refuse: 1, Crash: 1, API: 1}},
	{Purpose: search.About("node, unfit", "another node is selected, a zone's node goes, and the driver judges requests",
		upToDate), Claims: one, Late: true, Budget: Budget{DeleteClaim: 1, Node: 2, RPC: 1, Unfit: 1, Zone: 1, Crash: 1}},
	{Purpose: search.About("node, compatible", "the same, with a driver that takes a volume that another request made",
		upToDate),
		Claims: one, Late: true, Compatible: true, Budget: Budget{DeleteClaim: 1, Node: 2, RPC: 2, Unfit: 1, Crash: 1}},
	{Purpose: search.About("one name", "two claims whose volumes have one name", oneLeader),
		Claims: two, Short: true, Lag: 1, Budget: Budget{DeleteClaim: 1, CreateClaim: 1, RPC: 1, Crash: 1}},
	{Purpose: search.About("one name, late watches", "the same, with watches that show what is over", oneLeader),
		Claims: two, Short: true, Lag: 2, Budget: Budget{DeleteClaim: 2, CreateClaim: 1}},

	// Requests that wait for more than the answer of the driver, and objects that are gone.
	{Purpose: search.About("log full",
		"another node is selected while an outcome is open, and the log has no room for more", upToDate),
		Claims: one, Late: true, Budget: Budget{DeleteClaim: 1, Node: 1, RPC: 1, Refuse: 1, Crash: 1, LogFull: 1}},
	{Purpose: search.About("node gone",
		"the selected node goes while an outcome is open, another one is selected, and the first one returns", upToDate),
		Claims: one, Late: true, Scheduled: true, Budget: Budget{DeleteClaim: 1, Leave: 2, RPC: 2, Refuse: 1, Crash: 1}},
	{Purpose: search.About("Secret", "the Secret is deleted while an outcome is open, with the claim or before it",
		upToDate), Claims: one, Budget: Budget{DeleteClaim: 1, Secret: 2, RPC: 2, Unfit: 1, Crash: 1}},
	{Purpose: search.About("driver replaced",
		"another version of the driver, which rejects the requests of the one before for ever", upToDate),
		Claims: one, Rejects: true, Budget: Budget{DeleteClaim: 1, Replace: 2, SettleEntry: 1, RPC: 2, Unfit: 1, Crash: 1}},
	{Purpose: search.About("driver replaced, unsure", "the same, with versions that may accept them or not", upToDate),
		Claims: one, Budget: Budget{DeleteClaim: 1, Replace: 2, API: 1, RPC: 2, Unfit: 1, Crash: 1}},

	// Answers of drivers.
	{Purpose: search.About("occupied",
		"the first CreateVolume is answered AlreadyExists, as the name has a volume that is not ours", oneLeader),
		Claims: one, Lag: 1, Occupied: true, Budget: Budget{DeleteClaim: 1, RPC: 1, Crash: 1, API: 1}},
	{Purpose: search.About("refused", "a driver that refuses, also in doubt, and after a restart", oneLeader),
		Claims: one, Lag: 1, Budget: Budget{DeleteClaim: 1, Refuse: 2, RPC: 2, Unfit: 1, Crash: 1}},
	{Purpose: search.About("late calls", "calls of the driver that arrive after others were answered", oneLeader),
		Claims: one, Lag: 1, Budget: Budget{DeleteClaim: 1, RPC: 3, API: 1, Crash: 1, Unfit: 1}},
	{Purpose: search.About("not as requested", "a driver that makes another volume than was asked for", oneLeader),
		Claims: one, Lag: 1, Budget: Budget{DeleteClaim: 1, Spoil: 1, RPC: 2, Crash: 1, Slow: 1}},
	{Purpose: search.About("not as requested, unique", "the same, with handles that are never used again", oneLeader),
		Claims: one, Lag: 1, Unique: true, Budget: Budget{DeleteClaim: 1, Spoil: 1, RPC: 2, Crash: 1, Slow: 1}},
	{Purpose: search.About("one name, not as requested",
		"two claims whose volumes have one name, and a volume that is not what was asked for", upToDate),
		Claims: two, Short: true, Budget: Budget{DeleteClaim: 1, CreateClaim: 1, Spoil: 1, RPC: 1}},

	// PVs and volumes that change meanwhile.
	{Purpose: search.About("PV deleted", "a PV that is deleted as soon as it is there", oneLeader),
		Claims: one, Lag: 1, Budget: Budget{DeleteClaim: 1, DeletePV: 1, API: 1, RPC: 1, Crash: 1}},
	{Purpose: search.About("PV kept", "a PV that is turned to Retain and deleted", oneLeader),
		Claims: one, Lag: 1, Budget: Budget{DeleteClaim: 1, DeletePV: 1, Retain: 1, API: 1, RPC: 1, Crash: 1}},
	{Purpose: search.About("PV kept, unique", "the same, with handles that are never used again", oneLeader),
		Claims: one, Lag: 1, Unique: true, Budget: Budget{DeleteClaim: 1, DeletePV: 1, Retain: 1, API: 1, RPC: 1}},
	{Purpose: search.About("PV kept, slow", "the same, and a process that stalls after its reads", oneLeader),
		Claims: one, Lag: 1, Budget: Budget{DeleteClaim: 1, DeletePV: 1, Retain: 1, RPC: 1, Slow: 1}},
	{Purpose: search.About("PV kept, late watches", "the same, with watches that show what is over", oneLeader),
		Claims: one, Lag: 2, Budget: Budget{DeleteClaim: 1, DeletePV: 1, Retain: 1, RPC: 1}},
	{Purpose: search.About("name taken", "a PV of another driver under the claim's name for its PV, for a while",
		oneLeader), Claims: one, Lag: 1, Budget: Budget{DeleteClaim: 1, TakeName: 1, DeletePV: 1, RPC: 1, Crash: 1}},
	{Purpose: search.About("reclaim", "the log changes between reclaim's look at it and the driver's call", oneLeader),
		Claims: anew, Lag: 1, Gap: true, Budget: Budget{DeleteClaim: 2, CreateClaim: 1, RPC: 1}},

	// Two replicas.
	{Purpose: search.About("claim, replicas", "two replicas, of which the leading one ends", upToDate),
		Claims: one, Replicas: 2, Budget: Budget{DeleteClaim: 1, Crash: 2, API: 1, RPC: 1}},
	{Purpose: search.About("claim, two leaders", "a leader that is paused while another takes over",
		"the API server answers: its writes that arrive late have a world of their own"),
		Claims: one, Replicas: 2, Lag: 1, Budget: Budget{DeleteClaim: 1, Overlap: 1, RPC: 1}},
	{Purpose: search.About("claim, two leaders, late watches", "the same, with watches that show what is over",
		"nothing fails: that is the world before"),
		Claims: one, Replicas: 2, Lag: 2, Budget: Budget{DeleteClaim: 1, Overlap: 1}},
	{Purpose: search.About("claim, two leaders, late writes",
		"the same, with writes of the log and of PVs that arrive late", upToDate),
		Claims: one, Replicas: 2, Budget: Budget{DeleteClaim: 1, Overlap: 1, API: 2, RPC: 1}},
	{Purpose: search.About("claim, two leaders, PV kept", "the same, and the PV is turned to Retain and deleted",
		upToDate),
		Claims: one, Replicas: 2, Budget: Budget{DeleteClaim: 1, Overlap: 1, API: 1, RPC: 1, DeletePV: 1, Retain: 1}},
	{Purpose: search.About("claim, two leaders, not as requested", "the same, and a volume that is not what was asked for",
		upToDate), Claims: one, Replicas: 2, Budget: Budget{DeleteClaim: 1, Overlap: 1, RPC: 1, Spoil: 1}},

	// A provisioner on each node.
	{Purpose: search.About("nodes", "a provisioner on each node, and another node is selected",
		"claims are not deleted: without lag they are"),
		Claims: one, Replicas: 2, Local: true, Lag: 1, Budget: Budget{Node: 1, RPC: 1}},
	{Purpose: search.About("nodes, deleted", "the same, and the claim is deleted", upToDate),
		Claims: one, Replicas: 2, Local: true, Budget: Budget{DeleteClaim: 1, Node: 2, RPC: 1}},
	{Purpose: search.About("nodes, restart", "the same, and a process that ends", upToDate),
		Claims: one, Replicas: 2, Local: true, Budget: Budget{DeleteClaim: 1, Node: 1, RPC: 1, Crash: 1}},

	// Excuses of the documentation: people and programs that bypass the log. Its loss is excused for the volume that it
	// concerns, and for no other.
	{Purpose: search.About("log deleted", "the log is deleted while its leader knows what was in it: it writes it anew",
		upToDate), Claims: one, Budget: Budget{DeleteClaim: 1, DeleteLog: 1, RPC: 1, API: 1}},
	{Purpose: search.About("excuse: log deleted", "the log is deleted while no process remembers it", upToDate),
		Claims: one, Budget: Budget{DeleteClaim: 1, DeleteLog: 1, RPC: 1, Crash: 1}},
	{Purpose: search.About("excuse: entry settled",
		"an operator settles an open entry, which replicas learn by reads of the log", upToDate),
		Claims: one, Budget: Budget{DeleteClaim: 1, SettleEntry: 1, RPC: 1, API: 1, Crash: 1}},
	{Purpose: search.About("excuse: unfit volume settled",
		"an operator settles the entry of a volume that is not what was asked for, or whose PV's name is taken", upToDate),
		Claims: one, Budget: Budget{DeleteClaim: 1, SettleEntry: 1, RPC: 1, Spoil: 1, TakeName: 1, DeletePV: 1}},
	{Purpose: search.About("excuse: finalizer removed", "the finalizer of a PV is removed by hand while its entry is open",
		upToDate), Claims: one, Budget: Budget{DeleteClaim: 1, DeletePV: 1, Retain: 1, Strip: 1, RPC: 1, API: 1}},
	{Purpose: search.About("excuse: another provisioner",
		"a provisioner beside ours that deletes a released volume without regard to the log", upToDate),
		Claims: one, Budget: Budget{DeleteClaim: 1, Peer: 1, RPC: 1, API: 1}},
	{Purpose: search.About("excuse: no room",
		"a driver that answers ResourceExhausted and nothing else: the entry stays open, and holds nothing", upToDate),
		Claims: one, Full: true, Budget: Budget{DeleteClaim: 1, RPC: 1, API: 1, Crash: 1}},
	{Purpose: search.About("excuse: later than quiet", "calls that arrive later than the engine counts on", upToDate),
		Claims: one, Budget: Budget{DeleteClaim: 1, Overdue: 1, RPC: 1, API: 1, Crash: 1, Unfit: 1}},

	// Worlds for a night, not for each change.
	{Purpose: search.Deep("deep: claim", "a claim that is deleted while everything breaks"),
		Claims: one, Lag: 1, Guarded: true, Budget: Budget{DeleteClaim: 1, Crash: 2, API: 2, RPC: 2, Unfit: 1, Refuse: 1}},
	{Purpose: search.Deep("deep: claim anew", "a claim that is made again under its name, and calls that fail"),
		Claims: anew, Lag: 1, Budget: Budget{DeleteClaim: 2, CreateClaim: 1, API: 1, RPC: 1, Crash: 1}},
	{Purpose: search.Deep("deep: node", "other nodes are selected while everything breaks"),
		Claims: one, Late: true, Lag: 1, Budget: Budget{DeleteClaim: 1, Node: 3, RPC: 1, Refuse: 1, Unfit: 1, Crash: 1}},
	{Purpose: search.Deep("deep: claim, two leaders",
		"a leader that is paused while another takes over, PVs that are kept, and calls that fail"),
		Claims: one, Replicas: 2, Lag: 1, Budget: Budget{DeleteClaim: 1, Overlap: 1, API: 1, RPC: 1, DeletePV: 1, Retain: 1}},
	{Purpose: search.Deep("deep: nodes", "a provisioner on each node, a process that ends, and calls that fail"),
		Claims: one, Replicas: 2, Local: true, Lag: 1, Budget: Budget{DeleteClaim: 1, Node: 1, RPC: 1, API: 1, Crash: 1}},
}
