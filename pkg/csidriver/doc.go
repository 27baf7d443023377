// Package csidriver is the client of a CSI driver: it connects to the driver's socket, waits until the driver is
// ready, asks for its name and capabilities, and calls it. gRPC codes end here, and callers see errors that carry an
// errclass.Class.
//
// Package reclaim decides about deletions; this package only makes the calls.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package csidriver
