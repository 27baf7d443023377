// Package server is the gRPC edge of the mock driver: the Identity, Controller and Node services of the CSI
// specification, v1.13. It validates requests, translates the backend's sentinel errors into the specification's
// codes, keeps the ledger, and applies the fault plan to each call. Package backend holds the volumes and snapshots.
//
// A call passes, in this order: ledger (received), concurrency limit, pending-operation check, faults, capability
// check, readiness, secrets, volume_id, handler, ledger (answered).
package server
