package singlenode

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

const (
	// Label asks for locks: on a namespace with SelectedValue or AllValue, and on a StorageClass, a PV or a claim with
	// SelectValue.
	Label         = "csi-reclaimer.io/single-node"
	SelectedValue = "selected"
	AllValue      = "all"
	SelectValue   = "true"
	// Gate is the scheduling gate of pods that wait for the locks of their claims.
	Gate = objects.VolumeGate
	// LockAnnotation on a claim names the one pod that may use it: its UID, a space, and its name.
	LockAnnotation = "csi-reclaimer.io/used-by"
	// Finalizer protects a locked claim from deletion. The finalizer kubernetes.io/pvc-protection does not protect the
	// claim of a pod without a node: the claim could be deleted and created again under the pod, without the lock.
	Finalizer = "csi-reclaimer.io/single-node"
)

// Mode says which claims of a namespace are locked, unknown in its zero value.
type Mode uint8

const (
	// ModeUnknown means that the namespace was not seen.
	ModeUnknown Mode = iota
	// ModeOff means that the namespace does not ask for locks.
	ModeOff
	// ModeSelected locks claims that ask for it themselves, or whose StorageClass or PV does.
	ModeSelected
	// ModeAll locks all claims, unless their access modes allow more than one node.
	ModeAll
)

// ModeOf returns the mode in the labels of a namespace. A missing or unknown value is ModeOff.
func ModeOf(labels map[string]string) Mode {
	switch labels[Label] {
	case SelectedValue:
		return ModeSelected
	case AllValue:
		return ModeAll
	}
	return ModeOff
}

// Pod is the part of a pod that decisions need.
type Pod = objects.Pod

// Lock names the pod that may use a claim, or no pod in its zero value.
type Lock struct {
	UID  types.UID
	Name string
}

// String returns the value of LockAnnotation.
func (l Lock) String() string { return string(l.UID) + " " + l.Name }

// ParseLock parses the value of LockAnnotation. A damaged value, whose name is not a valid pod name, yields a lock that
// no pod has: its Name is empty, and its UID the whole value.
func ParseLock(value string) Lock {
	uid, name, _ := strings.Cut(value, " ")
	if uid == "" || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return Lock{UID: types.UID(value)}
	}
	return Lock{UID: types.UID(uid), Name: name}
}

// Claim is the part of a claim that decisions need. The zero value stands for a claim that is not known to exist.
type Claim struct {
	Namespace, Name string
	// UID is the UID of the claim, empty if the claim does not exist.
	UID             types.UID
	ResourceVersion string
	Terminating     bool
	// Locked reports whether the claim has LockAnnotation, and Lock is its value.
	Lock   Lock
	Locked bool
	// Kept reports whether the claim has Finalizer.
	Kept bool
	// Owner is the UID of the pod that controls the claim, as with a generic ephemeral volume.
	Owner types.UID
	// Unasked reports that the claim is known to need no lock. The zero value needs one.
	Unasked bool
	// Volume is the volume of its PV, as far as known.
	Volume objects.Volume
}

// ClaimOf converts a claim. Unasked and Volume depend on other objects and stay unset.
func ClaimOf(o metav1.Object) Claim {
	c := Claim{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		Terminating: o.GetDeletionTimestamp() != nil, Kept: slices.Contains(o.GetFinalizers(), Finalizer)}
	if value, found := o.GetAnnotations()[LockAnnotation]; found {
		c.Locked, c.Lock = true, ParseLock(value)
	}
	_, c.Owner = objects.PodOwner(o)
	return c
}

// heldBy reports whether the lock names the pod.
func (c Claim) heldBy(p Pod) bool {
	return c.Locked && c.Lock == Lock{UID: p.UID, Name: p.Name} && p.UID != ""
}

// Asking collects everything that can ask for the lock of a claim.
type Asking struct {
	// Namespace is the mode of the claim's namespace.
	Namespace Mode
	// Claim, Class and PV report which of the objects have the label that asks for a lock (see Asks).
	Claim, Class, PV bool
	// Shared reports that the claim requests an access mode for many nodes, which shares its volume on purpose.
	Shared bool
	// ClassSeen reports that the claim has no StorageClass, or that the StorageClass was seen. A missing StorageClass does
	// not count as seen, because it may be created again in a moment, as during a replacement. PVSeen reports that the
	// claim is bound and its PV was seen.
	ClassSeen, PVSeen bool
}

// Asks reports whether an object with these labels asks for a lock.
func Asks(labels map[string]string) bool { return labels[Label] == SelectValue }

// Unasked reports whether the claim is known to need no lock. For a claim without a PV, it is not known unless the
// namespace or the access modes rule a lock out.
func (a Asking) Unasked() bool {
	switch {
	case a.Namespace == ModeOff, a.Shared:
		return true
	case a.Namespace != ModeSelected, a.Claim, a.Class, a.PV:
		return false
	}
	return a.PVSeen && a.ClassSeen
}

// User is a pod that may use a claim, with the evidence of its end. The zero value of every field but Pod means
// unknown, or assumes running processes.
type User struct {
	Pod Pod
	// EndedSince is when this process first saw the pod completed, and its node Ready again since.
	EndedSince time.Time
	// NodeSeen is the state of the pod's node in the watch cache. FenceSeen reports whether a fence of the node is in the
	// watch cache.
	NodeSeen  objects.NodeSeen
	FenceSeen bool
	// Storage says whether the node can unmount volumes, from the watches.
	Storage podsafety.Storage
	// Fence and Node come from live reads.
	Fence               objects.Fence
	Node                objects.Node
	FenceRead, NodeRead session.Read
}

// Rules are the settings of the locks.
type Rules struct {
	// UnmountGrace is the delay for the unmount of the volumes of a completed pod, counted from User.EndedSince. Default
	// 30 s.
	UnmountGrace time.Duration
	// Removing removes gates, locks and finalizers, because volume-guard is uninstalled.
	Removing bool
	// DryRun ends a session before its first write.
	DryRun bool
}

func (r Rules) unmountGrace() time.Duration {
	if r.UnmountGrace == 0 {
		return podsafety.DefaultUnmountGrace
	}
	return r.UnmountGrace
}

// evidence returns the next step to find out whether processes of a pod can still write to a volume. FreeLock means
// that they cannot. read is the live read that returned the pod.
//
// For a terminating pod, the hold decides (package podsafety): its object goes once there is evidence. A person's
// confirmation suffices if other finalizers keep the object after that. A fence that keeps the node from the volume
// allows use elsewhere before; see fenced. A pod without the hold is no evidence: it may never have had it, or have
// lost it to an uninstallation.
func (u User) evidence(v objects.Volume, rules Rules, read session.Read, now time.Time) Decision {
	switch p := u.Pod; {
	case p.Completed() && !u.NodeSeen.Ready(): // no kubelet is at work, so time proves no unmount
		return wait(u.uses())
	case p.Completed():
		return u.completed(rules, read, now)
	case p.ShutDown() && p.Confirmation == objects.ConfirmedThis:
		return step(FreeLock, ReasonHolderReleased)
	case p.Held && p.Terminating && p.Node != "" && u.FenceSeen && v.Driver != "":
		return u.fenced(v, read, now)
	}
	return wait(u.uses())
}

// completed returns the next step to find out whether the volumes of a completed pod are unmounted. The wait for that
// does not begin while a fence keeps the node from volumes, unless the node was rebooted since (EndedRun), which no
// watch shows.
func (u User) completed(rules Rules, read session.Read, now time.Time) Decision {
	hindered := u.Storage.Fenced
	switch {
	case !hindered || !u.FenceSeen:
	case !u.FenceRead.FreshAfter(read, now):
		return step(ReadFence, u.uses())
	case !u.NodeRead.FreshAfter(u.FenceRead, now):
		return step(ReadNode, u.uses())
	default:
		hindered = !u.Fence.EndedRun(u.Node)
	}
	left := rules.unmountGrace()
	if !hindered {
		left = u.unmountIn(rules, now)
	}
	if left > 0 {
		return Decision{Reason: u.uses(), After: left}
	}
	return step(FreeLock, ReasonHolderCompleted)
}

// fenced returns the next step to find out whether a fence keeps a held, terminating pod from a volume for as long as
// its processes run.
//
// A fence of volumes ends after a reboot, which ends all processes, and a kubelet starts no terminating pod. But it
// does start a pod that is not terminating yet, and the fence stays in force for some time after the reboot. So the
// fence has to concern the run of the node that the pod belongs to. The fence ends once node fencing has seen another
// boot ID on the Node and has then listed no held, terminating pod there (leave in package fencing). A pod of the first
// such list that is terminating keeps the fence in force until its object is gone. If a pod becomes terminating, or is
// bound to the node, after that list, the Node already has the other boot ID.
func (u User) fenced(v objects.Volume, read session.Read, now time.Time) Decision {
	switch {
	case !u.FenceRead.FreshAfter(read, now):
		return step(ReadFence, ReasonHolderTerminating)
	case !u.Fence.CoversVolume(v):
	case !u.NodeRead.FreshAfter(read, now):
		return step(ReadNode, ReasonHolderTerminating)
	case u.Fence.OfRun(u.Node):
		return step(FreeLock, ReasonVolumeFenced)
	}
	return wait(u.uses())
}

// unmountIn returns the remaining wait for the unmount, not positive once it is over, regardless of fences. The wait
// does not begin while the node is away.
func (u User) unmountIn(rules Rules, now time.Time) time.Duration {
	if u.EndedSince.IsZero() || u.Storage.Away {
		return rules.unmountGrace()
	}
	began := u.EndedSince
	if u.Storage.Since.After(began) {
		began = u.Storage.Since
	}
	return began.Add(rules.unmountGrace()).Sub(now)
}

// uses returns the reason that describes how a pod uses a claim.
func (u User) uses() Reason {
	switch p := u.Pod; {
	case p.Completed() && (u.NodeSeen.Ready() || u.NodeSeen == objects.NodeUnseen):
		return ReasonWaitsForUnmount
	case p.Node != "" && u.NodeSeen != objects.NodeReady && u.NodeSeen != objects.NodeUnseen:
		return ReasonHolderUnreachable
	case p.Terminating:
		return ReasonHolderTerminating
	case p.Final:
		return ReasonHolderFailed
	case p.Node == "" && p.Unschedulable:
		return ReasonHolderUnschedulable
	case p.Node == "":
		return ReasonHolderWaits
	}
	return ReasonHolderRuns
}
