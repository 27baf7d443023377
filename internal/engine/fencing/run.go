package fencing

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Run identifies one run of one agent: its attempt to fence, or a try to undo that. The zero value is no run.
type Run struct {
	Attempt int32
	Agent   string
	// Undo reports that the agent undoes the fence, and Try is the number of this try.
	Undo bool
	Try  int32
}

// RunState is the state of an agent's run, RunUnknown by default.
type RunState uint8

const (
	// RunUnknown means that the run was not read, or that the read failed.
	RunUnknown RunState = iota
	// RunAbsent means that the run was not started, or that its object was deleted or still belongs to another run.
	RunAbsent
	// Running means that the agent has no result yet.
	Running
	// RunStopping means that the agent was stopped and has not ended.
	RunStopping
	// RunSucceeded means that the agent reports success.
	RunSucceeded
	// RunFailed means that the agent reports failure.
	RunFailed
)

// RunFacts is the result of a live read of an agent's object.
type RunFacts struct {
	Read session.Read
	// Of is the run that the object was created for.
	Of    Run
	State RunState
	// Message is the agent's own message, or the error of the read.
	Message string
	// EndedAt is the time of the failure, zero if unknown.
	EndedAt time.Time
	// Removal describes how a remediator removes the pods from the node.
	Removal Removal
	// Attributes are the volume attributes, as found by the agent, that identify the PVs that the node was cut off from,
	// unless the agent's spec names any.
	Attributes map[string]v1alpha1.AttributeValue
}

// exists reports whether the read has found the object of the run.
func (r RunFacts) exists() bool { return r.State > RunAbsent }

// Removal describes how a remediator removes the pods from a node, if that is known.
type Removal uint8

const (
	RemovalUnknown Removal = iota
	// RemovalTaints means that the remediator adds the taint node.kubernetes.io/out-of-service, and then reports success.
	RemovalTaints
	// RemovalDeletes means that the remediator force-deletes all pods of the node, and reports success if each deletion
	// succeeds. A refusal by pod safety in one namespace stops it before the pods that it lists later, and before its
	// success.
	RemovalDeletes
)

// RemovalOf returns how a remediator removes the pods from its node, and RemovalUnknown for unknown remediators. group
// and kind identify the custom resource, and strategy is its spec.remediationStrategy with the default of the kind.
func RemovalOf(group, kind, strategy string) Removal {
	switch kind + "." + group {
	case "FenceAgentsRemediation.fence-agents-remediation.medik8s.io":
		if strategy == "" { // an object older than the field
			strategy = "ResourceDeletion"
		}
	case "SelfNodeRemediation.self-node-remediation.medik8s.io":
		if strategy == "Automatic" { // Automatic means the taint from Kubernetes 1.28 on, and NodeFences need 1.30
			strategy = "OutOfServiceTaint"
		}
	default:
		return RemovalUnknown
	}
	switch strategy {
	case "OutOfServiceTaint":
		return RemovalTaints
	case "ResourceDeletion":
		return RemovalDeletes
	}
	return RemovalUnknown
}
