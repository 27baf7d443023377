package fencepolicy

import (
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

type verb = search.Verb

// Moves by their sentences; %[1]d is the node.
const (
	nodeIsCutOff       verb = "node %[1]d is cut off"
	nodeReturns        verb = "node %[1]d returns"
	nodeIsFencedByHand verb = "a person fences node %[1]d"
	guardEnds          verb = "volume-guard ends and starts again"
	conditionFollows   verb = "the condition Ready of node %[1]d follows"
	fenceEnds          verb = "the fence of node %[1]d ends"
	watchShowsNode     verb = "the watch shows node %[1]d"
	watchShowsFence    verb = "the watch shows the NodeFence of node %[1]d, or that there is none"
	leaseIsSilent      verb = "the Lease of node %[1]d is not renewed"
	patienceEnds       verb = "node %[1]d has been unreachable for as long as the policy waits"
	policyDecides      verb = "the policy decides to fence a node"
	fencesAreListed    verb = "the NodeFences are listed"
	nodeIsRead         verb = "node %[1]d and its Lease are read"
	fenceIsCreated     verb = "the NodeFence of node %[1]d is created, if that is still to be done"
)

// move is one event, about a node.
type move struct {
	verb
	on int
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string { return m.Sentence(m.on) }
