// Package pods explains pods: the evidence on which a held pod is released, the risks of a force deletion, and the
// pods on nodes that are down.
//
// [Read] reads; [Explain], [ListOf] and [ExplainNamespace] are pure functions of the facts that it returns. The memory
// of a running volume-guard, such as the time since which it has seen a Lease unchanged, cannot be read from outside,
// so each decision is the decision of a volume-guard that has just started.
package pods
