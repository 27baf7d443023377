// Package intree explores, to exhaustion within named bounds, what can happen to PVs of in-tree plugins
// whose volumes are deleted by way of a twin, and judges each step: no PV with policy Delete goes
// before its volume does (P1), no twin has a volume deleted that a living claim has, or whose PV is to keep
// it, and none stays armed once the plugin has failed (P2), and every state leads to rest, with no twin
// left and no PV held but for a reason that is told (P5).
//
// volume-guard in it is the code that ships: [intree.Decide], what a run does and learns, what the watch's
// handlers note and wake. Played are those who answer: the API server with its watch, which lags for each
// replica on its own; the PV controller, one write at a time, as its sources of 1.30 and 1.36 have it, with
// a cache of claims that may be behind; the plugin; users; the lease; the CSI sidecar of PVs that are
// migrated, simply and faithfully; and chance, which breaks what can break.
//
// A step that waits for an answer is kept as what went in, and is carried out anew when the answer is
// there: the code that ships is called as it is.
//
// # What is taken for granted
//
// What is to keep a volume and comes after its deletion has begun is too late, and not judged: from
// the moment when the last read before a twin is armed was answered, until the twin is disarmed and the PV
// controller at rest. A twin that is armed and deleted by hand leaves its volume behind, and so does a PV
// that nothing holds because of a user. What the PV controller deletes by way of a PV itself is its own
// doing.
//
// worlds.go lists the bounds; world.go is what exists in one; cluster.go, users.go and guard.go are the
// moves; judge.go holds the promises, told apart from how the code keeps them; story.go tells how
// something came about.
//
// All of it needs the build tag model, which opens pkg/intree to it.
package intree
