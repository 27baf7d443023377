// Package csidriver is all that csi-reclaimer says to a CSI driver: it connects to the
// driver's socket, waits until the driver is ready, asks for its name and capabilities,
// and calls it. gRPC codes end here: callers see errors marked with an errclass.Class.
//
// What to delete, and whether, is decided elsewhere (package reclaim).
package csidriver
