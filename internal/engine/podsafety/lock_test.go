package podsafety

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

// locked returns the facts of a lock for a pod that is terminating on an unreachable node.
func locked(alter ...func(*LockFacts)) LockFacts {
	f := LockFacts{Holder: "uid-1", Locked: true, Pod: terminatingPod(), NodeSeen: objects.NodeNotReady}
	for _, a := range alter {
		a(&f)
	}
	return f
}

func none(f *LockFacts)     { f.Locked = false }
func released(f *LockFacts) { f.Pod.Held = false }
func readLive(f *LockFacts) { f.PodRead = read(1) }

func ofDriver(f *LockFacts) {
	f.Volume = objects.Volume{Driver: "disk", Attributes: map[string]string{"clusterID": "one", "pool": "a"}}
}
func fenceSeen(f *LockFacts) { f.FenceSeen = true }
func overdue(f *LockFacts)   { f.UnmountOverdue = true }

// left is the volume of another pod of the node until then, and the node is back.
func left(f *LockFacts) { f.Locked, f.Left, f.NodeSeen = false, true, objects.NodeReady }

func nodeIs(n objects.NodeSeen) func(*LockFacts) { return func(f *LockFacts) { f.NodeSeen = n } }

func volumesFenced(r session.Read) func(*LockFacts) {
	return func(f *LockFacts) {
		f.Fence, f.FenceRead = ofVolumes(""), r
		f.Fence.Volumes = ofCluster("disk", "one")
		f.Fence.SinceTerminating, f.Fence.BootID, f.Node.BootID = false, "boot", "boot"
	}
}

func otherBoot(f *LockFacts) { f.Node.BootID = "boot-2" }

func ofCluster(driver string, cluster v1alpha1.AttributeValue) []v1alpha1.CoveredVolumes {
	return []v1alpha1.CoveredVolumes{{Driver: driver, Volumes: v1alpha1.VolumesMatching,
		VolumeAttributes: map[string]v1alpha1.AttributeValue{"clusterID": cluster}}}
}

func TestDecideLock(t *testing.T) {
	for name, c := range map[string]struct {
		facts LockFacts
		want  LockAction
	}{
		"nothing is known":                   {LockFacts{}, KeepLock},
		"terminating on a node that is away": {locked(none), CreateLock},
		"on an unseen node":                  {locked(none, nodeIs(objects.NodeUnseen)), CreateLock},
		"on a node that is gone":             {locked(none, nodeIs(objects.NodeAbsent)), CreateLock},
		"on a tainted node":                  {locked(none, nodeIs(objects.NodeTainted)), CreateLock},
		"on a Ready node":                    {locked(none, nodeIs(objects.NodeReady)), KeepLock},
		"on a Ready node, its unmount is overdue": {
			locked(none, nodeIs(objects.NodeReady), overdue), CreateLock},
		"its unmount is overdue, and several nodes may have it": {
			locked(none, nodeIs(objects.NodeReady), overdue, func(f *LockFacts) { f.Shared = true }), KeepLock},
		"its unmount was overdue, and it is released": {
			locked(none, nodeIs(objects.NodeReady), overdue, released), KeepLock},
		"its unmount is overdue, and its driver refuses the node": {
			locked(none, nodeIs(objects.NodeReady), overdue, ofDriver, fenceSeen, volumesFenced(read(1))), KeepLock},
		"not deleted":               {locked(none, func(f *LockFacts) { f.Pod.Terminating = false }), KeepLock},
		"it is not held":            {locked(none, released), KeepLock},
		"it was never bound":        {locked(none, func(f *LockFacts) { f.Pod.Node = "" }), KeepLock},
		"several nodes may have it": {locked(none, func(f *LockFacts) { f.Shared = true }), KeepLock},
		"released and read live":    {locked(none, released, readLive), KeepLock},
		"another pod":               {locked(none, func(f *LockFacts) { f.Holder = "uid-2" }), KeepLock},
		"no pod":                    {locked(none, func(f *LockFacts) { f.Holder, f.Pod.UID = "", "" }), KeepLock},

		"another pod of the node had it": {locked(left), CreateLock},
		"another pod had it, and this one is not deleted": {
			locked(left, func(f *LockFacts) { f.Pod.Terminating = false }), KeepLock},
		"another pod had it, and this one is not held": {locked(left, released), KeepLock},
		"another pod had it, and its driver refuses the node": {
			locked(left, ofDriver, fenceSeen, volumesFenced(read(1))), KeepLock},

		"it stays":                                   {locked(), KeepLock},
		"it stays when the node returns":             {locked(nodeIs(objects.NodeReady)), KeepLock},
		"the pod is released, as the watch shows it": {locked(released), ReadHolder},
		"the pod is released, by an old read": {locked(released, func(f *LockFacts) { f.PodRead = old(1) }),
			ReadHolder},
		"the pod is released":                    {locked(released, readLive), RemoveLock},
		"the pod is gone, as the watch shows it": {locked(func(f *LockFacts) { f.Pod = Pod{} }), ReadHolder},
		"the pod is gone":                        {locked(func(f *LockFacts) { f.Pod = Pod{} }, readLive), RemoveLock},
		"another has its name": {locked(func(f *LockFacts) { f.Pod.UID = "uid-2" }, readLive),
			RemoveLock},
		"it is held, read live": {locked(readLive), KeepLock},

		"a fence, and nothing is known of its volumes": {locked(none, func(f *LockFacts) { f.FenceSeen = true }), CreateLock},
		"a fence, as the watch shows it":               {locked(none, ofDriver, fenceSeen), ReadLockFence},
		"a fence, by an old read": {locked(none, ofDriver, fenceSeen, volumesFenced(old(1))),
			ReadLockFence},
		"its driver refuses the node": {locked(none, ofDriver, fenceSeen, volumesFenced(read(1))), KeepLock},
		"it is locked, and its driver refuses the node": {locked(ofDriver, fenceSeen, volumesFenced(read(1))),
			RemoveLock},
		"it is locked, the node is Ready, and its driver refuses it": {
			locked(ofDriver, fenceSeen, volumesFenced(read(1)), nodeIs(objects.NodeReady)), RemoveLock},
		"another machine or boot": {locked(none, ofDriver, fenceSeen, volumesFenced(read(1)), otherBoot), CreateLock},
		"it is locked, and another machine or boot": {locked(ofDriver, fenceSeen, volumesFenced(read(1)), otherBoot),
			KeepLock},
		"another machine or boot, and it was terminating before": {locked(ofDriver, fenceSeen, volumesFenced(read(1)),
			otherBoot, func(f *LockFacts) { f.Fence.SinceTerminating = true }), RemoveLock},
		"it is locked, and there is a fence": {locked(ofDriver, fenceSeen), ReadLockFence},
		"the watch shows no fence":           {locked(ofDriver, volumesFenced(read(1))), KeepLock},
		"the fence is of another driver": {locked(none, ofDriver, fenceSeen, volumesFenced(read(1)),
			func(f *LockFacts) { f.Fence.Volumes = ofCluster("other", "one") }), CreateLock},
		"the fence is of another storage system": {locked(none, ofDriver, fenceSeen, volumesFenced(read(1)),
			func(f *LockFacts) { f.Fence.Volumes = ofCluster("disk", "two") }), CreateLock},
		"it is locked, and the fence is of another storage system": {locked(ofDriver, fenceSeen, volumesFenced(read(1)),
			func(f *LockFacts) { f.Volume.Attributes["clusterID"] = "two" }), KeepLock},
		"the fence is of both": {locked(ofDriver, fenceSeen, volumesFenced(read(1)), func(f *LockFacts) {
			f.Fence.Volumes = append(ofCluster("disk", "two"), ofCluster("disk", "one")...)
		}), RemoveLock},
		"the fence is not in force": {locked(ofDriver, fenceSeen, volumesFenced(read(1)),
			func(f *LockFacts) { f.Fence.InForce = false }), KeepLock},
		"the fence is not of volumes": {locked(ofDriver, fenceSeen, volumesFenced(read(1)),
			func(f *LockFacts) { f.Fence.Coverage = v1alpha1.CoversReboot }), KeepLock},
		"a fence, and the pod is released": {locked(ofDriver, fenceSeen, released, readLive), RemoveLock},
		"a fence, and the node is Ready": {locked(none, ofDriver, fenceSeen, nodeIs(objects.NodeReady)),
			KeepLock},

		"we are uninstalled":          {locked(func(f *LockFacts) { f.RemovingLocks = true }), RemoveLock},
		"we are uninstalled, no lock": {locked(none, func(f *LockFacts) { f.RemovingLocks = true }), KeepLock},
	} {
		if got := DecideLock(c.facts, now()); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestActions(t *testing.T) { sessiontest.Actions(t, RemoveFinalizerByUID) }

func TestModeOf(t *testing.T) {
	for value, want := range map[string]Mode{"enforce": ModeEnforce, "warn": ModeWarn, "Enforce": ModeOff, "": ModeOff} {
		if got := ModeOf(map[string]string{NamespaceLabel: value}); got != want {
			t.Errorf("%q: %d", value, got)
		}
	}
	if got := ModeOf(nil); got != ModeOff {
		t.Errorf("no label: %d", got)
	}
}

func TestUnmountOverdue(t *testing.T) {
	tracker := NewTracker()
	if tracker.UnmountOverdue("uid-1", now()) {
		t.Error("the unmount of a pod that has not ended is overdue")
	}
	tracker.Saw(facts(pod(ended)).Pod, objects.NodeReady, now())
	last := now().Add(overdueAfter)
	if tracker.UnmountOverdue("uid-1", last.Add(-1)) || !tracker.UnmountOverdue("uid-1", last) {
		t.Error("an unmount is not overdue after exactly a minute")
	}
}
