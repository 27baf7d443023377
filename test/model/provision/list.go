package provision

import "slices"

var (
	one  = []string{"data"}
	anew = []string{"data", "data"}
	two  = []string{"data", "logs"}
)

// Worlds are the bounds that are explored.
func Worlds() []World {
	worlds := slices.Concat(claimWorlds(), requestWorlds(), exitWorlds(), driverWorlds(), pvWorlds(), leaderWorlds(),
		nodeWorlds(), excuses(), deepWorlds())
	for i := range worlds {
		worlds[i].Replicas = max(worlds[i].Replicas, 1)
	}
	return worlds
}

const (
	oneLeader = "one replica, whose end the restarts stand for: two replicas have worlds of their own"
	upToDate  = "caches are up to date: those that lag have worlds of their own"
)

// claimWorlds are about what becomes of claims and classes while volumes are made.
func claimWorlds() []World {
	return []World{
		{
			Name: "claim", About: "a claim that is deleted while its volume is made, calls that are not answered, a process " +
				"that ends",
			Constant: oneLeader, Claims: one, Lag: 1, Guarded: true,
			Budget: Budget{DeleteClaim: 1, Crash: 1, API: 1, RPC: 1},
		},
		{
			Name: "claim anew", About: "a claim that is deleted and made again under its name",
			Constant: oneLeader, Claims: anew, Lag: 1,
			Budget: Budget{DeleteClaim: 2, CreateClaim: 1, RPC: 1},
		},
		{
			Name: "lost answers", About: "calls of the API server that are not answered, twice",
			Constant: oneLeader, Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, API: 2, Crash: 1},
		},
		{
			Name: "bound elsewhere", About: "a claim that is bound to another PV while its volume is made",
			Constant: oneLeader, Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, BindElsewhere: 1, RPC: 1, API: 1, Crash: 1},
		},
		{
			Name: "class", About: "a StorageClass that is deleted and made again with other parameters while an outcome is open",
			Constant: "the class's binding mode: late binding has worlds of its own", Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, DeleteClass: 1, CreateClass: 1, RPC: 1, Unfit: 1, Crash: 1},
		},
	}
}

// requestWorlds are about requests that change, with nodes, and names that two claims share.
func requestWorlds() []World {
	return []World{
		{
			Name: "zone", About: "the last node of a zone goes while an outcome is open",
			Constant: "the class: what a request is composed from matters only in that it differs", Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Zone: 2, RPC: 1, Unfit: 1, Crash: 1},
		},
		{
			Name: "node", About: "another node is selected while an outcome is open",
			Constant: "the class and the zones: a request for another node differs as much", Claims: one, Late: true, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Node: 2, RPC: 1, Refuse: 1},
		},
		{
			Name: "node, restart", About: "the same, and a process that ends",
			Constant: upToDate, Claims: one, Late: true,
			Budget: Budget{DeleteClaim: 1, Node: 2, RPC: 1, Refuse: 1, Crash: 1, API: 1},
		},
		{
			Name: "node, unfit", About: "another node is selected, a zone's node goes, and the driver judges requests",
			Constant: upToDate, Claims: one, Late: true,
			Budget: Budget{DeleteClaim: 1, Node: 2, RPC: 1, Unfit: 1, Zone: 1, Crash: 1},
		},
		{
			Name: "node, compatible", About: "the same, with a driver that takes a volume that another request made",
			Constant: upToDate, Claims: one, Late: true, Compatible: true,
			Budget: Budget{DeleteClaim: 1, Node: 2, RPC: 2, Unfit: 1, Crash: 1},
		},
		{
			Name: "one name", About: "two claims whose volumes have one name",
			Constant: oneLeader, Claims: two, Short: true, Lag: 1,
			Budget: Budget{DeleteClaim: 1, CreateClaim: 1, RPC: 1, Crash: 1},
		},
		{
			Name: "one name, late watches", About: "the same, with watches that show what is over",
			Constant: oneLeader, Claims: two, Short: true, Lag: 2,
			Budget: Budget{DeleteClaim: 2, CreateClaim: 1},
		},
	}
}

// exitWorlds are about what a request waits for besides the driver's answer, and about what is not there any more.
func exitWorlds() []World {
	return []World{
		{
			Name: "log full", About: "another node is selected while an outcome is open, and the log has no room for more",
			Constant: upToDate, Claims: one, Late: true,
			Budget: Budget{DeleteClaim: 1, Node: 1, RPC: 1, Refuse: 1, Crash: 1, LogFull: 1},
		},
		{
			Name: "node gone", About: "the selected node goes while an outcome is open, another one is selected, and the " +
				"first one returns",
			Constant: upToDate, Claims: one, Late: true, Scheduled: true,
			Budget: Budget{DeleteClaim: 1, Leave: 2, RPC: 2, Refuse: 1, Crash: 1},
		},
		{
			Name: "Secret", About: "the Secret is deleted while an outcome is open, with the claim or before it",
			Constant: upToDate, Claims: one,
			Budget: Budget{DeleteClaim: 1, Secret: 2, RPC: 2, Unfit: 1, Crash: 1},
		},
		{
			Name: "driver replaced", About: "another version of the driver, which rejects the requests of the one before " +
				"for ever",
			Constant: upToDate, Claims: one, Rejects: true,
			Budget: Budget{DeleteClaim: 1, Replace: 2, SettleEntry: 1, RPC: 2, Unfit: 1, Crash: 1},
		},
		{
			Name: "driver replaced, unsure", About: "the same, with versions that may accept them or not",
			Constant: upToDate, Claims: one,
			Budget: Budget{DeleteClaim: 1, Replace: 2, API: 1, RPC: 2, Unfit: 1, Crash: 1},
		},
	}
}

// driverWorlds are about what a driver may answer.
func driverWorlds() []World {
	return []World{
		{
			Name: "occupied", About: "the first CreateVolume is answered AlreadyExists, as the name has a volume that is not " +
				"ours",
			Constant: oneLeader, Claims: one, Lag: 1, Occupied: true,
			Budget: Budget{DeleteClaim: 1, RPC: 1, Crash: 1, API: 1},
		},
		{
			Name: "refused", About: "a driver that refuses, also in doubt, and after a restart",
			Constant: oneLeader, Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Refuse: 2, RPC: 2, Unfit: 1, Crash: 1},
		},
		{
			Name: "late calls", About: "calls of the driver that arrive after others were answered",
			Constant: oneLeader, Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, RPC: 3, API: 1, Crash: 1, Unfit: 1},
		},
		{
			Name: "not as requested", About: "a driver that makes another volume than was asked for",
			Constant: oneLeader, Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Spoil: 1, RPC: 2, Crash: 1, Slow: 1},
		},
		{
			Name: "not as requested, unique", About: "the same, with handles that are never used again",
			Constant: oneLeader, Claims: one, Lag: 1, Unique: true,
			Budget: Budget{DeleteClaim: 1, Spoil: 1, RPC: 2, Crash: 1, Slow: 1},
		},
		{
			Name:     "one name, not as requested",
			About:    "two claims whose volumes have one name, and a volume that is not what was asked for",
			Constant: upToDate, Claims: two, Short: true,
			Budget: Budget{DeleteClaim: 1, CreateClaim: 1, Spoil: 1, RPC: 1},
		},
	}
}

// pvWorlds are about what becomes of PVs, and of their volumes, meanwhile.
func pvWorlds() []World {
	return []World{
		{
			Name: "PV deleted", About: "a PV that is deleted as soon as it is there",
			Constant: oneLeader, Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, DeletePV: 1, API: 1, RPC: 1, Crash: 1},
		},
		{
			Name: "PV kept", About: "a PV that is turned to Retain and deleted",
			Constant: oneLeader, Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, DeletePV: 1, Retain: 1, API: 1, RPC: 1, Crash: 1},
		},
		{
			Name: "PV kept, unique", About: "the same, with handles that are never used again",
			Constant: oneLeader, Claims: one, Lag: 1, Unique: true,
			Budget: Budget{DeleteClaim: 1, DeletePV: 1, Retain: 1, API: 1, RPC: 1},
		},
		{
			Name: "PV kept, slow", About: "the same, and a process that stalls after its reads",
			Constant: oneLeader, Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, DeletePV: 1, Retain: 1, RPC: 1, Slow: 1},
		},
		{
			Name: "PV kept, late watches", About: "the same, with watches that show what is over",
			Constant: oneLeader, Claims: one, Lag: 2,
			Budget: Budget{DeleteClaim: 1, DeletePV: 1, Retain: 1, RPC: 1},
		},
		{
			Name: "name taken", About: "a PV of another driver under the claim's name for its PV, for a while",
			Constant: oneLeader, Claims: one, Lag: 1,
			Budget: Budget{DeleteClaim: 1, TakeName: 1, DeletePV: 1, RPC: 1, Crash: 1},
		},
		{
			Name: "reclaim", About: "the log changes between reclaim's look at it and the driver's call",
			Constant: oneLeader, Claims: anew, Lag: 1, Gap: true,
			Budget: Budget{DeleteClaim: 2, CreateClaim: 1, RPC: 1},
		},
	}
}

// leaderWorlds are about two replicas.
func leaderWorlds() []World {
	return []World{
		{
			Name: "claim, replicas", About: "two replicas, of which the leading one ends",
			Constant: upToDate, Claims: one, Replicas: 2,
			Budget: Budget{DeleteClaim: 1, Crash: 2, API: 1, RPC: 1},
		},
		{
			Name: "claim, two leaders", About: "a leader that is paused while another takes over",
			Constant: "the API server answers: its writes that arrive late have a world of their own", Claims: one,
			Replicas: 2, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Overlap: 1, RPC: 1},
		},
		{
			Name: "claim, two leaders, late watches", About: "the same, with watches that show what is over",
			Constant: "nothing fails: that is the world before", Claims: one, Replicas: 2, Lag: 2,
			Budget: Budget{DeleteClaim: 1, Overlap: 1},
		},
		{
			Name: "claim, two leaders, late writes", About: "the same, with writes of the log and of PVs that arrive late",
			Constant: upToDate, Claims: one, Replicas: 2,
			Budget: Budget{DeleteClaim: 1, Overlap: 1, API: 2, RPC: 1},
		},
		{
			Name: "claim, two leaders, PV kept", About: "the same, and the PV is turned to Retain and deleted",
			Constant: upToDate, Claims: one, Replicas: 2,
			Budget: Budget{DeleteClaim: 1, Overlap: 1, API: 1, RPC: 1, DeletePV: 1, Retain: 1},
		},
		{
			Name: "claim, two leaders, not as requested", About: "the same, and a volume that is not what was asked for",
			Constant: upToDate, Claims: one, Replicas: 2,
			Budget: Budget{DeleteClaim: 1, Overlap: 1, RPC: 1, Spoil: 1},
		},
	}
}

// nodeWorlds are about a provisioner on each node.
func nodeWorlds() []World {
	return []World{
		{
			Name: "nodes", About: "a provisioner on each node, and another node is selected",
			Constant: "claims are not deleted: without lag they are", Claims: one, Replicas: 2, Local: true, Lag: 1,
			Budget: Budget{Node: 1, RPC: 1},
		},
		{
			Name: "nodes, deleted", About: "the same, and the claim is deleted",
			Constant: upToDate, Claims: one, Replicas: 2, Local: true,
			Budget: Budget{DeleteClaim: 1, Node: 2, RPC: 1},
		},
		{
			Name: "nodes, restart", About: "the same, and a process that ends",
			Constant: upToDate, Claims: one, Replicas: 2, Local: true,
			Budget: Budget{DeleteClaim: 1, Node: 1, RPC: 1, Crash: 1},
		},
	}
}

// excuses are worlds in which happens what the documentation names: people and programs that go past the log. Its
// loss is excused for the volume that it concerns, and for nothing else.
func excuses() []World {
	return []World{
		{
			Name: "log deleted", About: "the log is deleted while its leader knows what was in it: it writes it anew",
			Constant: upToDate, Claims: one,
			Budget: Budget{DeleteClaim: 1, DeleteLog: 1, RPC: 1, API: 1},
		},
		{
			Name: "excuse: log deleted", About: "the log is deleted while no process remembers it",
			Constant: upToDate, Claims: one,
			Budget: Budget{DeleteClaim: 1, DeleteLog: 1, RPC: 1, Crash: 1},
		},
		{
			Name: "excuse: entry settled", About: "an operator settles an open entry, which replicas learn by reads of the log",
			Constant: upToDate, Claims: one,
			Budget: Budget{DeleteClaim: 1, SettleEntry: 1, RPC: 1, API: 1, Crash: 1},
		},
		{
			Name:     "excuse: unfit volume settled",
			About:    "an operator settles the entry of a volume that is not what was asked for, or whose PV's name is taken",
			Constant: upToDate, Claims: one,
			Budget: Budget{DeleteClaim: 1, SettleEntry: 1, RPC: 1, Spoil: 1, TakeName: 1, DeletePV: 1},
		},
		{
			Name: "excuse: finalizer removed", About: "the finalizer of a PV is removed by hand while its entry is open",
			Constant: upToDate, Claims: one,
			Budget: Budget{DeleteClaim: 1, DeletePV: 1, Retain: 1, Strip: 1, RPC: 1, API: 1},
		},
		{
			Name:     "excuse: another provisioner",
			About:    "a provisioner beside ours that deletes a released volume without regard to the log",
			Constant: upToDate, Claims: one,
			Budget: Budget{DeleteClaim: 1, Peer: 1, RPC: 1, API: 1},
		},
		{
			Name: "excuse: no room", About: "a driver that answers ResourceExhausted and nothing else: the entry stays open, " +
				"and holds nothing",
			Constant: upToDate, Claims: one, Full: true,
			Budget: Budget{DeleteClaim: 1, RPC: 1, API: 1, Crash: 1},
		},
		{
			Name: "excuse: later than quiet", About: "calls that arrive later than the engine counts on",
			Constant: upToDate, Claims: one,
			Budget: Budget{DeleteClaim: 1, Overdue: 1, RPC: 1, API: 1, Crash: 1, Unfit: 1},
		},
	}
}

// deepWorlds are larger: for a night, not for each change.
func deepWorlds() []World {
	return []World{
		{
			Name: "deep: claim", About: "a claim that is deleted while everything breaks", Deep: true, Claims: one, Lag: 1,
			Guarded: true,
			Budget:  Budget{DeleteClaim: 1, Crash: 2, API: 2, RPC: 2, Unfit: 1, Refuse: 1},
		},
		{
			Name: "deep: claim anew", About: "a claim that is made again under its name, and calls that fail", Deep: true,
			Claims: anew, Lag: 1,
			Budget: Budget{DeleteClaim: 2, CreateClaim: 1, API: 1, RPC: 1, Crash: 1},
		},
		{
			Name: "deep: node", About: "other nodes are selected while everything breaks", Deep: true, Claims: one, Late: true,
			Lag:    1,
			Budget: Budget{DeleteClaim: 1, Node: 3, RPC: 1, Refuse: 1, Unfit: 1, Crash: 1},
		},
		{
			Name:  "deep: claim, two leaders",
			About: "a leader that is paused while another takes over, PVs that are kept, and calls that fail", Deep: true,
			Claims: one, Replicas: 2, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Overlap: 1, API: 1, RPC: 1, DeletePV: 1, Retain: 1},
		},
		{
			Name: "deep: nodes", About: "a provisioner on each node, a process that ends, and calls that fail", Deep: true,
			Claims: one, Replicas: 2, Local: true, Lag: 1,
			Budget: Budget{DeleteClaim: 1, Node: 1, RPC: 1, API: 1, Crash: 1},
		},
	}
}
