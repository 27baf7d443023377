package podsafety

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// LockFacts holds all knowledge of one volume of a pod, and of the lock that keeps other nodes from attaching it. The
// zero value of every field means that the fact is unknown or argues for keeping an existing lock.
type LockFacts struct {
	// Holder is the UID of the pod that the lock is for, and Locked reports whether the lock exists.
	Holder types.UID
	Locked bool
	// Left reports that the lock of the node has held the volume until now, for a pod that is not held any more.
	Left bool
	// Pod is the pod with the holder's name, from the watch cache or, when PodRead is set, from a live read. The zero
	// value means that no such pod exists.
	Pod     Pod
	PodRead session.Read
	// NodeSeen is the state of the pod's node in the watch.
	NodeSeen objects.NodeSeen
	// UnmountOverdue is the result of Tracker.UnmountOverdue for the pod.
	UnmountOverdue bool
	// FenceSeen reports that the watch shows a fence of the node. Fence is the result of its live read, and Node the
	// result of a live read of the node after it.
	FenceSeen bool
	Fence     objects.Fence
	FenceRead session.Read
	Node      objects.Node
	// Volume describes the volume to a fence.
	Volume objects.Volume
	// Shared reports that the access modes of the PV allow more than one node (ReadWriteMany, ReadOnlyMany).
	Shared bool
	// RemovingLocks reports that all locks are removed, because volume-guard is uninstalled or makes no locks.
	RemovingLocks bool
}

// LockAction is one step with a lock. The zero value is [KeepLock].
type LockAction string

const (
	// KeepLock neither removes nor creates a lock.
	KeepLock LockAction = ""
	// CreateLock makes the API server refuse the creation of VolumeAttachments of the volume for any node but the pod's.
	CreateLock LockAction = "CreateLock"
	// ReadLockFence reads the fence of the pod's node, and then the node, from the API server, to decide whether the
	// volume needs the lock.
	ReadLockFence LockAction = "ReadLockFence"
	// ReadHolder reads the pod from the API server, to decide whether to remove the lock.
	ReadHolder LockAction = "ReadHolder"
	// RemoveLock deletes the lock, unless it is for another holder by now.
	RemoveLock LockAction = "RemoveLock"
)

// DecideLock returns the next step for the lock of one volume.
//
// The attach-detach controller keeps a volume attached while a pod needs it: until the object is gone, its phase is
// final, or it is terminating and reports no running container (IsPodTerminated in pkg/volume/util). The controller
// then detaches the volume from an unreachable node after some minutes (maxWaitForUnmountDuration in
// pkg/controller/volume/attachdetach), and at once with the taint node.kubernetes.io/out-of-service, even under running
// processes. A volume is therefore locked while a pod that uses it is held and terminating on such a node. The minutes
// begin when no pod needs the volume, also on a Ready node, so it is locked there once its unmount is overdue. The lock
// stays until the pod is no longer held, even if the node returns, because the volume may be detached by then. For the
// same reason it passes to another held, terminating pod of the node that uses the volume. The absence of the pod is
// read live, since a stale cache may lack a pod that it has not received yet.
//
// A volume that a fence keeps from the node needs no lock, which would only block a new pod. The fence is read live,
// too, and has to concern the run of the node that the pod belongs to: another machine with the node's name reaches the
// volume while the fence is in force. A pod that is deleted at that very moment is no danger, because its volume is not
// detached for some minutes yet.
func DecideLock(f LockFacts, now time.Time) LockAction {
	switch {
	case f.Locked && f.RemovingLocks:
		return RemoveLock
	case f.RemovingLocks:
		return KeepLock
	case f.mayBeCovered() && !f.FenceRead.Fresh(now):
		return ReadLockFence
	case f.Covered():
		return f.unneeded()
	case f.Locked && f.held():
		return KeepLock
	case f.Locked && f.PodRead.Fresh(now):
		return RemoveLock
	case f.Locked:
		return ReadHolder
	case f.wanted():
		return CreateLock
	}
	return KeepLock
}

func (f LockFacts) held() bool { return f.Pod.UID == f.Holder && f.Holder != "" && f.Pod.Held }

// wanted reports whether the volume needs a lock unless a fence covers it.
func (f LockFacts) wanted() bool {
	return f.held() && f.Pod.Terminating && f.Pod.Node != "" && !f.Shared &&
		(f.NodeSeen != objects.NodeReady || f.UnmountOverdue || f.Left)
}

// mayBeCovered reports whether a fence of the node may make the lock unnecessary.
func (f LockFacts) mayBeCovered() bool {
	return f.held() && f.FenceSeen && f.Volume.Driver != "" && (f.Locked || f.wanted())
}

// Covered reports whether the fence that was read keeps the node from the volume, so that it needs no lock.
func (f LockFacts) Covered() bool {
	return f.mayBeCovered() && f.Fence.CoversVolume(f.Volume) && f.Fence.OfRun(f.Node)
}

func (f LockFacts) unneeded() LockAction {
	if f.Locked {
		return RemoveLock
	}
	return KeepLock
}
