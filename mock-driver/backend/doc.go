// Package backend is the storage system behind the mock driver: volumes, snapshots, attachments and capacity, with
// the idempotency that the CSI specification (v1.13) demands of a plugin. It knows nothing of gRPC: it answers with
// sentinel errors, and the server turns them into codes. Where records are kept is left to a [Store]: package
// memory forgets them, package disk survives kill -9.
//
// Records are values. A method returns a copy, maps included, so that no caller can change what the backend holds.
package backend
