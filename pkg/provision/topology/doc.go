// Package topology tells where a volume may and should be made (CSI spec,
// "TopologyRequirement"), and which nodes reach one that was made.
//
// Its functions are pure: the same nodes, class and claim give the same answer, in the same
// order, whichever process asks. A CreateVolume that is repeated after a lost answer is the
// same call.
package topology
