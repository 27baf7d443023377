// Package statefulset tests the fate of StatefulSets' claims, with data in their volumes: every line of the test plan
// of KEP-1847, and volume-guard's additions. On Kubernetes 1.32 and newer the policy is the field
// spec.persistentVolumeClaimRetentionPolicy; on older ones the feature gate StatefulSetAutoDeletePVC is off, and the
// policy is an annotation.
package statefulset
