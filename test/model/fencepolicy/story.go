package fencepolicy

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// verb is the kind of a move.
type verb uint8

const (
	nodeIsCutOff verb = iota
	nodeReturns
	nodeIsFencedByHand
	guardEnds
	conditionFollows
	fenceEnds
	watchShowsNode
	watchShowsFence
	leaseIsSilent
	patienceEnds
	policyDecides
	fencesAreListed
	nodeIsRead
	fenceIsCreated
	verbs
)

// move is one event, about a node.
type move struct {
	verb verb
	on   int
}

func (m move) code() search.Move { return uint32(m.verb)<<8 | uint32(m.on) }

func moveOf(code search.Move) move { return move{verb(code >> 8), int(code & 255)} }

// sentences describe the moves; %[1]d is the node.
var sentences = [verbs]string{
	nodeIsCutOff:       "node %[1]d is cut off",
	nodeReturns:        "node %[1]d returns",
	nodeIsFencedByHand: "a person fences node %[1]d",
	guardEnds:          "volume-guard ends and starts again",
	conditionFollows:   "the condition Ready of node %[1]d follows",
	fenceEnds:          "the fence of node %[1]d ends",
	watchShowsNode:     "the watch shows node %[1]d",
	watchShowsFence:    "the watch shows the NodeFence of node %[1]d, or that there is none",
	leaseIsSilent:      "the Lease of node %[1]d is not renewed",
	patienceEnds:       "node %[1]d has been unreachable for as long as the policy waits",
	policyDecides:      "the policy decides to fence a node",
	fencesAreListed:    "the NodeFences are listed",
	nodeIsRead:         "node %[1]d and its Lease are read",
	fenceIsCreated:     "the NodeFence of node %[1]d is created, if that is still to be done",
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string { return fmt.Sprintf(sentences[m.verb]+"%[2]s", m.on, "") }

// Story describes a history, with a sentence for each move.
func (w *World) Story(moves []search.Move) []string {
	var lines []string
	for _, m := range moves {
		lines = append(lines, w.describe(moveOf(m)))
	}
	return lines
}
