package fencing

import (
	"fmt"

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
	// Name is the name in tables and on the command line.
	Name string
	// About is the purpose of the world, in a sentence.
	About string
	// Constant names constants that matter for the purpose, and the reason why they hide no error.
	Constant string
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
	Lag bool
	// Deep worlds are explored only when asked for.
	Deep   bool
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
	Cut, Heal, PowerCut, Replace, Late uint8
	// Slow lets an agent exceed its time limit, Fail lets it fail, and Hang leaves it without a result. Endless keeps a
	// stopped agent from ending, Vanish deletes its object, and Lie lets it report a false success. Again tries all agents
	// once more.
	Slow, Fail, Hang, Endless, Vanish, Lie, Again uint8
	// Crash ends a replica, and API lets a call fail or loses its answer.
	Crash, API uint8
}

// Worlds returns the explored worlds.
func Worlds() []World {
	worlds := append(append(basic(), agents()...), append(people(), append(machines(), liars()...)...)...)
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

// basic returns worlds about one agent that powers the machine off, and about volume-guard itself.
func basic() []World {
	return []World{
		{
			Name: "fence", About: "a node that is cut off is powered off, and returns, at any step; a replica ends between " +
				"its steps", Agents: []Agent{Power}, Constant: upToDate + "; " + oneLeader,
			Budget: Budget{Fence: 1, Delete: 1, Cut: 1, Heal: 1, On: 1, Crash: 1},
		},
		{
			Name: "fence, calls fail", About: "calls to the API server fail or lose their answer, twice",
			Agents: []Agent{Power}, Constant: upToDate + "; " + onePod,
			Budget: Budget{Fence: 1, Delete: 1, Cut: 1, API: 2},
		},
		{
			Name: "fence, lag", About: "watches lag, a fence is ended, and another one follows", Lag: true,
			Agents: []Agent{Power}, Constant: onePod, Budget: Budget{Fence: 2, Cut: 1, Now: 1},
		},
		{
			Name: "fence, two leaders", About: "two replicas act at the same time", Agents: []Agent{Power}, Replicas: 2,
			Constant: upToDate + "; " + onePod, Budget: Budget{Fence: 1},
		},
		{
			Name: "deep: fence, two leaders, ended", About: "two replicas act at the same time, and the fence is ended",
			Deep: true, Agents: []Agent{Power}, Replicas: 2, Constant: upToDate + "; " + onePod,
			Budget: Budget{Fence: 1, Now: 1},
		},
		{
			Name: "fence, chain", About: "agents take too long, hang, do not end, and are tried again",
			Agents: []Agent{Power, Reboot}, Constant: upToDate + "; " + oneLeader,
			Budget: Budget{Fence: 1, Slow: 1, Hang: 1, Endless: 1, Again: 1},
		},
	}
}

// agents returns worlds about agents of each kind, and their faults.
func agents() []World {
	return []World{
		{
			Name: "fence, agents fail", About: "agents fail, lose their objects, and are tried again",
			Agents: []Agent{Power, Reboot}, Constant: upToDate + "; " + oneLeader,
			Budget: Budget{Fence: 1, Delete: 1, Fail: 2, Vanish: 1, Again: 1},
		},
		{
			Name: "fence, reboot", About: "an agent that reboots the machine, with pods that were terminating before " +
				"and pods that were not", Agents: []Agent{Reboot}, Pods: 2, Constant: upToDate + "; " + oneAgent,
			Budget: Budget{Fence: 1, Delete: 2, Cut: 1, PowerCut: 1},
		},
		{
			Name: "fence, reboot, then power", About: "a node does not return from a reboot, and the next agent is tried for " +
				"a pod that was not terminating before", Agents: []Agent{Reboot, Power},
			Constant: upToDate + "; " + onePod + "; " + oneLeader,
			Budget:   Budget{Fence: 1, Delete: 1, Cut: 1, Heal: 1, Fail: 1, Again: 1},
		},
		{
			Name: "fence, remediation", About: "a custom resource with the name of the node, which hangs, is deleted and " +
				"does not end", Agents: []Agent{Remediation}, Constant: upToDate,
			Budget: Budget{Fence: 1, Delete: 1, Hang: 1, Endless: 1, Now: 1},
		},
		{
			Name: "fence, volumes", About: "an agent that cuts the node off from volumes releases no pod, and its fence is " +
				"deleted", Agents: []Agent{Volumes}, Constant: upToDate,
			Budget: Budget{Fence: 1, Delete: 1, Cut: 1, Heal: 1, PowerCut: 1, Now: 1, DeleteFence: 1},
		},
		{
			Name: "fence, volumes, shunned", About: "a node that is fenced from volumes returns with and without a reboot, " +
				"while replicas end and calls fail", Agents: []Agent{Volumes}, Constant: upToDate,
			Budget: Budget{Fence: 1, Cut: 1, Heal: 1, PowerCut: 1, Now: 1, Crash: 1, API: 1},
		},
		{
			Name: "fence, volumes, Node copied", About: "the Node of such a fence is deleted and registered again, and a " +
				"person adds or removes its taint", Agents: []Agent{Volumes}, Constant: upToDate + "; " + oneLeader,
			Budget: Budget{Fence: 1, PowerCut: 1, Abandon: 1, DeleteNode: 1, Taint: 1},
		},
		{
			Name: "deep: fence, volumes, two leaders", About: "two replicas fence a node from volumes at the same time",
			Deep: true, Agents: []Agent{Volumes}, Replicas: 2, Constant: upToDate + "; " + onePod,
			Budget: Budget{Fence: 1, PowerCut: 1},
		},
		{
			Name: "fence, storage systems", About: "two agents cut the node off from volumes of two storage systems, and take " +
				"too long", Agents: []Agent{Volumes, Volumes}, Constant: upToDate + "; " + oneLeader,
			Budget: Budget{Fence: 1, Delete: 1, Slow: 1, Again: 1},
		},
		{
			Name: "fence, storage systems, ended", About: "such a fence is ended and deleted, before and after a reboot",
			Agents: []Agent{Volumes, Volumes}, Constant: upToDate + "; " + oneLeader,
			Budget: Budget{Fence: 1, Delete: 1, PowerCut: 1, Now: 1, DeleteFence: 1},
		},
	}
}

// machines returns worlds about nodes whose machine is replaced.
func machines() []World {
	return []World{{
		Name: "fence, another machine", About: "another machine takes the name of a node that is fenced from volumes",
		Agents: []Agent{Volumes}, Constant: upToDate + "; " + oneLeader,
		Budget: Budget{Fence: 1, Delete: 1, Cut: 1, Replace: 1, Now: 1, DeleteFence: 1},
	}}
}

// people returns worlds about actions of people, and machines that return.
func people() []World {
	return []World{
		{
			Name: "fence, person", About: "a person powers the machine off and says so, before, during and after the agents",
			Agents: []Agent{Power, Person}, Constant: upToDate,
			Budget: Budget{Fence: 1, Off: 1, On: 1, Confirm: 1, Fail: 1},
		},
		{
			Name: "fence, ended", About: "a person ends the fence, abandons it, and deletes the NodeFence, at any step",
			Agents: []Agent{Power}, Constant: upToDate,
			Budget: Budget{Fence: 1, Now: 1, Abandon: 1, DeleteFence: 1},
		},
		{
			Name: "fence, when released", About: "the machine is powered on again once its pods are released",
			WhenReleased: true,
			Agents:       []Agent{Power}, Pods: 2, Constant: upToDate,
			Budget: Budget{Fence: 1, Delete: 2, Cut: 1, Heal: 1, Crash: 1},
		},
		{
			Name:   "fence, power",
			About:  "the machine is powered on by hand while the fence is in force, runs, and is cut off again",
			Agents: []Agent{Power}, Pods: 2, Constant: upToDate,
			Budget: Budget{Fence: 1, Delete: 2, Cut: 1, On: 1},
		},
		{
			Name: "fence, late requests", About: "renewals and statuses of the node that were under way are carried out late",
			Agents: []Agent{Power}, Constant: upToDate,
			Budget: Budget{Fence: 1, Delete: 1, On: 1, Late: 1},
		},
	}
}

// liars returns worlds about false proofs, and about nodes that must not be fenced.
func liars() []World {
	return []World{
		{
			Name: "fence, lying agent", About: "an agent says that it has done what it has not: the node contradicts it",
			Agents: []Agent{Power}, Constant: upToDate,
			Budget: Budget{Fence: 1, Delete: 1, Cut: 1, Heal: 1, Lie: 1, Again: 1},
		},
		{
			Name: "fence, lying agent, when released", About: "the same, with a fence that is undone once the pods are released",
			Agents: []Agent{Power}, WhenReleased: true, Constant: upToDate,
			Budget: Budget{Fence: 1, Cut: 1, Lie: 1, Again: 1, Now: 1},
		},
		{
			Name: "fence, false word", About: "a person confirms what is not so, and another one what is",
			Agents: []Agent{Person}, Constant: upToDate,
			Budget: Budget{Fence: 1, Delete: 1, Cut: 1, LieWord: 1, Again: 1},
		},
		{
			Name: "fence, restored", About: "a NodeFence is restored with the confirmation of another one, and confirmed anew",
			Agents: []Agent{Person}, Constant: upToDate,
			Budget: Budget{Restore: 1, Fence: 1, Delete: 1, Cut: 1, Heal: 1, Off: 1, Confirm: 1, DeleteFence: 1, Again: 1},
		},
		{
			Name: "fence, Node deleted", About: "the Node is deleted, before and after the proof", Agents: []Agent{Power},
			Constant: upToDate,
			Budget:   Budget{Fence: 1, Delete: 1, Cut: 1, DeleteNode: 1, Now: 1},
		},
		{
			Name: "fence, for a policy", About: "a node that comes back by itself before its agent has begun is not fenced",
			Agents: []Agent{Power}, Policy: true, Constant: upToDate + "; " + onePod,
			Budget: Budget{Fence: 1, Cut: 1, Heal: 1, Slow: 1, Again: 1, Crash: 1},
		},
		{
			Name: "fence, control plane", About: "a node of the control plane is not fenced", Agents: []Agent{Power},
			ControlPlane: true, Constant: upToDate, Budget: Budget{Fence: 1, Cut: 1, Heal: 1, DeleteFence: 1, Now: 1},
		},
	}
}

// Bounds describes the bounds of the world.
func (w *World) Bounds() string {
	return search.Bounds(w.Budget, fmt.Sprintf("agents %v, pods %d, replicas %d", w.Agents, w.Pods, w.Replicas),
		search.If(w.Lag, "lag"), search.If(w.Policy, "policy"), search.If(w.ControlPlane, "control plane"),
		search.If(w.WhenReleased, "when released"))
}

// String returns the name of the kind.
func (a Agent) String() string {
	return [...]string{Power: "power", Reboot: "reboot", Remediation: "remediation", Volumes: "volumes",
		Person: "person"}[a]
}
