//go:build unix

// Package faults plays scenarios (package scenario) with the real programs: csi-reclaimer and the mock CSI driver as
// processes, a real control plane, and between sidecar and API server a connection with faults (package proxy). At the
// end of a scenario everything must come to rest, and package oracle judges the history from outside.
//
// Scenarios come from three places. testdata holds the saved ones, each with a short description. [Crashes] makes one
// for each moment at which a sidecar can be killed, and [Meanwhile] adds deletions while it is down. [Random] makes any
// number from seeds.
package faults
