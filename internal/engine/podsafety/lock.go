package podsafety

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// LockFacts is all that is known about one volume of a pod, and the lock that keeps other nodes from attaching it. The
// zero value of every field means that the fact is not known, or speaks for keeping a lock that exists.
type LockFacts struct {
	// Holder is the UID of the pod that the lock is for, and Locked whether there is one.
	Holder types.UID
	Locked bool
	// Pod is the pod that has the name of the holder, from the watch cache or, when PodRead is set, from a live read. The
	// zero value: there is none.
	Pod     Pod
	PodRead session.Read
	// NodeSeen is what the watch shows of the node of the pod.
	NodeSeen NodeSeen
	// FenceSeen: the watch shows a fence of the node. Fence is what a live read of it found.
	FenceSeen bool
	Fence     FenceFacts
	// Volume is what a fence may cover.
	Volume objects.Volume
	// Shared: the access modes of the PV allow more than one node (ReadWriteMany, ReadOnlyMany).
	Shared bool
	// RemovingLocks: all locks are removed, because volume-guard is uninstalled.
	RemovingLocks bool
}

// LockAction is one step with a lock. The zero value is to do nothing.
type LockAction uint8

const (
	// KeepLock: a lock that exists stays, and none is created.
	KeepLock LockAction = iota
	// CreateLock has the creation of VolumeAttachments of the volume refused for any other node than the pod's.
	CreateLock
	// ReadLockFence reads the fence of the pod's node from the API server: it decides whether the volume needs the lock.
	ReadLockFence
	// ReadHolder reads the pod from the API server: it decides whether the lock goes.
	ReadHolder
	// RemoveLock deletes the lock, if it still is the one for the holder.
	RemoveLock
)

// String returns the action as used in logs.
func (a LockAction) String() string {
	names := [...]string{
		KeepLock: "KeepLock", CreateLock: "CreateLock", ReadLockFence: "ReadLockFence", ReadHolder: "ReadHolder",
		RemoveLock: "RemoveLock",
	}
	if int(a) < len(names) {
		return names[a]
	}
	return "Unknown"
}

// DecideLock returns what to do next about the lock of one volume.
//
// The attach-detach controller detaches from a node that is away after some minutes (maxWaitForUnmountDuration in
// pkg/controller/volume/attachdetach), and at once with the taint node.kubernetes.io/out-of-service, whether processes
// run there or not. So a volume is locked while a pod with it is held and terminating on such a node. The lock stays
// until the pod is no longer held, also when the node returns: the volume may be detached by then. That the pod is gone
// is read live; a cache that lags shows it as gone before it has seen it.
//
// A volume that a fence keeps from the node needs no lock: a lock would only keep a new pod from it. The fence is read
// live, too. Which run of the node it is about does not matter: it does not end while a pod that is held is terminating
// there, but for one that is deleted at that moment, and the volume of that one is not detached for some minutes yet.
func DecideLock(f LockFacts, now time.Time) LockAction {
	switch {
	case f.Locked && f.RemovingLocks:
		return RemoveLock
	case f.RemovingLocks:
		return KeepLock
	case f.mayBeCovered() && !f.Fence.Read.Fresh(now):
		return ReadLockFence
	case f.mayBeCovered() && f.Fence.CoversVolume(f.Volume):
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

// held reports whether the pod that the lock is for is held.
func (f LockFacts) held() bool { return f.Pod.UID == f.Holder && f.Holder != "" && f.Pod.Held }

// wanted reports whether the volume is to be locked, if no fence covers it.
func (f LockFacts) wanted() bool {
	return f.held() && f.Pod.Terminating && f.Pod.Node != "" && f.NodeSeen != NodeReady && !f.Shared
}

// mayBeCovered reports whether a fence of the node may make the lock unneeded.
func (f LockFacts) mayBeCovered() bool {
	return f.held() && f.FenceSeen && f.Volume.Driver != "" && (f.Locked || f.wanted())
}

// unneeded returns what to do about a volume that needs no lock.
func (f LockFacts) unneeded() LockAction {
	if f.Locked {
		return RemoveLock
	}
	return KeepLock
}
