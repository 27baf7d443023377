// Package capacity publishes how much a driver has left: one CSIStorageCapacity for each StorageClass
// of the driver and each topology segment where it has nodes. The scheduler keeps pods from nodes where
// their volumes have no room (KEP-1472).
//
// Names, labels and meaning of the objects are those of external-provisioner with --enable-capacity:
// either takes over what the other left. The driver's nodes are left to package nodes, creating volumes
// to package provision.
//
// # How it is used
//
// [New] makes a [Controller] and starts nothing; [Controller.Run] works until its context ends.
// [Controller.Changed] is called when volumes are created and deleted, so that the driver is asked at
// once, and not only with the next poll.
//
// # How it works
//
// The unit of work is a [WorkItem], a class and a segment. observe.go gathers what is known of one into
// [Facts]; decide.go is a pure function from Facts to [Decision], one step at a time; execute.go carries
// the step out, and decides again. A second queue (survey.go) finds the items that there should be, and
// those that there should not.
package capacity
