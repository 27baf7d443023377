// Package pods explains what becomes of pods: which are held, and on what evidence they are released; what a force
// deletion of one would risk; and which pods stand on a node that is down.
//
// A [Reader] reads; [Explain], [ListOf] and [ExplainNamespace] are pure functions of what it found. As the parent
// package, it has no rules of its own: it calls the engine of volume-guard with the facts of live reads. What a
// running volume-guard remembers, such as since when it has seen a Lease unchanged, cannot be read from outside: a
// decision here is the one of a volume-guard that has just started. Nothing here writes.
package pods
