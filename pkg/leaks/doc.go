// Package leaks finds leaks: volumes of a storage system that no object of the cluster accounts for. It compares the
// volumes that a CSI driver lists with the API server's PersistentVolumes, snapshots, and claims whose volumes are
// still being created.
//
// The package only suspects and explains; it deletes nothing, and a Controller writes nothing but Events. A person
// remedies a suspect explicitly with the PVs of [AdoptPV] and [ReclaimPV] and the steps of [Remediator], and package
// reclaim deletes the volume by its own rules.
//
// # How it is used
//
// [New] creates a [Controller] without starting it. [Controller.Run] makes a leak check every Config.Interval until
// its context ends. [Controller.Report] returns the latest findings, and a [ReportHandler] serves them over HTTP.
//
// # How it works
//
// list.go pages through the driver's volumes, and cluster.go reads the objects that account for volumes. survey.go
// combines both into the [facts] of each volume, and tracker.go counts its sightings. [decide] is a pure function
// from facts to [verdict]. DESIGN.md explains the order of the reads.
//
// Stability: for the programs of this repository. It may change with each release.
package leaks
