package fencing

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Agent is a kind of agents.
type Agent uint8

const (
	// Power is a Job that powers the machine off, and on again to undo that.
	Power Agent = iota
	// Reboot is a Job that reboots the machine.
	Reboot
	// Remediation is a custom resource whose creation reboots the machine, and whose deletion is the undo.
	Remediation
	// Volumes cuts the machine off from the volumes of a driver.
	Volumes
	// Person waits for a person, who powers the machine off.
	Person
)

// World names bounds: the objects, and how often each event may happen.
type World struct {
	search.Purpose
	// Agents are the agents of each NodeFence.
	Agents []Agent
	// Pods is the number of pods on the node. The second one tolerates the taint.
	Pods     int
	Replicas int
	// Policy means that a FencePolicy creates the NodeFence, ControlPlane that the node is one of the control plane.
	Policy, ControlPlane bool
	// WhenReleased undoes the fence once the pods are released.
	WhenReleased bool
	// Lag means that watches deliver a state at any later time, and not at once.
	Lag    bool
	Budget Budget
}

// Budget bounds the number of each event in one history.
type Budget struct {
	// Fence creates a NodeFence, Delete deletes a pod, and Off and On power the machine off and on by hand. Confirm is the
	// confirmation of a person who has powered it off, and LieWord of one who has not. Now and Abandon end the fence, and
	// DeleteFence and DeleteNode delete the objects. Restore applies a NodeFence from a backup, with a confirmation.
	// Taint adds the taint that keeps new pods away, as with a copy of the Node, or removes it.
	Restore, Fence, Delete, Off, On, Confirm, LieWord, Now, Abandon, DeleteFence, DeleteNode, Taint uint8
	// Cut cuts a kubelet off, Heal lets it return, and PowerCut reboots the machine. Replace gives the name of a machine
	// that was cut off to another one. Late carries out requests of a machine after it was cut off or has ended.
	// Unready lets a kubelet that has come back write that it is not ready yet.
	Cut, Heal, PowerCut, Replace, Late, Unready uint8
	// Slow lets an agent exceed its time limit, Fail lets it fail, and Hang leaves it without a result. Endless keeps a
	// stopped agent from ending, Vanish deletes its object, and Lie lets it report a false success. Again tries all agents
	// once more.
	Slow, Fail, Hang, Endless, Vanish, Lie, Again uint8
	// Crash ends a replica, and API lets a call fail or loses its answer. List lets a list take longer than other reads
	// are valid, or leave the VolumeAttachments unknown.
	Crash, API, List uint8
}

// Worlds returns the explored worlds.
func Worlds() []World {
	worlds := slices.Clone(table)
	for i := range worlds {
		w := &worlds[i]
		w.Replicas, w.Pods = max(w.Replicas, 1), max(w.Pods, 1)
	}
	return worlds
}

const (
	onePod    = "the second pod: what is released for one is released for each"
	oneLeader = "one replica: a second does what one does after a crash, and two have a world of their own"
	upToDate  = "watches: what they show is never a proof, and a world of its own has them lag"
	oneAgent  = "one agent: chains have worlds of their own"
)

// table has the explored worlds.
var table = []World{
	// One agent that powers the machine off, and volume-guard itself.
	{Purpose: search.About("fence",
		"a node that is cut off is powered off, and returns, at any step; a replica ends between its steps", upToDate,
		oneLeader), Agents: []Agent{Power}, Budget: Budget{Fence: 1, Delete: 1, Cut: 1, Heal: 1, On: 1, Crash: 1}},
	{Purpose: search.About("fence, calls fail", "calls to the API server fail or lose their answer, twice", upToDate,
		onePod), Agents: []Agent{Power}, Budget: Budget{Fence: 1, Delete: 1, Cut: 1, API: 2}},
	{Purpose: search.About("fence, lag", "watches lag, a fence is ended, and another one follows", onePod),
		Lag: true, Agents: []Agent{Power}, Budget: Budget{Fence: 2, Cut: 1, Now: 1}},
	{Purpose: search.About("fence, two leaders", "two replicas act at the same time", upToDate, onePod),
		Agents: []Agent{Power}, Replicas: 2, Budget: Budget{Fence: 1}},
	{Purpose: search.Deep("deep: fence, two leaders, ended", "two replicas act at the same time, and the fence is ended",
		upToDate, onePod), Agents: []Agent{Power}, Replicas: 2, Budget: Budget{Fence: 1, Now: 1}},
	{Purpose: search.About("fence, chain", "agents take too long, hang, do not end, and are tried again", upToDate,
		oneLeader), Agents: []Agent{Power, Reboot}, Budget: Budget{Fence: 1, Slow: 1, Hang: 1, Endless: 1, Again: 1}},

	{Purpose: search.About("fence, lists", "lists take long, or are awaited", upToDate, oneLeader),
		WhenReleased: true, Agents: []Agent{Power}, Budget: Budget{Fence: 1, Delete: 1, Cut: 1, DeleteNode: 1, List: 2}},
	{Purpose: search.About("fence, lists, reboot, then power",
		"such lists before the agents, and before the end of a fence", upToDate, onePod, oneLeader),
		Agents: []Agent{Reboot, Power}, Budget: Budget{Fence: 1, Delete: 1, Cut: 1, PowerCut: 1, Fail: 1, List: 2}},

	// Agents of each kind, and their faults.
	{Purpose: search.About("fence, agents fail", "agents fail, lose their objects, and are tried again", upToDate,
		oneLeader), Agents: []Agent{Power, Reboot}, Budget: Budget{Fence: 1, Delete: 1, Fail: 2, Vanish: 1, Again: 1}},
	{Purpose: search.About("fence, reboot",
		"an agent that reboots the machine, with pods that were terminating before and pods that were not", upToDate,
		oneAgent), Agents: []Agent{Reboot}, Pods: 2, Budget: Budget{Fence: 1, Delete: 2, Cut: 1, PowerCut: 1}},
	{Purpose: search.About("fence, reboot, then power",
		"a node does not return from a reboot, and the next agent is tried for a pod that was not terminating before",
		upToDate, onePod, oneLeader),
		Agents: []Agent{Reboot, Power}, Budget: Budget{Fence: 1, Delete: 1, Cut: 1, Heal: 1, Fail: 1, Again: 1}},
	{Purpose: search.About("fence, reboot, confirmed",
		"a person powers a machine off that was rebooted, and says so, with and without a pod that remains", upToDate, onePod,
		oneLeader), Agents: []Agent{Reboot}, Budget: Budget{Fence: 1, Delete: 1, Off: 1, Confirm: 1}},
	{Purpose: search.About("fence, remediation",
		"a custom resource with the name of the node, which hangs, is deleted and does not end", upToDate),
		Agents: []Agent{Remediation}, Budget: Budget{Fence: 1, Delete: 1, Hang: 1, Endless: 1, Now: 1}},
	{Purpose: search.About("fence, volumes",
		"an agent that cuts the node off from volumes releases no pod, and its fence is deleted", upToDate),
		Agents: []Agent{Volumes}, Budget: Budget{Fence: 1, Delete: 1, Cut: 1, Heal: 1, PowerCut: 1, Now: 1, DeleteFence: 1}},
	{Purpose: search.About("fence, volumes, shunned",
		"a node that is fenced from volumes returns with and without a reboot, while replicas end and calls fail", upToDate),
		Agents: []Agent{Volumes}, Budget: Budget{Fence: 1, Cut: 1, Heal: 1, PowerCut: 1, Now: 1, Crash: 1, API: 1}},
	{Purpose: search.About("fence, volumes, Node copied",
		"the Node of such a fence is deleted and registered again, and a person adds or removes its taint", upToDate,
		oneLeader), Agents: []Agent{Volumes}, Budget: Budget{Fence: 1, PowerCut: 1, Abandon: 1, DeleteNode: 1, Taint: 1}},
	{Purpose: search.Deep("deep: fence, volumes, two leaders", "two replicas fence a node from volumes at the same time",
		upToDate, onePod), Agents: []Agent{Volumes}, Replicas: 2, Budget: Budget{Fence: 1, PowerCut: 1}},
	{Purpose: search.About("fence, storage systems",
		"two agents cut the node off from volumes of two storage systems, and take too long", upToDate, oneLeader),
		Agents: []Agent{Volumes, Volumes}, Budget: Budget{Fence: 1, Delete: 1, Slow: 1, Again: 1}},
	{Purpose: search.About("fence, storage systems, ended", "such a fence is ended and deleted, before and after a reboot",
		upToDate, oneLeader),
		Agents: []Agent{Volumes, Volumes}, Budget: Budget{Fence: 1, Delete: 1, PowerCut: 1, Now: 1, DeleteFence: 1}},

	// Actions of people, and machines that return.
	{Purpose: search.About("fence, person",
		"a person powers the machine off and says so, before, during and after the agents", upToDate),
		Agents: []Agent{Power, Person}, Budget: Budget{Fence: 1, Off: 1, On: 1, Confirm: 1, Fail: 1}},
	{Purpose: search.About("fence, ended", "a person ends the fence, abandons it, and deletes the NodeFence, at any step",
		upToDate), Agents: []Agent{Power}, Budget: Budget{Fence: 1, Now: 1, Abandon: 1, DeleteFence: 1}},
	{Purpose: search.About("fence, when released", "the machine is powered on again once its pods are released", upToDate),
		WhenReleased: true, Agents: []Agent{Power}, Pods: 2, Budget: Budget{Fence: 1, Delete: 2, Cut: 1, Heal: 1, Crash: 1}},
	{Purpose: search.About("fence, power",
		"the machine is powered on by hand while the fence is in force, runs, and is cut off again", upToDate),
		Agents: []Agent{Power}, Pods: 2, Budget: Budget{Fence: 1, Delete: 2, Cut: 1, On: 1}},
	{Purpose: search.About("fence, late requests",
		"renewals and statuses of the node that were under way are carried out late", upToDate),
		Agents: []Agent{Power}, Budget: Budget{Fence: 1, Delete: 1, On: 1, Late: 1}},

	// Nodes whose machine is replaced.
	{Purpose: search.About("fence, another machine",
		"another machine takes the name of a node that is fenced from volumes", upToDate, oneLeader),
		Agents: []Agent{Volumes}, Budget: Budget{Fence: 1, Delete: 1, Cut: 1, Replace: 1, Now: 1, DeleteFence: 1}},

	// False proofs, and nodes that must not be fenced.
	{Purpose: search.About("fence, lying agent", "an agent says that it has done what it has not: the node contradicts it",
		upToDate), Agents: []Agent{Power}, Budget: Budget{Fence: 1, Delete: 1, Cut: 1, Heal: 1, Lie: 1, Again: 1}},
	{Purpose: search.About("fence, lying agent, when released",
		"the same, with a fence that is undone once the pods are released", upToDate),
		Agents: []Agent{Power}, WhenReleased: true, Budget: Budget{Fence: 1, Cut: 1, Lie: 1, Again: 1, Now: 1}},
	{Purpose: search.About("fence, false word", "a person confirms what is not so, and another one what is", upToDate),
		Agents: []Agent{Person}, Budget: Budget{Fence: 1, Delete: 1, Cut: 1, LieWord: 1, Again: 1}},
	{Purpose: search.About("fence, restored",
		"a NodeFence is restored with the confirmation of another one, and confirmed anew", upToDate),
		Agents: []Agent{Person},
		Budget: Budget{Restore: 1, Fence: 1, Delete: 1, Cut: 1, Heal: 1, Off: 1, Confirm: 1, DeleteFence: 1, Again: 1}},
	{Purpose: search.About("fence, Node deleted", "the Node is deleted, before and after the proof", upToDate),
		Agents: []Agent{Power}, Budget: Budget{Fence: 1, Delete: 1, Cut: 1, DeleteNode: 1, Now: 1}},
	{Purpose: search.About("fence, for a policy",
		"a node that comes back by itself before its agent has begun is not fenced", upToDate, onePod),
		Agents: []Agent{Power}, Policy: true,
		Budget: Budget{Fence: 1, Cut: 1, Heal: 1, Unready: 1, Slow: 1, Again: 1, Crash: 1}},
	{Purpose: search.About("fence, control plane", "a node of the control plane is not fenced", upToDate),
		Agents: []Agent{Power}, ControlPlane: true, Budget: Budget{Fence: 1, Cut: 1, Heal: 1, DeleteFence: 1, Now: 1}},
}

// String returns the name of the kind.
func (a Agent) String() string {
	return [...]string{Power: "power", Reboot: "reboot", Remediation: "remediation", Volumes: "volumes",
		Person: "person"}[a]
}
