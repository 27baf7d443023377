// Package statefulset decides on the claims that a StatefulSet has made from its volumeClaimTemplates: they
// are kept, or deleted when the set is scaled down or deleted, as its retention policy says (KEP-1847). It is pure: it
// imports no client, context, logger or clock, and makes no calls.
//
// A [Facts] holds what is known of one claim, its set and its pod, and [Decide] names the next step. Unknown is never
// absent: what permits a deletion was read live. A [Session] is the work on one claim: it returns one [Ask] after the
// other and takes the replies, until there is nothing to do now. [DecideSet] decides whether a set that lacks a pod is
// woken, and what to report about the set. [Foresee] returns what a change of the set would do to a claim, and
// [Explain] what a person is shown.
//
// Where Kubernetes has the policy (spec.persistentVolumeClaimRetentionPolicy), the StatefulSet controller of
// kube-controller-manager carries it out, with owner references. What is left there are claims that are condemned and
// have no pod. Where the API server drops the field, the same policy comes from an annotation, and this package decides
// on the owner references, too.
//
// All state is plain and exported, so that it can be copied, encoded and compared. Nothing in it locks: a caller that
// shares a Tracker between goroutines holds a lock. The model checker drives the same functions
// (test/model/statefulset).
package statefulset
