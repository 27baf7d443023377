// Package statefulset decides about the claims from the volumeClaimTemplates of a StatefulSet. Its retention policy
// says whether they are kept or deleted when the set is scaled down or deleted (KEP-1847). The package is pure: it
// imports no client, context, logger or clock, and makes no calls.
//
// [Facts] describe one claim with its set and its pod, and [Decide] returns the next step. Unknown never counts as
// absent: every precondition of a deletion was read live. A [Session] is the work on one claim: it issues one [Ask] at
// a time and takes the replies until it has to wait. [DecideSet] decides whether a set that lacks a pod is woken, and
// returns the reason to report about the set. [Foresee] predicts the effect of a change of the set on a claim, and
// [Explain] serves the kubectl plugin.
//
// If Kubernetes has the policy (spec.persistentVolumeClaimRetentionPolicy), the StatefulSet controller of
// kube-controller-manager carries it out with owner references, and only condemned claims without a pod are left to
// this package. If the API server drops the field, an annotation holds the same policy, and this package decides on the
// owner references, too.
//
// All state is plain and exported, so that it can be copied, encoded and compared. It contains no lock: a caller that
// shares a Tracker between goroutines has to hold one. The model checker drives the same functions
// (test/model/statefulset).
package statefulset
