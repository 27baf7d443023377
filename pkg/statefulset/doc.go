// Package statefulset carries out the retention policy of StatefulSets for the claims that they have made from their
// volumeClaimTemplates (KEP-1847), where Kubernetes leaves a gap or does not have the policy.
//
// What becomes of a claim, and whether a set is woken, is decided by internal/engine/statefulset. This package
// watches StatefulSets, pods and claims, reads and writes for it, and reports.
package statefulset
