// Package leaks finds volumes that a storage system has and nothing in the cluster accounts for: leaks. It
// compares what a CSI driver lists with the PersistentVolumes, the claims whose volumes are being made, and
// the snapshots of the API server.
//
// It only ever suspects, and says why: it deletes nothing and writes nothing but Events. What a person does
// about a suspect is made by hand, by the PVs of [AdoptPV] and [ReclaimPV] and the steps of [Remediator], and the
// deletion itself is left to package reclaim, by its own rules.
//
// # How it is used
//
// [New] makes an [Controller] and starts nothing; [Controller.Run] makes a leak check every Config.Interval until its
// context ends. [Controller.Report] is what the last ones found, and a [ReportHandler] serves that by HTTP.
//
// # How it works
//
// list.go pages through the driver's volumes; cluster.go reads what accounts for volumes; survey.go puts
// both together into one [Facts] for each volume; tracker.go keeps how often, and since when, a volume was
// seen with nothing that accounts for it; [Decide] is a pure function from Facts to [Verdict].
// DESIGN.md says why the order of the reads is what it is.
package leaks
