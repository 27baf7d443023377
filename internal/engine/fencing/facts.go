package fencing

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

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
	// clockSkew is the difference that the clocks of two leaders may have.
	clockSkew = time.Minute
	// agentPoll is the interval at which an agent is asked for its result, because its object is not watched.
	agentPoll = 5 * time.Second
	// nodePoll is the interval at which a fenced node is read. Node Leases are not watched: each is renewed every 10 s.
	nodePoll = 10 * time.Second
	// vacantPoll is the same for a fence whose Node is deleted and which a person has to end: the watches show the end.
	vacantPoll = 10 * time.Minute
)

func (r Rules) keepReturned() time.Duration { return cmp.Or(r.KeepReturned, DefaultKeepReturned) }
func (r Rules) silentAfter() time.Duration  { return cmp.Or(r.SilentAfter, SilentAfter) }

// RemainingFacts is the result of lists of the node's pods and VolumeAttachments.
type RemainingFacts struct {
	Read session.Read
	// Basis is the state of fence and node in the reads before the lists.
	Basis Basis
	// PodsOnly reports that VolumeAttachments were not requested, and AttachmentsListed that they are known. If some are
	// left, the list may be older than Ask.Since, and incomplete.
	PodsOnly, AttachmentsListed bool
	// Pods has every pod of the list, and whether All counts it.
	Pods map[types.UID]bool
	// Held holds the terminating pods that are held (internal/engine/podsafety). No pod becomes held later, because the
	// API server adds no finalizer to a terminating object.
	Held []HeldPod
	// Unheld counts the terminating pods that are not held, and that use a claim and have not ended.
	Unheld int
	// Leaving counts the terminating pods that are held (internal/engine/podsafety), and the terminating
	// VolumeAttachments. After Tracker.listed it counts only pods that were so before, and All only pods from before.
	Leaving Remains
	// All counts the pods that are held or that use a claim and have not ended, whether terminating or not, and all
	// VolumeAttachments.
	All Remains
}

// HeldPod identifies a held pod.
type HeldPod struct {
	Namespace string
	UID       types.UID
}

// Basis is the state of a fence and its node that lists of the remaining objects refer to. In a large cluster, such a
// list takes longer than a live read is valid. It therefore counts for as long as reads before and after it show the
// same Basis, since neither an attempt nor a boot ID comes again.
type Basis struct {
	// Attempt is the attempt with the proof, 0 for none.
	Attempt int32
	// Found, BootID and OwnTaint are those of the Node.
	Found    bool
	BootID   string
	OwnTaint bool
}

// Basis returns the Basis that the reads of the session show.
func (f Facts) Basis() Basis {
	b := Basis{Found: f.Node.Found, BootID: f.Node.BootID, OwnTaint: f.Node.OwnTaint}
	if p := f.Fence.Status.Proof; p != nil {
		b.Attempt = p.Attempt
	}
	return b
}

// listed reports whether the pods of the node were listed in this session, for the same state of fence and node as now.
func (f Facts) listed() bool { return f.Remaining.Read.Order > 0 && f.Remaining.Basis == f.Basis() }

// AddPod counts a pod of the node.
func (r *RemainingFacts) AddPod(pod objects.Pod) {
	uses := len(pod.Claims) > 0 && pod.UsesVolumes()
	switch {
	case pod.Terminating && pod.Held:
		r.Held = append(r.Held, HeldPod{pod.Namespace, pod.UID})
		r.Leaving.Pods++
	case pod.Terminating && uses:
		r.Unheld++
	}
	if r.Pods == nil {
		r.Pods = map[types.UID]bool{}
	}
	if r.Pods[pod.UID] = pod.Held || uses; r.Pods[pod.UID] {
		r.All.Pods++
	}
}

// AddAttachment counts a VolumeAttachment of the node.
func (r *RemainingFacts) AddAttachment(terminating bool) {
	r.All.VolumeAttachments++
	if terminating {
		r.Leaving.VolumeAttachments++
	}
}

// Remains counts the objects that are left on a node, as far as they matter for the end of a fence.
type Remains struct{ Pods, VolumeAttachments int }

// Sight holds one process's observation times of a fence, by its own clock. A zero time means that nothing was
// observed.
type Sight struct {
	// LeaseVersion is the Lease version of the last read, and LeaseSince is the time of the first read that returned it.
	LeaseVersion string
	LeaseSince   time.Time
	// RunsSince is the time of the first observation that the node runs on and so contradicts its proof.
	RunsSince time.Time
	// EmptySince is the time since which the node has no pods that keep the fence, with EmptyBasis unchanged.
	EmptySince time.Time
	EmptyBasis Basis
	// Before has every pod of the first list with BeforeBasis, and whether it was terminating and held. It is nil without
	// such a list, and is never changed.
	Before      map[types.UID]bool
	BeforeBasis Basis
	// Refused is the run whose last start or stop failed, and RefusedBy is the error.
	Refused   Run
	RefusedBy string
}

// away reports whether the condition Ready of the node calls for an agent. A policy fences silent nodes, and a kubelet
// that writes Ready=False is not silent.
func (f Facts) away() bool {
	return f.Node.Ready == objects.ReadyUnknown || f.Fence.Spec.PolicyName == "" && f.Node.NotReady()
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

// booted reports whether the Node's boot ID differs from the boot ID that the fence has ended. It is false if either is
// unknown.
func (f Facts) booted() bool {
	p := f.Fence.Status.Proof
	return p != nil && p.BootID != "" && f.Node.Found && f.Node.BootID != "" && f.Node.BootID != p.BootID
}

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

// Back reports whether the node has come back: it was rebooted and has renewed its Lease after the proof. It is false
// without a proof, and while a fact is unknown. A Ready condition alone is not enough for a fence of volumes, because
// writes still buffered on the node would reach them. The boot ID alone is enough after a proof of a reboot, which is
// over then: a node that is away again before it renews its Lease needs another fence.
func (f Facts) Back() bool {
	return f.booted() && !f.replaced() && (f.renewed() || f.Fence.Status.Proof.Covers == v1alpha1.CoversReboot)
}
