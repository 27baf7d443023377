// Package conformance has Kubernetes' own end-to-end suite judge the project: the same specs run with stock parts, and
// with ours in their place, in clusters of the testbed.
//
// A [Suite] is a set of specs. [Run] runs it with both [Parts], keeps each result, and skips results that it has. A
// spec counts by its own result, so that no failure hides behind another one. [Page] compares them spec by spec.
//
// The folders v1.NN are nested modules, each with the end-to-end suite of one Kubernetes. Its test binary is compiled
// unchanged.
package conformance
