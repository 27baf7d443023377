// Package explain tells people what happens to a PV or a claim, why, and what they can do about it: as
// one story, and for a whole cluster in a few lines for each driver.
//
// It owns no rules. What is decided comes from the functions that decide in the programs themselves
// ([reclaim.Decide], intree.Decide, provision.Decide, pvc.Decide), which are given what live reads of the
// API server show. A [Reader] makes the reads; [PVStory], [ClaimStory] and [StatusOf] are pure functions
// from what was read. What could not be read is said, and taken for nothing: neither for there nor for gone.
//
// Nothing is ever written.
package explain
