// Package capacity keeps the cluster's view of how much a driver has left: one CSIStorageCapacity
// for each StorageClass of the driver and each place where it has nodes, by which the scheduler
// keeps pods from nodes where their volumes have no room (KEP-1472).
//
// Names, labels and meaning of the objects are those of external-provisioner with --enable-capacity:
// either takes over what the other left. Where the driver's nodes are is left to package places,
// making volumes to package provision.
//
// # How it is used
//
// [New] makes a [Controller] and starts nothing; [Controller.Run] works until its context ends.
// [Controller.Changed] is told of volumes that were made and deleted, so that what is left is asked
// for at once, and not only with the next poll.
//
// # How it works
//
// The unit of work is a [Spot], a class and a place. observe.go gathers what is known of one into a
// [Snapshot]; decide.go is a pure function from Snapshot to [Decision], one step at a time;
// execute.go has the step carried out, and decides again. A second loop (survey.go) finds the spots
// that there should be, and those that there should not.
package capacity
