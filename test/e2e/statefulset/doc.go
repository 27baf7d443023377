// Package statefulset tests what becomes of the claims of StatefulSets, with data in their volumes: every line of the
// test plan of KEP-1847, and what volume-guard adds to it. On the newest Kubernetes the policy is the field
// spec.persistentVolumeClaimRetentionPolicy; on the oldest the feature gate StatefulSetAutoDeletePVC is off, and the
// policy is an annotation.
package statefulset
