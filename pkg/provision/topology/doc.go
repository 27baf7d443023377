// Package topology decides where a volume may and should be created (CSI spec, "TopologyRequirement"), and which nodes
// can access a created volume.
//
// Its functions are pure: the same nodes, class and claim give the same answer, in the same order, in every process. So
// a CreateVolume that is repeated after a lost answer is the same call.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package topology
