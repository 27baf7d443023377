// Package fencing is the controller node-fencing of volume-guard. It executes NodeFences, and creates them for
// unreachable nodes if a FencePolicy asks for it (pkg/apis/fencing/v1alpha1).
//
// All decisions are made in internal/engine/fencing. DESIGN.md lists the objects that this package reads, writes and
// remembers, with the reasons.
//
// Stability: for the programs of this repository. It may change with each release.
package fencing
