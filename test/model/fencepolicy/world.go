package fencepolicy

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

const maxNodes = 5

// fenced says how a node was fenced, if at all.
type fenced uint8

const (
	notFenced fenced = iota
	byPolicy
	byHand
)

// node is a machine, its Node, and its NodeFence.
type node struct {
	// cut means that its kubelet does not reach the API server, unreachable that its condition Ready is Unknown.
	cut, unreachable bool
	fenced           fenced
	// seen and seenFenced are the states of unreachable and fenced in the watches.
	seen, seenFenced bool
	// silent means that volume-guard has seen no renewal of the Lease, and long that this has lasted as long as the policy
	// waits.
	silent, long bool
}

// session is the work on the policy, between a decision and the NodeFence that results from it.
type session struct {
	// of is the number of the node from 1, 0 for no session.
	of uint8
	// listed means that the NodeFences were listed, and fences has a bit for each of them.
	listed bool
	fences uint8
	// read means that the Node and its Lease were read, and unreachable is the result.
	read, unreachable bool
	// For the invariants: the policy was not halted, the limits were not reached, and the node was not reachable, at a
	// moment since the decision.
	mayRun, mayBegin, wasAway bool
}

// state is the whole state, as plain data that can be compared and copied.
type state struct {
	nodes   [maxNodes]node
	session session
	left    Budget
}

// World names bounds: the objects, and how often each event may happen.
type World struct {
	search.Purpose
	// Zones has the zone of each node, a letter each.
	Zones string
	// Max, PerZone and Halt are maxFences, maxFencesPerZone and haltAbove of the policy.
	Max, PerZone, Halt int
	// Selected is the number of nodes, from the first one, that the policy selects; 0 for all.
	Selected int
	Budget   Budget
}

// selects reports whether the policy selects a node.
func (w *World) selects(i int) bool { return w.Selected == 0 || i < w.Selected }

// Budget bounds the number of each event in one history: Cut cuts a node off, Heal lets it return, Hand lets a person
// fence a node, and Crash ends volume-guard.
type Budget struct{ Cut, Heal, Hand, Crash uint8 }

// Worlds returns the explored worlds.
func Worlds() []World { return slices.Clone(table) }

const still = "which pods wait, and for how long: each node has one that waits, for without it no node is fenced"

// table has the explored worlds.
var table = []World{
	{Purpose: search.About("fence policy, limit", "more nodes are unreachable than may be fenced at once, and come back",
		still), Zones: "aabb", Max: 1, PerZone: 1, Halt: 75, Budget: Budget{Cut: 3, Heal: 2, Crash: 1}},
	{Purpose: search.About("fence policy, zones", "two nodes of different zones may be fenced, and no two of one", still),
		Zones: "aabbc", Max: 2, PerZone: 1, Halt: 80, Budget: Budget{Cut: 3, Heal: 1}},
	{Purpose: search.About("fence policy, storm", "all nodes are cut off one after the other, and return", still),
		Zones: "abab", Max: 4, PerZone: 4, Halt: 40, Budget: Budget{Cut: 4, Heal: 2}},
	{Purpose: search.About("fence policy, a zone is gone", "the nodes of a zone are cut off, and return", still),
		Zones: "aabb", Max: 4, PerZone: 4, Halt: 100, Budget: Budget{Cut: 3, Heal: 2}},
	{Purpose: search.About("fence policy, a selection",
		"most of the nodes that the policy selects are cut off, and few of all", still),
		Zones: "abcde", Max: 2, PerZone: 1, Halt: 60, Selected: 3, Budget: Budget{Cut: 3, Heal: 2}},
	{Purpose: search.About("fence policy, flapping", "one node is cut off and returns again and again", still),
		Zones: "abc", Max: 1, PerZone: 1, Halt: 70, Budget: Budget{Cut: 4, Heal: 4, Crash: 1}},
	{Purpose: search.About("fence policy, by hand", "people fence nodes while the policy does", still),
		Zones: "abc", Max: 2, PerZone: 1, Halt: 70, Budget: Budget{Cut: 2, Heal: 1, Hand: 2}},
}

// spec returns the spec of the policy.
func (w *World) spec() v1alpha1.FencePolicySpec {
	wait := false
	return v1alpha1.FencePolicySpec{MaxFences: intstr.FromInt(w.Max), MaxFencesPerZone: int32(w.PerZone),
		HaltAbove: int32(w.Halt), UnreachableAfter: metav1.Duration{Duration: 5 * time.Minute}, WaitForTolerations: &wait}
}

// facts returns the facts about the policy, from live reads as far as the session has made them.
func (w *World) facts(s *state, at time.Time) fencing.PolicyFacts {
	f := fencing.PolicyFacts{Spec: w.spec()}
	for i := range w.Zones {
		n := s.nodes[i]
		v := fencing.NodeView{Name: name(i), Zone: w.Zones[i : i+1], Selected: w.selects(i), Unreachable: n.seen, Waiting: 1,
			Fenced: n.seenFenced}
		f.View = f.View || !n.cut
		switch {
		case n.long:
			v.Since = at.Add(-time.Hour)
		case n.silent:
			v.Since = at
		}
		if s.session.listed {
			v.Fenced = s.session.fences&(1<<i) != 0
		}
		if s.session.read && int(s.session.of) == i+1 {
			v.Unreachable = s.session.unreachable
		}
		f.Nodes = append(f.Nodes, v)
	}
	return f
}

func name(i int) string { return "node-" + string(rune('0'+i)) }
