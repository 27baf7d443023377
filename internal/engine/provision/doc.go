// Package provision decides the steps that provision one volume, such that no volume is left without a
// PersistentVolume. It is pure: it imports no client, context, logger or clock, and makes no calls.
//
// A [Facts] holds the knowledge about one volume name, [Decide] returns the next step, and a [Record] keeps the
// knowledge of a process about an open entry of the in-flight log. pkg/provision carries out the steps, and the model
// checker drives the same functions.
//
// One rule precedes all others: a call that was begun is finished, never undone. Once CreateVolume may have been
// called, the same request is repeated until the driver names the volume, and the volume gets its PersistentVolume
// even if the claim is gone. The reclaim policy then decides about the volume.
package provision
