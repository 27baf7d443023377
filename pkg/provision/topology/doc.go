// Package topology decides where a volume may and should be created (CSI spec,
// "TopologyRequirement"), and which nodes reach one that was created.
//
// Its functions are pure: the same nodes, class and claim give the same answer, in the same
// order, whichever process asks. A CreateVolume that is repeated after a lost answer is the
// same call.
package topology
