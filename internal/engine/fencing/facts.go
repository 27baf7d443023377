package fencing

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Finalizer is the finalizer of every NodeFence whose fence has begun and not ended.
const Finalizer = "csi-reclaimer.io/fence"

// Facts holds all knowledge of one NodeFence at one moment. The zero value of every field means that the fact is
// unknown or argues against a release.
type Facts struct {
	Rules Rules

	// Fence is the NodeFence, from the watch cache or, when FenceRead is set, from a live read.
	Fence     Fence
	FenceRead session.Read

	// TaintSeen reports that the watch shows a taint of this project on the Node. If no NodeFence has the name of the
	// node, the taint is left over from an earlier fence, and only the name of Fence is set.
	TaintSeen bool

	// Node, Lease, Run and Remaining are the results of live reads.
	Node      objects.Node
	NodeRead  session.Read
	Lease     objects.Lease
	LeaseRead session.Read
	Run       RunFacts
	Remaining RemainingFacts

	// Sight holds this process's earlier observations of the Lease, of a contradiction and of refused runs.
	Sight Sight
}

// Rules are the settings of the controller that decisions depend on.
type Rules struct {
	// KeepReturned is the delay from the return of a node to the deletion of its NodeFence. Default 1 hour.
	KeepReturned time.Duration
	// SilentAfter is the longest time that a running node takes to renew its Lease. Default SilentAfter.
	SilentAfter time.Duration
	// DryRun ends a session before its first write.
	DryRun bool
}

const (
	// DefaultKeepReturned applies if Rules.KeepReturned is zero.
	DefaultKeepReturned = time.Hour
	// SilentAfter applies if Rules.SilentAfter is zero. It equals nodeLeaseDurationSeconds of the kubelet and
	// node-monitor-grace-period of kube-controller-manager before Kubernetes 1.32. A renewal that comes later than this
	// after a proof was sent by a running node, and not before the node was fenced.
	SilentAfter = 40 * time.Second
	// stopGrace is the longest wait for a stopped agent to end, before the next one is tried beside it.
	stopGrace = time.Minute
	// retryUndo is the pause before an agent that could not undo the fence is asked again.
	retryUndo = time.Minute
	// retryChainFirst and retryChainMax bound the pause before the agents are tried again after all have failed.
	retryChainFirst, retryChainMax = time.Minute, 10 * time.Minute
	// returnPatience is the time that a rebooted node has to return before the next agent is tried.
	returnPatience = 10 * time.Minute
	// agentPoll is the interval at which an agent is asked for its result, because its object is not watched.
	agentPoll = 5 * time.Second
	// nodePoll is the interval at which a fenced node is read. Node Leases are not watched: each is renewed every 10 s.
	nodePoll = 10 * time.Second
)

func (r Rules) keepReturned() time.Duration {
	if r.KeepReturned == 0 {
		return DefaultKeepReturned
	}
	return r.KeepReturned
}

func (r Rules) silentAfter() time.Duration {
	if r.SilentAfter == 0 {
		return SilentAfter
	}
	return r.SilentAfter
}

// Fence holds the fields of a NodeFence that decisions need.
type Fence struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Generation      int64
	// Terminating reports a deletionTimestamp, Finalized reports Finalizer, and GivenUp reports
	// v1alpha1.AnnotationTimedOut.
	Terminating, Finalized, GivenUp bool
	Spec                            v1alpha1.NodeFenceSpec
	Status                          v1alpha1.NodeFenceStatus
}

// FenceOf returns the fields of a NodeFence that decisions need, and shares memory with o.
func FenceOf(o *v1alpha1.NodeFence) Fence {
	_, givenUp := o.Annotations[v1alpha1.AnnotationTimedOut]
	return Fence{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation,
		Terminating: o.DeletionTimestamp != nil, Finalized: slices.Contains(o.Finalizers, Finalizer), GivenUp: givenUp,
		Spec: o.Spec, Status: o.Status}
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

// RemainingFacts is the result of live lists of the node's pods and VolumeAttachments. While a fence waits for objects
// to go, the lists may be some seconds old and incomplete.
type RemainingFacts struct {
	Read session.Read
	// PodsOnly reports that VolumeAttachments were not listed.
	PodsOnly bool
	// Terminating holds the UIDs of the terminating pods on the node.
	Terminating []types.UID
	// Held holds the UIDs of the terminating pods that are held (internal/engine/podsafety).
	Held []types.UID
	// Leaving counts the terminating pods that are held (internal/engine/podsafety), and the terminating
	// VolumeAttachments.
	Leaving Remains
	// All counts the pods that are held or that use a claim and have not ended, whether terminating or not, and all
	// VolumeAttachments.
	All Remains
}

// Remains counts the objects that are left on a node, as far as they matter for the end of a fence.
type Remains struct{ Pods, VolumeAttachments int }

func (r Remains) none() bool { return r == Remains{} }

// Sight holds one process's observation times of a fence, by its own clock. A zero time means that nothing was
// observed.
type Sight struct {
	// LeaseVersion is the Lease version of the last read, and LeaseSince is the time of the first read that returned it.
	LeaseVersion string
	LeaseSince   time.Time
	// RunsSince is the time of the first observation that the node runs on and so contradicts its proof.
	RunsSince time.Time
	// Refused is the run whose last start or stop failed, and RefusedBy is the error.
	Refused   Run
	RefusedBy string
}

// ended reports whether the fence has to end at once. A deletion of the NodeFence asks for that as well, except for a
// fence of volumes: health checks delete it once the node is healthy, and writes still buffered on the node would then
// reach the volumes. Such a fence ends only when the node is back, which would end it anyway.
func (f Fence) ended() bool {
	return f.Terminating && !f.OfVolumes() || f.Spec.Unfence == v1alpha1.UnfenceNow || f.abandoned()
}

// unowned reports whether no NodeFence remains, or only one that other programs still keep.
func (f Fence) unowned() bool { return f.UID == "" || f.Terminating && !f.Finalized }

// OfVolumes reports whether the proof covers only the access to volumes, so that the node's processes may run on.
func (f Fence) OfVolumes() bool {
	return f.Status.Proof != nil && f.Status.Proof.Covers == v1alpha1.CoversVolumes
}

// abandoned reports whether the fence ends without any undo by the agents.
func (f Fence) abandoned() bool { return f.Spec.Unfence == v1alpha1.UnfenceAbandon }

func (f Fence) returned() bool { return f.is(v1alpha1.ConditionReturned) }

// confirmation is the name of the agent that stands for a person's confirmation.
const confirmation = "confirmation"

// agent returns the agent with this name, which is that of the spec or the confirmation, or nil.
func (f Fence) agent(name string) *v1alpha1.Agent {
	if name == confirmation {
		return &v1alpha1.Agent{Name: confirmation, Covers: v1alpha1.CoversUntilUnfenced, Manual: &v1alpha1.ManualAgent{}}
	}
	for i := range f.Spec.Agents {
		if f.Spec.Agents[i].Name == name {
			return &f.Spec.Agents[i]
		}
	}
	return nil
}

// OwnWord reports whether the confirmation is about this very fence, and not copied from another one.
func (f Fence) OwnWord() bool {
	return f.Spec.Confirmation != "" && f.Spec.ConfirmationUID != "" && f.Spec.ConfirmationUID == f.UID
}

// confirmed reports whether the confirmation is a proof that the node has not contradicted.
func (f Fence) confirmed() bool {
	return f.OwnWord() && !slices.ContainsFunc(f.Status.Attempts, func(a v1alpha1.Attempt) bool {
		return f.manual(a) && a.Result == v1alpha1.ResultContradicted && a.Message == f.Spec.Confirmation
	})
}

// manual reports whether an attempt waits for a person's confirmation or records one.
func (f Fence) manual(a v1alpha1.Attempt) bool {
	agent := f.agent(a.Agent)
	return agent != nil && agent.Manual != nil
}

// attempt returns the attempt without a result, or nil if no agent is at work.
func (f Fence) attempt() *v1alpha1.Attempt {
	if n := len(f.Status.Attempts); n > 0 && f.Status.Attempts[n-1].EndedAt == nil {
		return &f.Status.Attempts[n-1]
	}
	return nil
}

// next returns the name of the agent to try next, or "", and the pause before it. The chain starts again after its last
// agent.
func (f Fence) next(now time.Time) (agent string, pause time.Duration) {
	if f.confirmed() {
		return confirmation, 0
	}
	chain, tried := f.Spec.Agents, f.tried()
	switch {
	case len(chain) == 0, f.GivenUp: // the API refuses an empty chain; after GivenUp another remediator works
		return "", 0
	case tried <= 0:
		return chain[0].Name, 0
	}
	if f.exhausted() {
		pause = f.pause(now)
	}
	return chain[tried%len(chain)].Name, pause
}

// pause returns the pause before a new round of the agents, which doubles with each round up to retryChainMax.
func (f Fence) pause(now time.Time) time.Duration {
	pause := retryChainFirst
	for range min(f.tried()/len(f.Spec.Agents)-1, 10) {
		pause = min(2*pause, retryChainMax)
	}
	last := f.Status.Attempts[len(f.Status.Attempts)-1]
	return max(pause-now.Sub(last.EndedAt.Time), 0)
}

// nextOfVolumes returns the name of the next agent of volumes that has no part in the proof, or "", and the pause
// before it. A fence that was given up starts no agent, because another remediator is at work.
func (f Fence) nextOfVolumes(now time.Time) (agent string, pause time.Duration) {
	if f.GivenUp {
		return "", 0
	}
	chain, last := f.Spec.Agents, -1
	if n := len(f.Status.Attempts); n > 0 {
		last = slices.IndexFunc(chain, func(a v1alpha1.Agent) bool { return a.Name == f.Status.Attempts[n-1].Agent })
	}
	for i := range chain {
		at := (last + 1 + i) % len(chain)
		a := chain[at]
		if a.Covers != v1alpha1.CoversVolumes || slices.ContainsFunc(f.Status.Proof.Volumes,
			func(v v1alpha1.CoveredVolumes) bool { return v.Agent == a.Name }) {
			continue
		}
		if at <= last {
			pause = f.pause(now)
		}
		return a.Name, pause
	}
	return "", 0
}

// exhausted reports whether every agent was tried in this round.
func (f Fence) exhausted() bool {
	agents, tried := len(f.Spec.Agents), f.tried()
	return agents > 0 && tried > 0 && tried%agents == 0
}

// tried returns the number of attempts of the chain, without confirmations, whose attempts are never dropped.
func (f Fence) tried() int {
	n := len(f.Status.Attempts)
	if n == 0 {
		return 0
	}
	count := int(f.Status.Attempts[n-1].Number)
	for _, a := range f.Status.Attempts {
		if a.Agent == confirmation {
			count--
		}
	}
	return count
}

// toUndo returns the last attempt whose agent has something to undo, or nil. The undo covers all attempts of that
// agent.
func (f Fence) toUndo() *v1alpha1.Attempt {
	if f.abandoned() {
		return nil
	}
	for i := len(f.Status.Attempts) - 1; i >= 0; i-- {
		attempt := &f.Status.Attempts[i]
		if agent := f.agent(attempt.Agent); attempt.UndoneAt == nil && agent != nil && undoes(agent) {
			return attempt
		}
	}
	return nil
}

// acted reports whether an agent may have fenced the node, or may do so later: its object was seen, or its success was
// accepted as a proof, even if contradicted later.
func (f Fence) acted(agent string) bool {
	return slices.ContainsFunc(f.Status.Attempts, func(a v1alpha1.Attempt) bool {
		return a.Agent == agent && (a.ObjectSeen || a.Result == v1alpha1.ResultProven ||
			a.Result == v1alpha1.ResultContradicted)
	})
}

// undoes reports whether an agent is able to undo its fence.
func undoes(agent *v1alpha1.Agent) bool {
	return agent.Job != nil && agent.Job.Undo || agent.Remediation != nil || agent.NetworkFence != nil
}

// renewed reports whether the node has renewed its Lease since the proof.
func (f Facts) renewed() bool {
	return f.Lease.ResourceVersion != "" && f.Lease.ResourceVersion != f.Fence.Status.Proof.LeaseVersion
}

// silent reports whether the Lease was not renewed for as long as a running node may take.
func (f Facts) silent(now time.Time) bool {
	return f.Sight.LeaseVersion == f.Lease.ResourceVersion && now.Sub(f.Sight.LeaseSince) >= f.Rules.silentAfter()
}

// runsOn reports whether the node contradicts the proof: it renewed its Lease with the boot ID of the proof. A renewal
// that was already in flight at the time of the fence counts too, until the Lease has been silent.
func (f Facts) runsOn(now time.Time) bool {
	p := f.Fence.Status.Proof
	return p != nil && !f.Fence.OfVolumes() && f.Node.Found && f.Node.BootID == p.BootID && f.renewed() && !f.silent(now)
}

// booted reports whether the Node's boot ID differs from the boot ID that the fence has ended.
func (f Facts) booted() bool {
	p := f.Fence.Status.Proof
	return p != nil && f.Node.Found && f.Node.BootID != "" && f.Node.BootID != p.BootID
}

// rebooted reports whether the node was rebooted after the proof.
func (f Facts) rebooted() bool { return f.booted() && !f.replaced() }

// replaced reports whether the boot ID may belong to another machine that has taken the node's name. That proves no
// reboot of the fenced machine, which may run on.
func (f Facts) replaced() bool {
	p := f.Fence.Status.Proof
	return f.booted() && machineOf(p).IsOther(f.Node.Machine)
}

// machineOf returns the machine that the Node showed at the proof.
func machineOf(p *v1alpha1.Proof) objects.Machine {
	return objects.Machine{MachineID: p.MachineID, SystemUUID: p.SystemUUID}
}

// list returns the step that lists the pods and VolumeAttachments of the node after the last read of the Lease, no step
// once they are known. VolumeAttachments are only listed once no pod keeps the fence, because no selector finds them by
// node.
func (f Facts) list(remains Remains, why Reason, now time.Time) Decision {
	switch {
	case !f.Remaining.Read.FreshAfter(f.LeaseRead, now):
		return listPods(why)
	case f.Remaining.PodsOnly && remains.Pods == 0:
		return step(ListRemaining, why)
	}
	return Decision{}
}

// back reports whether the node has come back: it was rebooted and has renewed its Lease after the proof. A Ready
// condition alone is not enough for a fence of volumes, because writes still buffered on the node would reach them.
func (f Facts) back() bool { return f.rebooted() && f.renewed() }

// words returns the message for an attempt without success: the agent's own, or the error of its start or stop, and
// then the message recorded while it worked.
func (f Facts) words(attempt *v1alpha1.Attempt) string {
	words := f.Run.Message
	if words == "" && f.Sight.Refused == f.Run.Of {
		words = f.Sight.RefusedBy
	}
	return strings.TrimSpace(words + " " + attempt.Message)
}
