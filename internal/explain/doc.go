// Package explain explains to people what happens to a PV or a claim, why, and what they can do about it:
// in full for one object, and in a few lines a driver for a whole cluster.
//
// The package has no rules of its own. The functions that decide in the programs decide here too
// ([reclaim.Decide], intree.Decide, provision.Decide, pvc.Decide), on what live reads of the API server
// show. A [Reader] makes the reads; [ExplainPV], [ExplainClaim] and [StatusOf] are pure functions of what was
// read. What could not be read is reported, and counts neither as there nor as gone.
//
// The package writes nothing to the cluster.
package explain
