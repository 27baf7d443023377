package statefulset

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

// machine makes facts and sessions of the engine from a state. It is not safe for concurrent use: each worker has its
// own.
type machine struct {
	*World
	now     time.Time
	tracker *statefulset.Tracker
	// Objects as the engine reads them, each of which is made once.
	sets   map[setKey]statefulset.Set
	pods   map[podKey]statefulset.Pod
	claims map[claimKey]statefulset.Claim
}

type (
	setKey struct {
		slot int
		set
	}
	podKey struct {
		name, n int
		pod
	}
	claimKey struct {
		n int
		claim
	}
)

func newMachine(w *World) *machine {
	return &machine{World: w, now: clock.Now, tracker: statefulset.NewTracker(),
		sets: map[setKey]statefulset.Set{},
		pods: map[podKey]statefulset.Pod{}, claims: map[claimKey]statefulset.Claim{}}
}

// setName is the name of a set, and template the name of its only template, by the number of the name. Colliding sets
// give their claims one name.
func (w *World) setName(name int) string { return []string{"db", "replica-db"}[name] }

func (w *World) template(name int) string {
	if w.Collide {
		return []string{"data-replica", "data"}[name]
	}
	return "data"
}

func (w *World) podName(name, n int) string { return w.setName(name) + "-" + strconv.Itoa(n) }

func (w *World) claimName(n int) string {
	return w.template(0) + "-" + w.podName(0, n)
}

// UIDs contain all numbers that identify the object.
func setUID(slot int) types.UID { return types.UID("set" + strconv.Itoa(slot)) }

func podUID(name, n int, uid uint8) types.UID {
	if uid == 0 {
		return ""
	}
	return types.UID("pod-" + strconv.Itoa(name) + "-" + strconv.Itoa(n) + "-" + strconv.Itoa(int(uid)))
}

func claimUID(n int, uid uint8) types.UID {
	if uid == 0 {
		return ""
	}
	return types.UID("claim-" + strconv.Itoa(n) + "-" + strconv.Itoa(int(uid)))
}

const foreignUID = "foreign"

// set returns a set as the engine reads it, the zero value if it does not exist.
func (m *machine) set(slot int, s set) statefulset.Set {
	if !s.exists {
		return statefulset.Set{}
	}
	return memory.Once(m.sets, setKey{slot, s}, func() statefulset.Set { return statefulset.SetOf(m.setObject(slot, s)) })
}

// setObject returns a set as the API server has it.
func (m *machine) setObject(slot int, s set) *appsv1.StatefulSet {
	name, replicas := m.name(slot), int32(s.replicas)
	o := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: m.setName(name), UID: setUID(slot), ResourceVersion: "1",
			Annotations: map[string]string{}},
		Spec: appsv1.StatefulSetSpec{Replicas: &replicas, VolumeClaimTemplates: []v1.PersistentVolumeClaim{
			{ObjectMeta: metav1.ObjectMeta{Name: m.template(name)}}}},
	}
	if s.start > 0 {
		o.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: int32(s.start)}
	}
	if m.Parallel {
		o.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	}
	if s.terminating {
		o.DeletionTimestamp = &metav1.Time{Time: m.now}
	}
	words := func(deletes bool) appsv1.PersistentVolumeClaimRetentionPolicyType {
		if deletes {
			return appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		}
		return appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	}
	if s.field != none {
		o.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: words(s.field.deleted()), WhenScaled: words(s.field.scaled())}
	}
	switch {
	case s.annotation == invalid:
		o.Annotations[statefulset.PolicyAnnotation] = `{"whenScaled":"delete"}`
	case s.annotation != none:
		o.Annotations[statefulset.PolicyAnnotation] = `{"whenDeleted":"` + string(words(s.annotation.deleted())) +
			`","whenScaled":"` + string(words(s.annotation.scaled())) + `"}`
	}
	if s.woken {
		o.Annotations[statefulset.WokenAnnotation] = m.now.UTC().Format(time.RFC3339)
	}
	return o
}

// pod returns a pod as the engine reads it, the zero value if it does not exist.
func (m *machine) pod(name, n int, p pod) statefulset.Pod {
	if p.uid == 0 {
		return statefulset.Pod{}
	}
	return memory.Once(m.pods, podKey{name, n, p},
		func() statefulset.Pod { return statefulset.PodOf(m.podObject(name, n, p)) })
}

func (m *machine) podObject(name, n int, p pod) *v1.Pod {
	o := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: m.podName(name, n), UID: podUID(name, n, p.uid),
			ResourceVersion: "1"},
		Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: m.claimName(n)}}}}},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
	if p.owner > 0 {
		isController := true
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet",
			Name: m.setName(name), UID: setUID(int(p.owner - 1)), Controller: &isController}}
	}
	if p.terminating {
		o.DeletionTimestamp = &metav1.Time{Time: m.now}
	}
	if p.bound {
		o.Spec.NodeName = "a"
	}
	if p.ready {
		o.Status.Phase = v1.PodRunning
		o.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	}
	return o
}

// claim returns a claim as the engine reads it, the zero value if it does not exist.
func (m *machine) claim(n int, c claim) statefulset.Claim {
	if c.uid == 0 {
		return statefulset.Claim{}
	}
	return memory.Once(m.claims, claimKey{n, c},
		func() statefulset.Claim { return statefulset.ClaimOf(m.claimObject(n, c)) })
}

func (m *machine) claimObject(n int, c claim) *v1.PersistentVolumeClaim {
	o := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: m.claimName(n),
		UID: claimUID(n, c.uid), ResourceVersion: "1", Finalizers: []string{"kubernetes.io/pvc-protection"},
		Annotations: map[string]string{}}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
	if c.terminating {
		o.DeletionTimestamp = &metav1.Time{Time: m.now}
	}
	if c.hold {
		o.Annotations[statefulset.HoldAnnotation] = ""
	}
	if c.mark.set > 0 {
		slot := int(c.mark.set - 1)
		when := statefulset.Retain
		if c.mark.deletes {
			when = statefulset.Delete
		}
		o.Annotations[statefulset.MarkAnnotation] = statefulset.Mark{
			Set: m.setName(m.name(slot)), UID: setUID(slot), Ordinal: n,
			WhenScaled: when, Claim: claimUID(n, c.mark.of)}.String()
	}
	add := func(kind ref, version, resource, name string, uid types.UID) {
		if kind == noRef {
			return
		}
		owner := metav1.OwnerReference{APIVersion: version, Kind: resource, Name: name, UID: uid}
		if kind == controller {
			is := true
			owner.Controller = &is
		}
		o.OwnerReferences = append(o.OwnerReferences, owner)
	}
	for slot, kind := range c.sets {
		add(kind, "apps/v1", "StatefulSet", m.setName(m.name(slot)), setUID(slot))
	}
	for _, r := range c.pods {
		add(r.kind, "v1", "Pod", m.podName(int(r.name), n), podUID(int(r.name), n, r.uid))
	}
	add(c.foreign, "example.com/v1", "Database", "db", foreignUID)
	return o
}

// patched returns a claim with the mark and the owners of a patch.
func (c claim) patched(m statefulset.Mark, owners []metav1.OwnerReference) claim {
	c.mark, c.sets, c.pods, c.foreign = mark{}, [maxSets]ref{}, [2]podRef{}, noRef
	if m != (statefulset.Mark{}) {
		c.mark = mark{set: uint8(numberIn(string(m.UID), "set") + 1), deletes: m.WhenScaled == statefulset.Delete,
			of: uint8(numberIn(string(m.Claim), fmt.Sprintf("claim-%d-", m.Ordinal)))}
	}
	for _, o := range owners {
		kind := plain
		if o.Controller != nil && *o.Controller {
			kind = controller
		}
		switch o.Kind {
		case "StatefulSet":
			c.sets[numberIn(string(o.UID), "set")] = kind
		case "Pod":
			part := strings.Split(string(o.UID), "-")
			c.pods = withPod(c.pods, podRef{kind, uint8(numberIn(part[1], "")), uint8(numberIn(part[3], ""))})
		default:
			c.foreign = kind
		}
	}
	return c
}

// withPod adds a reference.
func withPod(refs [2]podRef, r podRef) [2]podRef {
	for i := range refs {
		if refs[i].kind == noRef {
			refs[i] = r
			return refs
		}
	}
	panic("the model has room for two references to pods")
}

func numberIn(text, prefix string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(text, prefix))
	if err != nil {
		panic(err)
	}
	return n
}

// additions are the texts of Sight.Added, by their hashes.
var additions sync.Map

func hashOf(text string) (sum [4]uint8) {
	if text == "" {
		return sum
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	copy(sum[:], h.Sum(nil))
	additions.Store(sum, text)
	return sum
}

func textOf(sum [4]uint8) string {
	text, _ := additions.Load(sum)
	s, _ := text.(string)
	return s
}
