// Package claims explains what becomes of the claims of StatefulSets: which a change of a set deletes, and what becomes
// of their volumes ([Preview]); the set and the policy of one claim ([Explain]); and which claims are retained, because
// their set is gone or their replica was scaled away ([RetainedOf]).
//
// A [Reader] reads; the rest are pure functions of what it found. As the parent package, it has no rules of its own: it
// calls the engine of volume-guard about the claims, and the parent package about their volumes. What a running
// volume-guard remembers, such as since when a claim is condemned, cannot be read from outside. Nothing here writes.
package claims
