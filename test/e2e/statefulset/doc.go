// Package statefulset tests what becomes of the claims of StatefulSets, with data in their volumes: every line of the
// test plan of KEP-1847, and what volume-guard adds to it. On Kubernetes 1.32 and newer the policy is
// the field spec.persistentVolumeClaimRetentionPolicy; on older ones the feature gate StatefulSetAutoDeletePVC is off,
// and the policy is an annotation.
package statefulset
