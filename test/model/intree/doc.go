// Package intree explores, to exhaustion within named bounds, what can happen to PVs of in-tree plugins whose
// volumes are deleted by way of a twin, and checks each step: no PV with policy Delete is gone before its volume is
// (P1), no twin has a volume deleted that an existing claim has, or whose PV is to keep it, and no twin keeps the
// policy Delete once the plugin has failed (P2), and every state leads to rest, with no twin left and no PV held
// but for a reason that is reported (P5).
//
// volume-guard in it is the code that ships: what its tracker remembers and enqueues,
// what it decides, and what its sessions ask and learn. Played are those who answer: the API server with its watch,
// which lags for each replica on its own; the PV controller, one write at a time, as its sources of 1.30 and 1.36
// have it, with a cache of claims that may be behind; the plugin; users; the lease; the CSI sidecar of PVs that are
// migrated, simply and faithfully; and chance, which breaks what can break.
//
// A session that waits for an answer is a value: it is encoded with the rest of the state, and continues in each state
// that follows.
//
// # What is taken for granted
//
// What is to keep a volume and comes after its deletion has begun is too late, and not judged: from the moment when the
// last read before a twin's policy is set to Delete was answered, until the twin has policy Retain and the PV
// controller is at rest. A twin with policy Delete that is deleted by hand leaves its volume behind, and so does a
// PV that nothing holds because of a user. What the PV controller deletes by way of a PV itself is its own doing.
//
// worlds.go lists the bounds; world.go is what exists in one; cluster.go, users.go and guard.go are the moves;
// machine.go, replica.go and codec.go make a replica of the engine and bytes of a replica; invariants.go holds the
// promises, apart from how the code keeps them; trace.go has the sentences of moves.
package intree
