// Package provision decides how one volume is provisioned such that none is left without a
// PersistentVolume. It is pure: it imports no client, context, logger or clock, and makes no calls.
//
// A [Facts] holds what is known about one volume name, [Decide] names the next step, and a [Record]
// keeps what a process has learned about an open entry of the in-flight log. Package provision carries
// out the steps. The model checker drives the same functions.
//
// The rule behind all others: what was begun is finished, never undone. Once CreateVolume may have been
// called, the same request is repeated until the driver names the volume, and the volume gets its
// PersistentVolume, even if the claim is gone. The reclaim policy then decides about the volume.
package provision
