//go:build unix

package singlenode

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// The names of the API that volume-guard reads and writes, and finalizers and gate.
const (
	gate           = "csi-reclaimer.io/volume"
	lockAnnotation = "csi-reclaimer.io/used-by"
	lockFinalizer  = "csi-reclaimer.io/single-node"
	runFinalizer   = "csi-reclaimer.io/running"
	confirmation   = "csi-reclaimer.io/confirm-force-delete"
)

// verdict is the result of a history.
type verdict struct {
	violations []string
	// scheduled counts the pods that lost their gate with a lock, locked the taken locks, and freed the freed locks.
	scheduled, locked, freed int
}

// excuses are changes that volume-guard cannot answer for: people's changes by hand, against the policies.
type excuses struct {
	// ungated are pods whose gate was removed by hand, and created are pods created without it.
	ungated, created map[types.UID]bool
	// damaged are claims with a lock changed by hand.
	damaged map[types.UID]bool
}

func excuse(list *map[types.UID]bool, uid types.UID) {
	if *list == nil {
		*list = map[types.UID]bool{}
	}
	(*list)[uid] = true
}

// judging is a state of the namespace in the course of its history.
type judging struct {
	verdict
	excused *excuses
	number  uint64
	// mode is the value of the namespace's label.
	mode    string
	pods    map[types.UID]*v1.Pod
	claims  map[string]*v1.PersistentVolumeClaim
	pvs     map[string]*v1.PersistentVolume
	classes map[string]*storagev1.StorageClass
}

// judge goes through all writes to a namespace, in their order, and reports the following violations:
//
//   - that a pod could be scheduled while another used one of its claims, as far as they are to be locked,
//   - or without the locks of its claims, which name it,
//   - that a lock was freed or passed on while its pod could write,
//   - that a claim had half a lock,
//   - that the object of a pod went while its processes could run.
//
// It knows nothing of how volume-guard decides.
func judge(changes []change, excused *excuses) verdict {
	j := &judging{excused: excused, pods: map[types.UID]*v1.Pod{}, claims: map[string]*v1.PersistentVolumeClaim{},
		pvs: map[string]*v1.PersistentVolume{}, classes: map[string]*storagev1.StorageClass{}}
	for _, c := range changes {
		j.number = c.number
		switch o := c.object.(type) {
		case *v1.Namespace:
			j.mode = o.Labels[modeLabel]
		case *v1.PersistentVolume:
			keep(j.pvs, o.Name, o, c.deleted)
		case *storagev1.StorageClass:
			keep(j.classes, o.Name, o, c.deleted)
		case *v1.Pod:
			j.pod(j.pods[o.UID], o, c.deleted)
			keep(j.pods, o.UID, o, c.deleted)
		case *v1.PersistentVolumeClaim:
			j.claim(j.claims[o.Name], o, c.deleted)
			keep(j.claims, o.Name, o, c.deleted)
		}
	}
	return j.verdict
}

func keep[K comparable, T any](all map[K]T, key K, o T, deleted bool) {
	if deleted {
		delete(all, key)
		return
	}
	all[key] = o
}

func (j *judging) violation(format string, args ...any) {
	j.violations = append(j.violations, fmt.Sprintf("at %d: ", j.number)+fmt.Sprintf(format, args...))
}

// pod judges a version of a pod; was is nil for the first.
func (j *judging) pod(was, now *v1.Pod, deleted bool) {
	asked := j.mode == modeAll || j.mode == modeSelect
	switch {
	case deleted:
		if was != nil && isHeld(was) && !isGated(was) && was.Spec.NodeName != "" && !hasEnded(was) &&
			was.Annotations[confirmation] != string(was.UID) && !hasEnded(now) {
			j.violation("WRONG END: pod %s is gone while its processes may run on node %s", now.Name, was.Spec.NodeName)
		}
	case was == nil && asked && len(claimsOf(now)) > 0 && !isGated(now) && !j.excused.created[now.UID]:
		j.violation("NO GATE: pod %s was created without the gate", now.Name)
	case was != nil && isGated(was) && !isGated(now) && asked && !j.excused.ungated[now.UID]:
		j.scheduling(now)
	}
}

// scheduling judges that a pod has lost its gate.
func (j *judging) scheduling(pod *v1.Pod) {
	locks := 0
	for _, name := range claimsOf(pod) {
		claim := j.claims[name]
		if claim == nil {
			j.violation("WRONG SCHEDULE: pod %s has lost its gate, and its claim %s does not exist", pod.Name, name)
			continue
		}
		if !j.asks(claim) {
			continue
		}
		locks++
		if holder := holderOf(claim); holder != pod.UID || !isKept(claim) {
			j.violation("WRONG SCHEDULE: pod %s has lost its gate without the lock of claim %s, which has %q",
				pod.Name, name, claim.Annotations[lockAnnotation])
		}
		for _, uid := range slices.Sorted(maps.Keys(j.pods)) {
			other := j.pods[uid]
			if uid != pod.UID && uses(other, claim) && mayWrite(other) {
				j.violation("TWO WRITERS: pod %s has lost its gate while pod %s can use claim %s on node %q", pod.Name,
					other.Name, name, other.Spec.NodeName)
			}
		}
	}
	if locks > 0 {
		j.scheduled++
	}
}

// claim judges a version of a claim; was is nil for the first.
func (j *judging) claim(was, now *v1.PersistentVolumeClaim, deleted bool) {
	if was != nil && was.UID != now.UID {
		was = nil
	}
	if j.excused.damaged[now.UID] {
		return
	}
	_, locked := now.Annotations[lockAnnotation]
	if locked != isKept(now) && !deleted {
		j.violation("HALF A LOCK: claim %s has the annotation %q and the finalizers %q", now.Name,
			now.Annotations[lockAnnotation], now.Finalizers)
	}
	before, after := types.UID(""), types.UID("")
	if was != nil {
		before = holderOf(was)
	}
	if !deleted {
		after = holderOf(now)
	}
	if before == after {
		return
	}
	if after != "" {
		j.locked++
	}
	if before == "" {
		return
	}
	j.freed++
	if pod := j.pods[before]; pod != nil && !hasEnded(pod) {
		j.violation("WRONG RELEASE: claim %s lost the lock of pod %s, which is there: gated %v, phase %s", now.Name, pod.Name,
			isGated(pod), pod.Status.Phase)
	}
}

// asks reports whether a claim is to be locked.
func (j *judging) asks(claim *v1.PersistentVolumeClaim) bool {
	for _, mode := range claim.Spec.AccessModes {
		if mode == v1.ReadWriteMany || mode == v1.ReadOnlyMany {
			return false
		}
	}
	if j.mode == modeAll || claim.Labels[modeLabel] == "true" || claim.Spec.VolumeName == "" {
		return true
	}
	if pv := j.pvs[claim.Spec.VolumeName]; pv == nil || pv.Labels[modeLabel] == "true" {
		return true
	}
	if class := claim.Spec.StorageClassName; class != nil && *class != "" {
		o := j.classes[*class]
		return o == nil || o.Labels[modeLabel] == "true"
	}
	return false
}

// holderOf returns the UID of the pod that has the lock of a claim, empty for none.
func holderOf(claim *v1.PersistentVolumeClaim) types.UID {
	uid, _, _ := strings.Cut(claim.Annotations[lockAnnotation], " ")
	return types.UID(uid)
}

// isKept reports whether a claim has the finalizer of its lock.
func isKept(claim *v1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Finalizers, lockFinalizer)
}

func isHeld(pod *v1.Pod) bool { return slices.Contains(pod.Finalizers, runFinalizer) }

func isGated(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(g v1.PodSchedulingGate) bool { return g.Name == gate })
}

// mayWrite reports whether a pod can use its claims, now or once it is scheduled.
func mayWrite(pod *v1.Pod) bool { return !isGated(pod) && !hasEnded(pod) }

// hasEnded reports whether the kubelet says that all containers of a pod have ended, or the pod was deleted without a
// node.
func hasEnded(pod *v1.Pod) bool {
	runs := func(c v1.ContainerStatus) bool { return c.State.Running != nil }
	ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	return ended && !slices.ContainsFunc(pod.Status.ContainerStatuses, runs)
}

func uses(pod *v1.Pod, claim *v1.PersistentVolumeClaim) bool {
	return slices.Contains(claimsOf(pod), claim.Name)
}

// claimsOf returns the names of a pod's claims.
func claimsOf(pod *v1.Pod) (names []string) {
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, pod.Name+"-"+volume.Name)
		}
	}
	return names
}

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
