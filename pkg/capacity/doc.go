// Package capacity publishes the free capacity of a CSI driver as CSIStorageCapacity objects, one for each of the
// driver's StorageClasses and each topology segment where it has nodes. The scheduler then avoids nodes without room
// for a pod's volumes (KEP-1472).
//
// The objects have the names, labels and meaning that external-provisioner gives them with --enable-capacity, so that
// either program takes over the other's objects. Package nodes finds the driver's nodes, and package provision
// creates the volumes.
//
// # How it is used
//
// [New] creates a [Controller] without starting it, and [Controller.Run] works until its context ends.
// [Controller.Changed] is called when a volume is created or deleted, so that the driver is asked at once and not
// only at the next poll.
//
// # How it works
//
// The unit of work is a [WorkItem]: a StorageClass and a topology segment. observe.go gathers its [Facts], and the
// pure function [Decide] turns them into a [Decision], one step at a time. execute.go carries the step out and
// decides again. A second queue (survey.go) finds missing and obsolete items.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package capacity
