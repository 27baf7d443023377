package fencing

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Finalizer is the finalizer on NodeFences whose fence has begun and not ended.
const Finalizer = "csi-reclaimer.io/fence"

// Facts is all that is known of one NodeFence at one moment. The zero value of every field means that the fact is not
// known, or speaks for releasing nothing.
type Facts struct {
	Rules Rules

	// Fence is the NodeFence, from the watch cache or, when FenceRead is set, from a live read.
	Fence     Fence
	FenceRead session.Read

	// TaintSeen: the watch shows the taint of this project on the Node. Where there is no NodeFence of its name, the taint
	// is what remains of one, and Fence has nothing but the name.
	TaintSeen bool

	// Node, Lease, Run and Remaining are what live reads found.
	Node      NodeFacts
	Lease     LeaseFacts
	Run       RunFacts
	Remaining RemainingFacts

	// Sight is since when this process has seen what.
	Sight Sight
}

// Rules are the settings of the controller.
type Rules struct {
	// KeepReturned is how long a NodeFence is kept after its node has returned. Default 1 hour.
	KeepReturned time.Duration
	// SilentAfter is how long a node that runs takes at most to renew its Lease. Default SilentAfter.
	SilentAfter time.Duration
	// DryRun ends a session before its first write.
	DryRun bool
}

const (
	// DefaultKeepReturned is the default of Rules.KeepReturned.
	DefaultKeepReturned = time.Hour
	// SilentAfter is the default of Rules.SilentAfter: nodeLeaseDurationSeconds of the kubelet,
	// and node-monitor-grace-period of kube-controller-manager before Kubernetes 1.32. A renewal that comes later than
	// this after a proof is of a node that runs, and not of a request that was under way.
	SilentAfter = 40 * time.Second
	// stopGrace is how long an agent that was stopped has to end before the next one is tried beside it.
	stopGrace = time.Minute
	// retryUndo is the pause before an agent that could not undo the fence is asked again.
	retryUndo = time.Minute
	// retryChainFirst and retryChainMax bound the pause before the agents are tried again after all have failed.
	retryChainFirst, retryChainMax = time.Minute, 10 * time.Minute
	// returnPatience is how long a node that was rebooted has to return before the next agent is tried.
	returnPatience = 10 * time.Minute
	// agentPoll is how often an agent is asked for its result: its object is not watched.
	agentPoll = 5 * time.Second
	// nodePoll is how often a node that is fenced is read: Leases are not watched, each is renewed every 10 s.
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

// Fence is a NodeFence as decisions need it.
type Fence struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	// Generation is metadata.generation.
	Generation int64
	// Terminating: it has a deletionTimestamp. Finalized: it has Finalizer. GivenUp: it has v1alpha1.AnnotationTimedOut.
	Terminating, Finalized, GivenUp bool
	Spec                            v1alpha1.NodeFenceSpec
	Status                          v1alpha1.NodeFenceStatus
}

// FenceOf returns what decisions need of a NodeFence. It shares memory with it.
func FenceOf(o *v1alpha1.NodeFence) Fence {
	_, givenUp := o.Annotations[v1alpha1.AnnotationTimedOut]
	return Fence{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation,
		Terminating: o.DeletionTimestamp != nil, Finalized: slices.Contains(o.Finalizers, Finalizer), GivenUp: givenUp,
		Spec: o.Spec, Status: o.Status}
}

// NodeFacts is what a live read of the Node found.
type NodeFacts struct {
	Read            session.Read
	Found           bool
	ResourceVersion string
	// Ready and NotReady: the condition Ready is True, or it is False or Unknown. A Node without it is neither.
	Ready, NotReady bool
	BootID          string
	Machine         Machine
	// Tainted: it has the taint of this project.
	Tainted bool
	// ControlPlane: it has the label node-role.kubernetes.io/control-plane.
	ControlPlane bool
}

// Machine tells machines apart that have the name of one node, as far as status.nodeInfo of the Node does. The zero
// value: not known.
type Machine struct{ MachineID, SystemUUID string }

// isOther reports whether the machine of a Node is not known to be this one, of which something is known.
func (m Machine) isOther(now Machine) bool { return m != Machine{} && m != now }

// LeaseFacts is what a live read of the node's Lease found. Version is its resourceVersion, which changes with each
// renewal, and is empty where there is none.
type LeaseFacts struct {
	Read    session.Read
	Version string
}

// RunState is how far an agent is. The zero value is not known.
type RunState uint8

const (
	// RunUnknown: it was not read, or could not be.
	RunUnknown RunState = iota
	// RunAbsent: there is no object; the agent was not started, or somebody has deleted it.
	RunAbsent
	// Running: the agent has no result yet.
	Running
	// RunStopping: the agent was stopped, and has not ended.
	RunStopping
	// RunSucceeded: the agent says that it has done what it was asked for.
	RunSucceeded
	// RunFailed: the agent says that it could not.
	RunFailed
)

// RunFacts is what a live read of an agent's object found.
type RunFacts struct {
	Read session.Read
	// Of is the run that the object is for.
	Of    Run
	State RunState
	// Message is what the agent says, or why it could not be read.
	Message string
	// EndedAt is when it failed, zero if that is not known.
	EndedAt time.Time
	// Removal is how a remediator takes the pods from the node.
	Removal Removal
	// Attributes are what the PVs of the volumes have that the node was cut off from, as its agent has found them. They
	// count where the agent's spec names none.
	Attributes map[string]v1alpha1.AttributeValue
}

// RemainingFacts is what live lists found on the node. Of what is waited for, they may be some seconds old, and show a
// part.
type RemainingFacts struct {
	Read session.Read
	// PodsOnly: VolumeAttachments were not listed.
	PodsOnly bool
	// Terminating are the UIDs of pods on the node that are terminating.
	Terminating []types.UID
	// Held are the terminating pods with the hold (internal/engine/podsafety).
	Held []types.UID
	// Leaving are the pods that are held (internal/engine/podsafety) and terminating, and the VolumeAttachments that
	// are terminating.
	Leaving Remains
	// All are the pods that use a claim or are held, and have not ended, whether they are terminating or not, and all
	// VolumeAttachments.
	All Remains
}

// Remains counts what is on a node.
type Remains struct{ Pods, VolumeAttachments int }

// none reports whether nothing remains.
func (r Remains) none() bool { return r == Remains{} }

// Sight is since when one process has seen what of a fence, by its own clock. The zero value: nothing.
type Sight struct {
	// LeaseVersion is the Lease that was read last, and LeaseSince when it was first read.
	LeaseVersion string
	LeaseSince   time.Time
	// RunsSince is since when the node shows that it runs as before its proof.
	RunsSince time.Time
	// Refused is the run that could not be started or stopped when that was last tried, and RefusedBy the error.
	Refused   Run
	RefusedBy string
}

// ended reports whether the fence is to end at once. The deletion of its object asks for that, too, but not where
// volumes are fenced: programs delete it once the node is healthy, and what its processes have not written yet would
// reach the volumes. There it asks for the end once the node is back, which is how the fence ends anyway.
func (f Fence) ended() bool {
	return f.Terminating && !f.ofVolumes() || f.Spec.Unfence == v1alpha1.UnfenceNow || f.abandoned()
}

// ofVolumes reports whether it is proven that the node does not reach volumes, and that its processes may run.
func (f Fence) ofVolumes() bool {
	return f.Status.Proof != nil && f.Status.Proof.Covers == v1alpha1.CoversVolumes
}

// abandoned reports whether the agents are to undo nothing.
func (f Fence) abandoned() bool { return f.Spec.Unfence == v1alpha1.UnfenceAbandon }

// returned reports whether the fence has come to its end.
func (f Fence) returned() bool { return f.is(v1alpha1.ConditionReturned) }

// confirmation is the name of the agent that is a person's word.
const confirmation = "confirmation"

// agent returns the agent of a name, nil for none.
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

// OwnWord reports whether the fence has a person's word about itself, and not a copy of one about another fence.
func (f Fence) OwnWord() bool {
	return f.Spec.Confirmation != "" && f.Spec.ConfirmationUID != "" && f.Spec.ConfirmationUID == f.UID
}

// confirmed reports whether a person's word is a proof that the node has not contradicted.
func (f Fence) confirmed() bool {
	return f.OwnWord() && !slices.ContainsFunc(f.Status.Attempts, func(a v1alpha1.Attempt) bool {
		return f.manual(a) && a.Result == v1alpha1.ResultContradicted && a.Message == f.Spec.Confirmation
	})
}

// manual reports whether an attempt waits for a person's word, or is one.
func (f Fence) manual(a v1alpha1.Attempt) bool {
	agent := f.agent(a.Agent)
	return agent != nil && agent.Manual != nil
}

// attempt returns the attempt that has no result, nil for none.
func (f Fence) attempt() *v1alpha1.Attempt {
	if n := len(f.Status.Attempts); n > 0 && f.Status.Attempts[n-1].EndedAt == nil {
		return &f.Status.Attempts[n-1]
	}
	return nil
}

// next returns the name of the agent that is tried next, empty for none, and how long to wait before: the first one
// follows the last.
func (f Fence) next(now time.Time) (agent string, pause time.Duration) {
	if f.confirmed() {
		return confirmation, 0
	}
	chain, tried := f.Spec.Agents, f.tried()
	switch {
	case len(chain) == 0, f.GivenUp: // the API refuses the first, and with the second another remediator is at work
		return "", 0
	case tried <= 0:
		return chain[0].Name, 0
	}
	if f.exhausted() {
		pause = f.pause(now)
	}
	return chain[tried%len(chain)].Name, pause
}

// pause returns how long to wait before agents are tried again that were tried before.
func (f Fence) pause(now time.Time) time.Duration {
	pause := retryChainFirst
	for range min(f.tried()/len(f.Spec.Agents)-1, 10) {
		pause = min(2*pause, retryChainMax)
	}
	last := f.Status.Attempts[len(f.Status.Attempts)-1]
	return max(pause-now.Sub(last.EndedAt.Time), 0)
}

// nextOfVolumes returns the name of the next agent of volumes without a part in the proof, empty for none, and how long
// to wait before. Another remediator is at work on a fence that was given up.
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

// exhausted reports whether all agents were tried in this round.
func (f Fence) exhausted() bool {
	agents, tried := len(f.Spec.Agents), f.tried()
	return agents > 0 && tried > 0 && tried%agents == 0
}

// tried returns how many attempts of the chain there were. Those of a person's word do not count; they are kept.
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

// toUndo returns the last attempt whose agent has to undo what it did, nil for none. What an agent did in several
// attempts it undoes at once.
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

// proved reports whether an agent has said once that the node is fenced.
func (f Fence) proved(agent string) bool {
	return slices.ContainsFunc(f.Status.Attempts, func(a v1alpha1.Attempt) bool {
		return a.Agent == agent && (a.Result == v1alpha1.ResultProven || a.Result == v1alpha1.ResultContradicted)
	})
}

// undoes reports whether an agent has something to undo.
func undoes(agent *v1alpha1.Agent) bool {
	return agent.Job != nil && agent.Job.Undo || agent.Remediation != nil || agent.NetworkFence != nil
}

// renewed reports whether the Lease of the node was renewed after the proof.
func (f Facts) renewed() bool {
	return f.Lease.Version != "" && f.Lease.Version != f.Fence.Status.Proof.LeaseVersion
}

// silent reports whether the node has not renewed its Lease for so long that it does not run.
func (f Facts) silent(now time.Time) bool {
	return f.Sight.LeaseVersion == f.Lease.Version && now.Sub(f.Sight.LeaseSince) >= f.Rules.silentAfter()
}

// runsOn reports whether the node shows that it runs as before the proof: it has renewed its Lease, and has the boot ID
// of before. A renewal that was under way when the node was fenced counts until the Lease has been silent.
func (f Facts) runsOn(now time.Time) bool {
	p := f.Fence.Status.Proof
	return p != nil && !f.Fence.ofVolumes() && f.Node.Found && f.Node.BootID == p.BootID && f.renewed() && !f.silent(now)
}

// booted reports whether the Node has another boot ID than the one that the fence has ended.
func (f Facts) booted() bool {
	p := f.Fence.Status.Proof
	return p != nil && f.Node.Found && f.Node.BootID != "" && f.Node.BootID != p.BootID
}

// rebooted reports whether the node was rebooted after the proof.
func (f Facts) rebooted() bool { return f.booted() && !f.replaced() }

// replaced reports whether the boot ID may be of another machine, which has the name of the node now: that is no reboot
// of the one that was fenced, which may run on.
func (f Facts) replaced() bool {
	p := f.Fence.Status.Proof
	return f.booted() && Machine{p.MachineID, p.SystemUUID}.isOther(f.Node.Machine)
}

// listed reports whether all that may remain on the node was listed, after what shows how the node is.
func (f Facts) listed(now time.Time) bool {
	return f.Remaining.Read.FreshAfter(f.Lease.Read, now) && !f.Remaining.PodsOnly
}

// back reports whether the node has come back: it was rebooted, and has renewed its Lease after the proof. That it is
// Ready is not enough where volumes are fenced: what its processes have not written yet would reach the volumes.
func (f Facts) back() bool { return f.rebooted() && f.renewed() }

// words returns what is known of a run that has no result: what its agent says, or why it could not be started, and
// what was written down while it was at work.
func (f Facts) words(attempt *v1alpha1.Attempt) string {
	words := f.Run.Message
	if words == "" && f.Sight.Refused == f.Run.Of {
		words = f.Sight.RefusedBy
	}
	return strings.TrimSpace(words + " " + attempt.Message)
}
