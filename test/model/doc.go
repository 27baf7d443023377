// Package model explores, to exhaustion within named bounds, what can happen to PVs, claims
// and volumes while csi-reclaimer is at work, and judges each step against the promises of
// the reclaim contract.
//
// The sidecar in it is the code that ships: [reclaim.Decide], what a run asks and learns, what
// the event handlers note. Only those who answer are played here: the API server with its
// watches, which lag for each replica and kind of object on their own; kube-controller-manager;
// external-attacher; users; the storage system; the lease; and chance, which breaks what can
// break.
//
// worlds.go lists the bounds; world.go is what exists in one; users.go, cluster.go and
// sidecar.go are the moves; judge.go holds the promises, told apart from how the code keeps
// them; explore.go searches breadth first; story.go tells how something came about.
//
// How volumes are made is explored by package claims, and how those of in-tree plugins are deleted by
// package twins, in worlds of their own; all are searched by package search, and keep what replicas
// know by package memory.
//
// All of it needs the build tag model, which opens pkg/reclaim to it.
package model
