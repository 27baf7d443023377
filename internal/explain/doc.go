// Package explain has the common parts of explanations, which tell people the next step for an object, the reason, and
// the actions open to them: the [Cluster] that is read, the records of its objects, and the [Explanation].
//
// Its subpackages explain: volumes the PVs and claims, claims those of StatefulSets, pods, nodes, and locks of claims.
// None has rules of its own. The engines' decision functions also decide here, on facts that are read live, or from the
// caches of a page. An object that could not be read is reported, and counts neither as existing nor as gone.
//
// The packages write nothing to the cluster.
package explain
