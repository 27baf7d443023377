// Package claims explains the claims of StatefulSets: the effect of a set's change on claims and volumes ([Preview]),
// the set and the policy of one claim ([Explain]), and the claims that are retained because their set is gone or their
// replica was scaled away ([RetainedOf]).
//
// [ReadClaim], [ReadPreview] and [ReadRetained] read; all other functions are pure functions of the facts that they
// return. The memory of a running volume-guard, such as the time since which a claim is condemned, cannot be read from
// outside.
package claims
