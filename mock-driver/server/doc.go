// Package server is the gRPC edge of the mock driver: the Identity, Controller and Node services of the CSI
// specification, v1.13. It checks requests, turns the backend's sentinel errors into the codes that the
// specification names, keeps the ledger, and lets the fault plan have its way with each call. What volumes and
// snapshots are is left to package backend.
//
// A call passes, in this order: ledger (received), concurrency limit, pending-operation check, faults, capability
// check, readiness, secrets, handler, ledger (answered).
package server
