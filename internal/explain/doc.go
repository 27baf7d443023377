// Package explain tells people the next step for a PV or a claim, the reason, and the actions open to them. It
// explains one object in full, or a whole cluster in a few lines per driver.
//
// The package has no rules of its own. The engines' decision functions ([reclaim.Decide], intree.Decide,
// provision.Decide, pvc.Decide) also decide here, on facts that are read from a [Cluster]: live, or from the caches of
// a page. [ExplainPV], [ExplainClaim] and [StatusOf] are pure functions of the facts. An object that could not be read
// is reported, and counts neither as existing nor as gone.
//
// The package writes nothing to the cluster.
package explain
