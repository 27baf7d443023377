package singlenode

import (
	"slices"
	"strings"
	"time"

	"k8s.io/api/core/v1"
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
	// Finalizer keeps a claim that has a lock. The finalizer kubernetes.io/pvc-protection does not where the pod has no
	// node yet: the claim could be deleted and created again under it, and the new one would have no lock.
	Finalizer = "csi-reclaimer.io/single-node"
)

// Mode is what a namespace asks for. The zero value is not known.
type Mode uint8

const (
	// ModeUnknown: the namespace was not seen.
	ModeUnknown Mode = iota
	// ModeOff: the namespace does not ask for locks.
	ModeOff
	// ModeSelected: claims are locked that ask for it themselves, or whose StorageClass or PV does.
	ModeSelected
	// ModeAll: all claims are locked.
	ModeAll
)

// ModeOf returns the mode that the labels of a namespace ask for.
func ModeOf(labels map[string]string) Mode {
	switch labels[Label] {
	case SelectedValue:
		return ModeSelected
	case AllValue:
		return ModeAll
	}
	return ModeOff
}

// Pod is what decisions need of a pod that uses claims.
type Pod = objects.Pod

// Lock is who may use a claim. The zero value: nobody does.
type Lock struct {
	UID  types.UID
	Name string
}

// String returns the value of LockAnnotation.
func (l Lock) String() string { return string(l.UID) + " " + l.Name }

// ParseLock reads the value of LockAnnotation. One that somebody has damaged, so that its name is none of a pod, is a
// lock that no pod has: its name is empty, and its UID the whole value.
func ParseLock(value string) Lock {
	uid, name, _ := strings.Cut(value, " ")
	if uid == "" || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return Lock{UID: types.UID(value)}
	}
	return Lock{UID: types.UID(uid), Name: name}
}

// Claim is what decisions need of a claim. The zero value: there is none, as far as is known.
type Claim struct {
	Namespace, Name string
	// UID is empty where there is no claim.
	UID             types.UID
	ResourceVersion string
	Terminating     bool
	// Lock is who may use it, and Locked whether it has LockAnnotation.
	Lock   Lock
	Locked bool
	// Kept: it has Finalizer.
	Kept bool
	// Owner is the UID of the pod that controls it, as that of a generic ephemeral volume.
	Owner types.UID
	// Unasked: it is known that nothing asks for a lock. The zero value asks.
	Unasked bool
	// Volume is that of its PV, as far as known.
	Volume objects.Volume
}

// ClaimOf reads what is needed of a claim itself: not Unasked and Volume.
func ClaimOf(o metav1.Object) Claim {
	c := Claim{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		Terminating: o.GetDeletionTimestamp() != nil, Kept: slices.Contains(o.GetFinalizers(), Finalizer)}
	if value, found := o.GetAnnotations()[LockAnnotation]; found {
		c.Locked, c.Lock = true, ParseLock(value)
	}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && owner.Kind == "Pod" &&
		owner.APIVersion == v1.SchemeGroupVersion.String() {
		c.Owner = owner.UID
	}
	return c
}

// heldBy reports whether the lock names the pod.
func (c Claim) heldBy(p Pod) bool {
	return c.Locked && c.Lock == Lock{UID: p.UID, Name: p.Name} && p.UID != ""
}

// Asking is what is known of who asks for the lock of a claim.
type Asking struct {
	// Namespace is the mode of the claim's namespace.
	Namespace Mode
	// Claim are the claim's own labels, and AccessModes what it requests.
	Claim       map[string]string
	AccessModes []v1.PersistentVolumeAccessMode
	// Class are the labels of its StorageClass. ClassSeen: it has none, or that was seen. One that does not exist was not
	// seen: it may be created again in a moment, as where it is replaced.
	Class     map[string]string
	ClassSeen bool
	// PV are the labels of its PV. PVSeen: it is bound, and that was seen.
	PV     map[string]string
	PVSeen bool
}

// Unasked reports whether it is known that nothing asks for the lock of the claim. Of a claim that has no PV yet, it is
// not known.
func (a Asking) Unasked() bool {
	asks := func(labels map[string]string) bool { return labels[Label] == SelectValue }
	switch {
	case a.Namespace == ModeOff, slices.ContainsFunc(a.AccessModes, manyNodes):
		return true
	case a.Namespace != ModeSelected, asks(a.Claim), asks(a.Class), asks(a.PV):
		return false
	}
	return a.PVSeen && a.ClassSeen
}

// manyNodes reports whether an access mode allows more than one node: who requests it shares the volume on purpose.
func manyNodes(m v1.PersistentVolumeAccessMode) bool {
	return m == v1.ReadWriteMany || m == v1.ReadOnlyMany
}

// User is a pod that may use a claim, and what is known of its end. The zero value of every field but Pod means that
// the fact is not known, or speaks for processes that run.
type User struct {
	Pod Pod
	// EndedSince is when this process first saw that the pod has completed.
	EndedSince time.Time
	// NodeSeen is what the watch shows of its node, and FenceSeen whether it shows a fence of it.
	NodeSeen  podsafety.NodeSeen
	FenceSeen bool
	// Storage is what the watch has shown of whether its node reaches its volumes.
	Storage podsafety.Storage
	// Fence and Node are what live reads of the fence and of the node found.
	Fence podsafety.FenceFacts
	Node  podsafety.NodeFacts
}

// Rules are the settings of the locks.
type Rules struct {
	// UnmountGrace is how long to wait for the unmount of the volumes of a pod that has completed, counted from when this
	// process first saw that. Default 30 s.
	UnmountGrace time.Duration
	// Removing: gates, locks and finalizers are removed, because volume-guard is uninstalled.
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

// evidence returns what to do to find out whether processes of a pod can still write to a volume. A decision to
// FreeLock says that they cannot. read is the live read that has shown the pod.
//
// Of a pod that is terminating, the hold decides (package podsafety): its object goes once there is evidence. A volume
// that a fence keeps from its node can be used elsewhere before that; see fenced.
func (u User) evidence(v objects.Volume, rules Rules, read session.Read, now time.Time) Decision {
	switch p := u.Pod; {
	case p.Completed():
		if left := u.unmountIn(rules, now); left > 0 {
			return Decision{Reason: u.uses(), After: left}
		}
		return step(FreeLock, ReasonHolderCompleted)
	case p.Held && p.Terminating && p.Node != "" && u.FenceSeen && v.Driver != "":
		return u.fenced(v, read, now)
	}
	return wait(u.uses())
}

// fenced returns what to do to find out whether a fence keeps a pod that is held and terminating from a volume for
// as long as its processes run.
//
// A fence of volumes ends after a reboot, which ends the processes, and a kubelet starts no pod that is terminating.
// But it does start one that is not yet, and the fence is in force for some time after that. So the fence has to be
// about the run of the node that the pod is of. It ends once node fencing has seen another boot ID on the Node and has
// then listed no pod there that is held and terminating (leave in package fencing). A pod that was terminating by that
// list keeps the fence in force until its object is gone. Of one that became so later, the Node has the other boot ID
// by now.
func (u User) fenced(v objects.Volume, read session.Read, now time.Time) Decision {
	switch {
	case !u.Fence.Read.FreshAfter(read, now):
		return step(ReadFence, ReasonHolderTerminating)
	case !u.Fence.CoversVolume(v):
	case !u.Node.Read.FreshAfter(read, now):
		return step(ReadNode, ReasonHolderTerminating)
	case u.Fence.OfRun(u.Node):
		return step(FreeLock, ReasonVolumeFenced)
	}
	return wait(u.uses())
}

// unmountIn returns how long the wait for the unmount lasts, not positive when it is over. While a fence keeps the node
// from volumes, it does not begin.
func (u User) unmountIn(rules Rules, now time.Time) time.Duration {
	if u.EndedSince.IsZero() || u.Storage.Fenced {
		return rules.unmountGrace()
	}
	began := u.EndedSince
	if u.Storage.Since.After(began) {
		began = u.Storage.Since
	}
	return began.Add(rules.unmountGrace()).Sub(now)
}

// uses returns how a pod uses a claim.
func (u User) uses() Reason {
	switch p := u.Pod; {
	case p.Completed():
		return ReasonWaitsForUnmount
	case p.Node != "" && u.NodeSeen != podsafety.NodeReady && u.NodeSeen != podsafety.NodeUnseen:
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
