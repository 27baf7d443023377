package locks

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

// words formats the list in short: each lock with the pods that wait for it, and each gated pod.
func (l List) words() (all []string) {
	for _, lock := range l.Locks {
		text := fmt.Sprintf("%s: %s on %s, %s; %s", lock.Claim, lock.Holder, lock.Node, lock.Reason, lock.WaitsFor)
		for _, w := range lock.Waiting {
			text += " <- " + w.Pod
		}
		all = append(all, text)
	}
	for _, pod := range l.GatedPods {
		all = append(all, fmt.Sprintf("%s: %s, %s, %s; %s", pod.Name, pod.Claim, pod.Pod, pod.Reason, pod.WaitsFor))
	}
	return all
}

func TestListOf(t *testing.T) {
	const (
		waits = "new: data, old, ClaimInUse; the lock of claim data, which pod old has"
		freed = "; volume-guard to free the lock <- new"
		goes  = "; volume-guard to remove its gate"
		runs  = "data: old on n1, HolderRuns; pod old to end"
	)
	for sentence, c := range map[string]struct {
		change func(*environment)
		want   []string
	}{
		"another pod uses the claim": {func(*environment) {}, []string{runs + " <- new", waits}},
		"no waiter":                  {func(env *environment) { env.new = nil }, []string{runs}},
		"its node is cut off": {func(env *environment) { env.down() },
			[]string{"data: old on n1, HolderUnreachable; node n1 to return, or pod old to be deleted <- new", waits}},
		"it is terminating": {func(env *environment) { terminate(env.old) },
			[]string{"data: old on n1, HolderTerminating; its kubelet on node n1 to end its processes <- new", waits}},
		"it is terminating on a node that is cut off": {func(env *environment) { terminate(env.old); env.down() },
			[]string{"data: old on n1, HolderUnreachable; node n1 to return, or evidence that its processes cannot run <- new",
				waits}},
		"it has completed": {func(env *environment) { complete(env.old) },
			[]string{"data: old on n1, WaitsForUnmount; its volumes to be unmounted on node n1 <- new", waits}},
		"it is gone": {func(env *environment) { env.old = nil }, []string{"data: old on , HolderGone" + freed,
			"new: data, , ClaimInUse; the lock of claim data, which pod old has"}},
		"it is another one of the name": {func(env *environment) { env.old.UID = "later" },
			[]string{"data: old on , HolderGone" + freed, "new: data, , ClaimInUse; the lock of claim data, which pod old has"}},
		"it waits to be scheduled, too": {func(env *environment) { env.old = nil; env.add("old", "data") },
			[]string{"data: old on , HolderWaits; pod old to end <- new", waits, "old: , , LocksAcquired" + goes}},
		"it fits no node": {func(env *environment) {
			env.old = nil
			old := env.add("old", "data")
			old.Spec.SchedulingGates = nil
			old.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse,
				Reason: v1.PodReasonUnschedulable}}
		}, []string{"data: old on , HolderUnschedulable; pod old to fit a node, or to be deleted <- new", waits}},
		"a queue has not admitted the waiting pod": {func(env *environment) {
			env.new.Spec.SchedulingGates = append(env.new.Spec.SchedulingGates,
				v1.PodSchedulingGate{Name: "queue.example.com/x"})
		}, []string{runs, "new: , , OtherSchedulingGates; its other scheduling gates to be removed: queue.example.com/x"}},
		"its volume is fenced": {func(env *environment) { terminate(env.old); env.fence() },
			[]string{"data: old on n1, VolumeFenced" + freed, waits}},
		"its volume is fenced, and the node has rebooted": {func(env *environment) {
			terminate(env.old)
			env.fence()
			env.node.Status.NodeInfo.BootID = "boot-2"
		}, []string{"data: old on n1, HolderTerminating; its kubelet on node n1 to end its processes <- new", waits}},
		"the lock is damaged": {func(env *environment) { lock(env.claim, "what") },
			[]string{"data:  on , LockDamaged" + freed, "new: data, , ClaimInUse; the lock of claim data, which pod  has"}},
		"only its finalizer is left": {func(env *environment) { env.claim.Annotations, env.new = nil, nil },
			[]string{"data:  on , LockDamaged; volume-guard to free the lock"}},
		"no pod has the lock, and the old one runs": {func(env *environment) { env.claim = claim("data", "") },
			[]string{"new: data, old, UsedWithoutLock; pod old to end, which uses claim data without the lock"}},
		"no pod has the lock": {func(env *environment) { env.old, env.claim = nil, claim("data", "") },
			[]string{"new: , , LocksAcquired" + goes}},
		"its node has refused it": {func(env *environment) {
			env.old.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "NodeAffinity"}
		}, []string{"data: old on n1, HolderFailed; pod old to be deleted <- new", waits}},
		"the lock is of a pod that does not use the claim": {func(env *environment) { env.old.Spec.Volumes = nil },
			[]string{"data: old on n1, LockDamaged" + freed, waits}},
		"the old one runs without the lock": {func(env *environment) { env.claim = claim("data", "new") },
			[]string{"data: new on , HolderWaits; pod new to end",
				"new: data, old, UsedWithoutLock; pod old to end, which uses claim data without the lock"}},
		"the claim does not exist": {func(env *environment) { env.claim = nil },
			[]string{"new: data, , ClaimMissing; claim data to be created"}},
		"the claim is being deleted": {func(env *environment) {
			env.claim.DeletionTimestamp = ptr.To(ago(time.Minute))
		}, []string{runs, "new: data, , ClaimTerminating; claim data, which is being deleted"}},
		"the claim of its ephemeral volume is another's": {func(env *environment) {
			env.claims = []*v1.PersistentVolumeClaim{claim("new-tmp", "")}
			env.new.Spec.Volumes = []v1.Volume{{Name: "tmp", VolumeSource: v1.VolumeSource{
				Ephemeral: &v1.EphemeralVolumeSource{}}}}
		}, []string{runs, "new: new-tmp, , ClaimOfOtherPod; claim new-tmp, which belongs to something else"}},
		"it is not held": {func(env *environment) { env.new.Finalizers = nil },
			[]string{runs, "new: , , NotHeld; the finalizer that holds it"}},
		"the namespace does not ask": {func(env *environment) { env.facts.Namespaces = mode("") },
			[]string{runs, "new: , , NotAsked" + goes}},
		"nothing asks for this lock": {func(env *environment) {
			env.facts.Namespaces = mode(singlenode.SelectedValue)
			env.facts.Classes = explain.Found(map[string]*storagev1.StorageClass{"nfs": {}})
			env.facts.PVs = explain.Found(map[string]*v1.PersistentVolume{"pv-data": {}})
		}, []string{runs, "new: , , NotAsked" + goes}},
		"its StorageClass does not exist": {func(env *environment) {
			env.facts.Namespaces = mode(singlenode.SelectedValue)
			env.facts.Classes = explain.Found(map[string]*storagev1.StorageClass{"other": {}})
			env.facts.PVs = explain.Found(map[string]*v1.PersistentVolume{"pv-data": {}})
		}, []string{runs + " <- new", waits}},
		"its StorageClass asks": {func(env *environment) {
			env.facts.Namespaces = mode(singlenode.SelectedValue)
			env.facts.Classes = explain.Found(map[string]*storagev1.StorageClass{"nfs": {
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{singlenode.Label: "true"}}}})
			env.facts.PVs = explain.Found(map[string]*v1.PersistentVolume{"pv-data": {}})
		}, []string{runs + " <- new", waits}},
		"its PV is not known": {func(env *environment) {
			env.facts.Namespaces = mode(singlenode.SelectedValue)
			env.facts.Classes = explain.Found(map[string]*storagev1.StorageClass{"nfs": {}})
		}, []string{runs + " <- new", waits}},
		"many nodes may use it": {func(env *environment) {
			env.claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
		}, []string{runs, "new: , , NotAsked" + goes}},
		"the namespace could not be read": {func(env *environment) { explained.Forbid(&env.facts.Namespaces) },
			[]string{runs, "new: , , APIReadFailed; not known: not all could be read"}},
		"it is being deleted": {func(env *environment) { terminate(env.new) }, []string{runs}},
	} {
		t.Run(sentence, func(t *testing.T) {
			env := newEnvironment()
			c.change(env)
			if got := ListOf(env.read()).words(); !slices.Equal(got, c.want) {
				t.Errorf("it lists\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// fence proves that the node is kept from the volumes of the claim's driver.
func (env *environment) fence() {
	env.facts.Fences = explain.Found(map[string]*v1alpha1.NodeFence{"n1": {
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "f", Finalizers: []string{"csi-reclaimer.io/fence"}},
		Status: v1alpha1.NodeFenceStatus{Attempts: []v1alpha1.Attempt{{Number: 1}},
			Proof: &v1alpha1.Proof{Attempt: 1, Covers: v1alpha1.CoversVolumes, BootID: "boot-1",
				Volumes: []v1alpha1.CoveredVolumes{{Driver: "nfs.example.com", Volumes: v1alpha1.VolumesAll}}},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionFenced, Status: metav1.ConditionTrue}}}}})
	env.facts.PVs = explain.Found(map[string]*v1.PersistentVolume{"pv-data": {Spec: v1.PersistentVolumeSpec{
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "nfs.example.com"}}}}})
	env.node.Status.NodeInfo.BootID = "boot-1"
}

func TestListOrder(t *testing.T) {
	env := newEnvironment()
	env.down()
	older := env.add("older", "data")
	older.CreationTimestamp = ago(time.Hour)
	env.add("free", "b")
	ready := explained.Node("n2", v1.ConditionTrue)
	for _, name := range []string{"a", "b", "c"} {
		holder := pod("on-"+name, name)
		env.run(holder)
		holder.Spec.NodeName = "n2"
		env.more = append(env.more, holder)
		env.claims = append(env.claims, claim(name, "on-"+name))
	}
	env.add("waits", "c").CreationTimestamp = ago(10 * time.Minute)
	env.add("unheld", "a").Finalizers = nil
	env.facts.Nodes = explain.Found(map[string]*v1.Node{"n1": env.node, "n2": ready})
	var locks, gated []string
	l := ListOf(env.read())
	for _, lock := range l.Locks {
		locks = append(locks, lock.Claim)
	}
	for _, pod := range l.GatedPods {
		gated = append(gated, pod.Name)
	}
	if want := []string{"data", "c", "b", "a"}; !slices.Equal(locks, want) {
		t.Errorf("the locks are listed as %q, want %q: the node that is away first, then the longest wait", locks, want)
	}
	if want := []string{"unheld", "older", "waits", "free", "new"}; !slices.Equal(gated, want) {
		t.Errorf("the pods are listed as %q, want %q: first what nobody else mends, then by age", gated, want)
	}
	if w := l.Locks[0].Waiting; len(w) != 2 || w[0].Pod != "older" || w[1].Pod != "new" {
		t.Errorf("the pods that wait for it are %+v", w)
	}
}

func TestLockSince(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*environment)
		want   time.Duration
	}{
		"when it was written": {func(*environment) {}, time.Hour},
		"when the pod was scheduled, where its manager has written to the claim after that": {func(env *environment) {
			env.old.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue,
				LastTransitionTime: ago(90 * time.Minute)}}
		}, 90 * time.Minute},
		"when it was written, where that was before": {func(env *environment) {
			env.old.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue,
				LastTransitionTime: ago(30 * time.Minute)}}
		}, time.Hour},
		"not known": {func(env *environment) { env.claim.ManagedFields = nil }, 0},
	} {
		env := newEnvironment()
		c.change(env)
		since := ListOf(env.read()).Locks[0].Since
		if c.want == 0 && since != nil || c.want != 0 && (since == nil || now().Sub(since.Time) != c.want) {
			t.Errorf("%s: %v", sentence, since)
		}
	}
}

func TestListWithoutVolumeGuard(t *testing.T) {
	env := newEnvironment()
	if l := ListOf(env.read()); len(l.Warnings) > 0 || len(l.Unread) > 0 {
		t.Errorf("all is well, and it says %q, %q", l.Warnings, l.Unread)
	}
	env.away()
	env.old = nil
	l := ListOf(env.read())
	expect(t, strings.Join(l.Warnings, "\n"), "No lock is freed, and no pod",
		"no replica holds its Lease (none does with --leader-election=false)")
	if l := ListOf(Facts{Guards: env.facts.Guards}); len(l.Warnings) > 0 {
		t.Errorf("nothing waits for volume-guard, and it says %q", l.Warnings)
	}
}

func TestListWithFailedReads(t *testing.T) {
	env := newEnvironment()
	explained.Forbid(&env.facts.Namespaces)
	explained.Forbid(&env.facts.Classes)
	explained.Forbid(&env.facts.PVs)
	explained.Forbid(&env.facts.Nodes)
	explained.Forbid(&env.facts.Fences)
	l := ListOf(env.read())
	expect(t, strings.Join(l.Unread, "\n"), "Namespaces: forbidden. So it is not known which of them ask for locks.",
		"StorageClasses: forbidden", "PVs: forbidden", "Nodes: forbidden", "NodeFences: forbidden", "!Leases")
	if got := l.Locks[0].Reason; got != string(singlenode.ReasonHolderRuns) {
		t.Errorf("the node could not be read, and the lock is %s", got)
	}
	env.facts.Fences = explain.Failed[map[string]*v1alpha1.NodeFence](explain.ErrNoFencing)
	expect(t, strings.Join(ListOf(env.read()).Unread, "\n"), "!NodeFences")
}

func TestVolumesToRead(t *testing.T) {
	env := newEnvironment()
	if classes, pvs := env.read().toRead(); !classes || !slices.Equal(pvs, []string{"pv-data"}) {
		t.Errorf("a pod waits, and it reads %v %v", classes, pvs)
	}
	env.new = nil
	if classes, pvs := env.read().toRead(); classes || len(pvs) > 0 {
		t.Errorf("nobody waits, and it reads %v %v", classes, pvs)
	}
	terminate(env.old)
	if _, pvs := env.read().toRead(); !slices.Equal(pvs, []string{"pv-data"}) {
		t.Errorf("a fence may keep the volume from the node, and it reads %v", pvs)
	}
}

func TestRowsShowEngineDecisions(t *testing.T) {
	env := newEnvironment()
	env.down()
	l := ListOf(env.read())
	if lock := l.Locks[0]; !strings.HasPrefix(lock.Text, singlenode.ReasonHolderUnreachable.Sentence()) ||
		lock.HolderUID != "pod-old" || lock.ClaimUID != "claim-data" {
		t.Errorf("it lists %+v", lock)
	}
	if pod := l.GatedPods[0]; !strings.HasPrefix(pod.Text, singlenode.ReasonClaimInUse.Sentence()) ||
		pod.UID != "pod-new" || !pod.WaitsForLock() {
		t.Errorf("it lists %+v", pod)
	}
}
