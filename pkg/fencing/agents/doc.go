// Package agents runs the agents that fence nodes: Jobs, custom resources of remediation templates, and NetworkFences
// of csi-addons. The work of an agent is an object in the cluster, whose name is derived from the fence and the
// attempt, or from the node. An agent is therefore started only once, by however many processes and however often.
//
// All decisions are made in internal/engine/fencing.
//
// Stability: for the programs of this repository. It may change with each release.
package agents
