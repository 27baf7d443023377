package podhold

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
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
	PodRead Read
	// NodeSeen is what the watch shows of the node of the pod.
	NodeSeen NodeSeen
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
	// ReadHolder reads the pod from the API server: it decides whether the lock goes.
	ReadHolder
	// RemoveLock deletes the lock, if it still is the one for the holder.
	RemoveLock
)

// String returns the action as used in logs.
func (a LockAction) String() string {
	names := [...]string{
		KeepLock: "KeepLock", CreateLock: "CreateLock", ReadHolder: "ReadHolder", RemoveLock: "RemoveLock",
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
func DecideLock(f LockFacts, now time.Time) LockAction {
	held := f.Pod.UID == f.Holder && f.Holder != "" && f.Pod.Held
	switch {
	case f.Locked && f.RemovingLocks:
		return RemoveLock
	case f.Locked && held, f.RemovingLocks:
		return KeepLock
	case f.Locked && f.PodRead.Fresh(now):
		return RemoveLock
	case f.Locked:
		return ReadHolder
	case held && f.Pod.Terminating && f.Pod.Node != "" && f.NodeSeen != NodeReady && !f.Shared:
		return CreateLock
	}
	return KeepLock
}
