// Package reclaim explores, to exhaustion within named bounds, what can happen to PVs, claims
// and volumes while csi-reclaimer is at work, and checks each step against the promises of
// the reclaim contract.
//
// The sidecar in it is the code that ships: its decisions, its sessions, and the records of its
// event handlers. Only those who answer are played
// here: the API server with its watches, which lag for each replica and kind of object on their
// own; kube-controller-manager; external-attacher; users; the storage system; the lease; and
// chance, which breaks what can break.
//
// worlds.go lists the bounds; world.go is what exists in one; users.go, cluster.go and
// sidecar.go are the moves; invariants.go holds the promises, independent of how the code keeps
// them; replica.go is a replica, and codec.go writes it as bytes; transition.go is the change of a
// state by a move; trace.go has the sentences of moves.
//
// Sibling packages explore how volumes are provisioned, and how those of in-tree plugins are
// deleted; package search searches all of them, and package memory keeps what replicas know.
package reclaim
