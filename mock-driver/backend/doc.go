// Package backend is the storage system behind the mock driver: volumes, snapshots, attachments and capacity, with
// the idempotency that the CSI specification (v1.13) requires of a plugin. It is independent of gRPC and returns
// sentinel errors, which the server translates into codes. A [Store] keeps the records: the one of package memory
// forgets them, and the one of package disk survives kill -9.
//
// Records are values: a method returns a copy, including its maps, so that no caller can change the backend's
// records.
package backend
