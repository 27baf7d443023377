//go:build unix

// Package faults plays scenarios (package scenario) with the real programs: csi-reclaimer as a process, the mock CSI
// driver as another, a real control plane, and between sidecar and API server a line that can be made bad (package
// proxy). When a scenario is over, everything must come to rest, and package oracle judges what happened from outside.
//
// Scenarios come from three places: testdata holds those that are kept, a line or two of story each; [Crashes] makes
// one for each moment at which a sidecar can be killed, and [Meanwhile] those in which something is deleted while it is
// down; [Random] makes any number from a seed.
package faults
