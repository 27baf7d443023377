// Package statefulset carries out the retention policy of StatefulSets for the claims from their volumeClaimTemplates
// (KEP-1847), where Kubernetes leaves a gap or lacks the policy.
//
// internal/engine/statefulset decides about each claim, and whether a set is woken. This package watches StatefulSets,
// pods and claims, makes the calls, and reports.
//
// Stability: for the programs of this repository. It may change with each release.
package statefulset
