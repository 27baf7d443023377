// Package agents runs the agents that fence nodes: Jobs, custom resources of remediation templates, and NetworkFences
// of csi-addons. What an agent does is an object in the cluster. Its name follows from the fence and the attempt, or
// from the node, so that an agent is started once, by however many processes and however often.
//
// It decides nothing: internal/engine/fencing does.
package agents
