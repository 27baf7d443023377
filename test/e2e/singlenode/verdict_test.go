//go:build unix

package singlenode

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// script is a history that a test writes, one version of an object after the other.
type script []change

func (h *script) write(o metav1.Object) {
	*h = append(*h, change{number: uint64(len(*h) + 1), object: o})
}
func (h *script) remove(o metav1.Object) {
	*h = append(*h, change{number: uint64(len(*h) + 1), object: o, deleted: true})
}

func namespaceAsking(mode string) *v1.Namespace {
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{modeLabel: mode}}}
}

// claimVersion is a claim that is bound to a PV of its name, with the lock of a pod unless that is empty.
func claimVersion(pod types.UID, changes ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", UID: "data", Namespace: "ns"},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: "data"}}
	if pod != "" {
		claim.Annotations = map[string]string{lockAnnotation: string(pod) + " name"}
		claim.Finalizers = []string{lockFinalizer}
	}
	for _, change := range changes {
		change(claim)
	}
	return claim
}

// podVersion is a pod that uses the claim, is held, and has the gate.
func podVersion(uid types.UID, changes ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid, Namespace: "ns",
		Finalizers: []string{runFinalizer}}, Spec: podSpec("data")}
	pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: gate}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func ungated(pod *v1.Pod) { pod.Spec.SchedulingGates = nil }

func running(pod *v1.Pod) { ungated(pod); pod.Spec.NodeName, pod.Status.Phase = "node", v1.PodRunning }

func succeeded(pod *v1.Pod) { running(pod); pod.Status.Phase = v1.PodSucceeded }

// collected sets the pod's status as the pod garbage collector does, while its container runs.
func collected(pod *v1.Pod) {
	running(pod)
	pod.Status.Phase = v1.PodFailed
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{
		Running: &v1.ContainerStateRunning{}}}}
}

func unfinalized(claim *v1.PersistentVolumeClaim) { claim.Finalizers = nil }

func manyNodes(claim *v1.PersistentVolumeClaim) {
	claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
}

// TestJudge compares the judge's findings for histories. An empty text stands for no finding.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode string
		play func(*script)
		want string
	}{
		"two pods in turn": {modeAll, func(h *script) { h.inTurn("a", "b") }, ""},
		"a gate goes without the lock": {modeAll, func(h *script) {
			h.write(claimVersion(""))
			h.write(podVersion("a"))
			h.write(podVersion("a", ungated))
		}, "WRONG SCHEDULE"},
		"a gate goes with the lock of another": {modeAll, func(h *script) {
			h.write(podVersion("a"))
			h.write(claimVersion("b"))
			h.write(podVersion("a", ungated))
		}, "WRONG SCHEDULE"},
		"a gate goes with half a lock": {modeAll, func(h *script) {
			h.write(podVersion("a"))
			h.write(claimVersion("a", unfinalized))
			h.write(podVersion("a", ungated))
		}, "HALF A LOCK"},
		"a gate goes without the claim": {modeAll, func(h *script) {
			h.write(podVersion("a"))
			h.write(podVersion("a", ungated))
		}, "WRONG SCHEDULE"},
		"a gate goes while a pod runs that was there before": {"", func(h *script) {
			h.write(claimVersion(""))
			h.write(podVersion("old", running))
			h.write(namespaceAsking(modeAll))
			h.write(podVersion("a"))
			h.write(claimVersion("a"))
			h.write(podVersion("a", ungated))
		}, "TWO WRITERS"},
		"and when that has ended": {"", func(h *script) {
			h.write(claimVersion(""))
			h.write(podVersion("old", running))
			h.write(namespaceAsking(modeAll))
			h.write(podVersion("a"))
			h.write(claimVersion("a"))
			h.write(podVersion("old", succeeded))
			h.write(podVersion("a", ungated))
		}, ""},
		"a gate goes while a pod runs that the garbage collector has failed": {modeAll, func(h *script) {
			h.inTurn("a")
			h.write(podVersion("a", collected))
			h.write(claimVersion("b"))
			h.write(podVersion("b"))
			h.write(podVersion("b", ungated))
		}, "TWO WRITERS"},
		"a lock is passed on while its pod runs": {modeAll, func(h *script) {
			h.inTurn("a")
			h.write(claimVersion("b"))
		}, "WRONG RELEASE"},
		"a lock is freed while its pod waits": {modeAll, func(h *script) {
			h.write(podVersion("a"))
			h.write(claimVersion("a"))
			h.write(claimVersion(""))
		}, "WRONG RELEASE"},
		"a claim with a lock goes while its pod runs": {modeAll, func(h *script) {
			h.inTurn("a")
			h.remove(claimVersion(""))
		}, "WRONG RELEASE"},
		"a pod goes while its processes run": {modeAll, func(h *script) {
			h.inTurn("a")
			h.remove(podVersion("a", running))
		}, "WRONG END"},
		"a pod is created without the gate": {modeAll, func(h *script) { h.write(podVersion("a", ungated)) }, "NO GATE"},
		"a namespace that does not ask": {"", func(h *script) {
			h.write(claimVersion(""))
			h.write(podVersion("a", running))
			h.write(podVersion("b", running))
		}, ""},
		"a claim for many nodes": {modeAll, func(h *script) { h.unlocked(manyNodes) }, ""},
		"a claim that is selected": {modeSelect, func(h *script) {
			h.unlocked(func(claim *v1.PersistentVolumeClaim) { claim.Labels = map[string]string{modeLabel: "true"} })
		}, "TWO WRITERS"},
		"a claim that is not selected": {modeSelect, func(h *script) { h.unlocked() }, ""},
		"a claim that is not bound": {modeSelect, func(h *script) {
			h.unlocked(func(claim *v1.PersistentVolumeClaim) { claim.Spec.VolumeName = "" })
		}, "TWO WRITERS"},
		"a claim of a class that is selected": {modeSelect, func(h *script) {
			h.write(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "class",
				Labels: map[string]string{modeLabel: "true"}}})
			h.unlocked(func(claim *v1.PersistentVolumeClaim) { claim.Spec.StorageClassName = ptr.To("class") })
		}, "TWO WRITERS"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &script{}
			h.write(namespaceAsking(c.mode))
			c.play(h)
			v := judge(*h, &excuses{})
			if found := strings.Join(v.violations, "\n"); c.want == "" && found != "" || !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

// unlocked has two pods use the claim at the same time without a lock.
func (h *script) unlocked(changes ...func(*v1.PersistentVolumeClaim)) {
	h.write(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}})
	h.write(claimVersion("", changes...))
	for _, uid := range []types.UID{"a", "b"} {
		h.write(podVersion(uid))
		h.write(podVersion(uid, running))
	}
}

// inTurn has pods use the claim one after the other. The last pod runs.
func (h *script) inTurn(pods ...types.UID) {
	h.write(claimVersion(""))
	for i, uid := range pods {
		h.write(podVersion(uid))
		h.write(claimVersion(uid))
		h.write(podVersion(uid, ungated))
		h.write(podVersion(uid, running))
		if i == len(pods)-1 {
			return
		}
		h.write(podVersion(uid, succeeded))
		h.remove(podVersion(uid, succeeded))
		h.write(claimVersion(""))
	}
}

// Changes of a watch can arrive in any order.
func TestHistoryIsOrdered(t *testing.T) {
	t.Parallel()
	h := &history{live: map[types.UID]uint64{}}
	for _, number := range []int{30, 10, 20} {
		pod := podVersion(types.UID(fmt.Sprint("pod-", number)))
		pod.ResourceVersion = fmt.Sprint(number)
		h.written(pod)
		h.written(pod) // a watch that begins again
	}
	other := podVersion("other")
	other.Namespace = "other"
	h.written(other)
	var numbers []uint64
	for _, c := range h.of("ns") {
		numbers = append(numbers, c.number)
	}
	if !slices.Equal(numbers, []uint64{10, 20, 30}) {
		t.Errorf("the history of the namespace is %v", numbers)
	}
}
