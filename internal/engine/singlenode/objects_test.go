package singlenode

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

func pvcVolume(name, claim string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

func ephemeralVolume(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}
}

func TestPodOf(t *testing.T) {
	o := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-1", UID: "uid-1",
			Finalizers: []string{objects.RunningFinalizer}},
		Spec: v1.PodSpec{
			SchedulingGates: []v1.PodSchedulingGate{{Name: "example.org/quota"}, {Name: Gate}},
			Volumes: []v1.Volume{
				pvcVolume("one", "data"), ephemeralVolume("tmp"), pvcVolume("two", "data"), pvcVolume("three", "web-1-tmp"),
				{Name: "config"}, pvcVolume("four", "assets"),
			},
		},
	}
	p := objects.PodOf(o)
	if !p.Gated || !p.Held || p.Namespace != "ns" || p.Name != "web-1" || p.UID != "uid-1" {
		t.Errorf("%+v", p)
	}
	if want := []string{"assets", "data", "web-1-tmp"}; !slices.Equal(p.Claims, want) {
		t.Errorf("claims %q, want %q", p.Claims, want)
	}
	if want := []string{"web-1-tmp"}; !slices.Equal(p.Ephemeral, want) {
		t.Errorf("ephemeral %q, want %q", p.Ephemeral, want)
	}
	o.Spec.SchedulingGates = o.Spec.SchedulingGates[:1]
	o.Spec.Volumes = nil
	if p := objects.PodOf(o); p.Gated || p.Claims != nil || p.Ephemeral != nil {
		t.Errorf("%+v", p)
	}
}

func TestModeOf(t *testing.T) {
	for value, want := range map[string]Mode{
		"selected": ModeSelected, "all": ModeAll, "true": ModeOff, "All": ModeOff, "": ModeOff, "all ": ModeOff,
	} {
		if got := ModeOf(map[string]string{Label: value}); got != want {
			t.Errorf("%q: %d", value, got)
		}
	}
	if got := ModeOf(nil); got != ModeOff {
		t.Errorf("no label: %d", got)
	}
	if got := ModeOf(map[string]string{podsafety.NamespaceLabel: "all"}); got != ModeOff {
		t.Errorf("another label: %d", got)
	}
}

func TestParseLock(t *testing.T) {
	for value, want := range map[string]Lock{
		"uid-1 web-1":    {UID: "uid-1", Name: "web-1"},
		"uid-1 web.1":    {UID: "uid-1", Name: "web.1"},
		"":               {},
		" ":              {UID: " "},
		"uid-1":          {UID: "uid-1"},
		"uid-1 ":         {UID: "uid-1 "},
		" web-1":         {UID: " web-1"},
		"uid-1  web-1":   {UID: "uid-1  web-1"},
		"uid-1 web-1 ":   {UID: "uid-1 web-1 "},
		"uid-1 web-1\n":  {UID: "uid-1 web-1\n"},
		"uid-1 web-1 x":  {UID: "uid-1 web-1 x"},
		"uid-1\tweb-1":   {UID: "uid-1\tweb-1"},
		"uid-1 ns/web-1": {UID: "uid-1 ns/web-1"},
		"uid-1 ..":       {UID: "uid-1 .."},
		"uid-1 Web":      {UID: "uid-1 Web"},
		"uid-1 web%2f1":  {UID: "uid-1 web%2f1"},
	} {
		if got := ParseLock(value); got != want {
			t.Errorf("%q: %+v, want %+v", value, got, want)
		}
	}
}

// FuzzParseLock checks that every annotation value parses to a lock with a valid pod name or to a lock without a name,
// and that each written lock parses back.
func FuzzParseLock(f *testing.F) {
	for _, seed := range []string{"uid-1 web-1", "", " ", "a b c", "\x00 \xff", strings.Repeat("a", 300) + " b",
		"a ../b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		l := ParseLock(value)
		switch {
		case l.Name == "" && string(l.UID) != value:
			t.Errorf("%q: %+v", value, l)
		case l.Name != "" && l.String() != value:
			t.Errorf("%q is written as %q", value, l.String())
		case strings.ContainsAny(l.Name, "/% \n?#\\") || len(l.Name) > 253:
			t.Errorf("%q: name %q", value, l.Name)
		}
	})
}

func TestClaimOf(t *testing.T) {
	yes := true
	o := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "data", UID: "uid", ResourceVersion: "7",
		Finalizers:  []string{"kubernetes.io/pvc-protection", Finalizer},
		Annotations: map[string]string{LockAnnotation: "uid-1 web-1", "other": "x"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-1", UID: "uid-1",
			Controller: &yes}},
	}}
	want := Claim{Namespace: "ns", Name: "data", UID: "uid", ResourceVersion: "7", Lock: own(), Locked: true, Kept: true,
		Owner: "uid-1"}
	if got := ClaimOf(o); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	o.DeletionTimestamp, o.Finalizers, o.Annotations = &metav1.Time{Time: now()}, o.Finalizers[:1], nil
	want.Terminating, want.Kept, want.Locked, want.Lock = true, false, false, Lock{}
	if got := ClaimOf(o); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	o.Annotations = map[string]string{LockAnnotation: ""}
	if got := ClaimOf(o); !got.Locked || got.Lock != (Lock{}) {
		t.Errorf("an empty lock: %+v", got)
	}
	for name, alter := range map[string]func(*metav1.OwnerReference){
		"it does not control it": func(r *metav1.OwnerReference) { r.Controller = nil },
		"it is no pod":           func(r *metav1.OwnerReference) { r.Kind = "StatefulSet" },
		"of another group":       func(r *metav1.OwnerReference) { r.APIVersion = "example.org/v1" },
	} {
		c := o.DeepCopy()
		alter(&c.OwnerReferences[0])
		if got := ClaimOf(c); got.Owner != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestUnasked(t *testing.T) {
	seen := Asking{Namespace: ModeSelected, ClassSeen: true, PVSeen: true}
	with := func(alter func(*Asking)) Asking {
		a := seen
		alter(&a)
		return a
	}
	for name, c := range map[string]struct {
		asking Asking
		want   bool
	}{
		"nothing is known":            {Asking{}, false},
		"the namespace is not known":  {with(func(a *Asking) { a.Namespace = ModeUnknown }), false},
		"the namespace does not ask":  {Asking{Namespace: ModeOff}, true},
		"the claim does nevertheless": {Asking{Namespace: ModeOff, Claim: true}, true},
		"the namespace asks for all":  {with(func(a *Asking) { a.Namespace = ModeAll }), false},
		"nothing is selected":         {seen, true},
		"the claim":                   {with(func(a *Asking) { a.Claim = true }), false},
		"the class":                   {with(func(a *Asking) { a.Class = true }), false},
		"the PV":                      {with(func(a *Asking) { a.PV = true }), false},
		"the class was not seen":      {with(func(a *Asking) { a.ClassSeen = false }), false},
		"it is not bound":             {with(func(a *Asking) { a.PVSeen = false }), false},
		"many nodes":                  {Asking{Namespace: ModeAll, Shared: true}, true},
		"many nodes, and selected":    {with(func(a *Asking) { a.Claim, a.Shared = true, true }), true},
	} {
		if got := c.asking.Unasked(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAsks(t *testing.T) {
	for want, labels := range map[bool]map[string]string{true: {Label: "true"}, false: {Label: "false", "app": "true"}} {
		if Asks(labels) != want || Asks(nil) {
			t.Errorf("%v, want %t", labels, want)
		}
	}
}

func TestHeldBy(t *testing.T) {
	for name, c := range map[string]struct {
		claim Claim
		pod   Pod
		want  bool
	}{
		"the pod's":     {lockedBy(claim("data"), own()), gatedPod(), true},
		"another's":     {lockedBy(claim("data"), other()), gatedPod(), false},
		"of no user":    {claim("data"), gatedPod(), false},
		"no annotation": {Claim{Lock: own()}, gatedPod(), false},
		"another name":  {lockedBy(claim("data"), Lock{UID: "uid-1", Name: "web-0"}), gatedPod(), false},
		"another UID":   {lockedBy(claim("data"), Lock{UID: "uid-0", Name: "web-1"}), gatedPod(), false},
		"of no pod":     {lockedBy(claim("data"), Lock{}), Pod{}, false},
	} {
		if got := c.claim.heldBy(c.pod); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestUnmountGrace(t *testing.T) {
	if got := (Rules{}).unmountGrace(); got != podsafety.DefaultUnmountGrace {
		t.Errorf("not set: %s", got)
	}
	if got := (Rules{UnmountGrace: time.Minute}).unmountGrace(); got != time.Minute {
		t.Errorf("set: %s", got)
	}
}

func TestTrackerRecordsCompletion(t *testing.T) {
	tracker := NewTracker()
	done, runs := runningPod(), runningPod()
	succeeded(&done)
	if got := tracker.Saw(runs, objects.NodeReady, ago(time.Hour)); !got.IsZero() || len(tracker.Ended) != 0 {
		t.Errorf("it runs: %s, %v", got, tracker.Ended)
	}
	if got := tracker.Saw(done, objects.NodeReady, ago(time.Minute)); got != ago(time.Minute) {
		t.Errorf("completed: %s", got)
	}
	if got := tracker.Saw(done, objects.NodeReady, now()); got != ago(time.Minute) {
		t.Errorf("completed, again: %s", got)
	}
	if got := tracker.Saw(runs, objects.NodeReady, now()); !got.IsZero() {
		t.Errorf("an older event: %s", got)
	}
	if got := tracker.Saw(done, objects.NodeNotReady, now()); !got.IsZero() {
		t.Errorf("its node is away: %s", got)
	}
	if got := tracker.Saw(done, objects.NodeReady, now()); got != now() {
		t.Errorf("its node is back: %s", got)
	}
	next := done
	next.UID = types.UID("uid-2")
	if got := tracker.Saw(next, objects.NodeReady, now()); got != now() {
		t.Errorf("another of the name: %s", got)
	}
	tracker.Forget(done.UID)
	if _, known := tracker.Ended[done.UID]; known || len(tracker.Ended) != 1 {
		t.Errorf("%v", tracker.Ended)
	}
}

// TestTrackerPrunesOldRecords covers pods whose end no event reports: a live read has shown them after their deletion.
func TestTrackerPrunesOldRecords(t *testing.T) {
	tracker, rules := NewTracker(), Rules{UnmountGrace: 2 * time.Hour}
	begun := ago(rules.UnmountGrace + keepFor)
	done := runningPod()
	succeeded(&done)
	tracker.Saw(done, objects.NodeReady, begun)
	tracker.SawEnd(done.UID, begun)
	if tracker.Prune(rules, now()); len(tracker.Ended) != 1 || len(tracker.Ends) != 1 {
		t.Errorf("%v, %v", tracker.Ended, tracker.Ends)
	}
	if tracker.Prune(rules, now().Add(time.Second)); len(tracker.Ended) != 0 || len(tracker.Ends) != 0 {
		t.Errorf("old records are kept: %v, %v", tracker.Ended, tracker.Ends)
	}
}

func TestTrackerRecordsEndOfHolder(t *testing.T) {
	tracker := NewTracker()
	tracker.SawEnd("uid-1", now())
	tracker.Forget("uid-1")
	for _, c := range []struct {
		pod   types.UID
		after time.Duration
		want  bool
	}{{"uid-1", 0, true}, {"uid-1", session.LiveFor, true}, {"uid-1", session.LiveFor + 1, false}, {"uid-2", 0, false}} {
		if got := tracker.Gone(c.pod, now().Add(c.after)); got != c.want {
			t.Errorf("pod %s is known to be gone after %s: %t", c.pod, c.after, got)
		}
	}
	if tracker.Gone("uid-2", time.Time{}) {
		t.Error("a pod that was not seen counts as gone")
	}
	if tracker.ShowedLock("uid-1"); tracker.Gone("uid-1", now()) {
		t.Error("an end counts after a change of the claim")
	}
}

func TestTrackerExpectsRemovedGate(t *testing.T) {
	tracker, pod := NewTracker(), gatedPod()
	if got := tracker.Expected(pod); !got.Gated {
		t.Error("a pod with its gate is not expected")
	}
	tracker.RemovedGate(pod.UID)
	other := pod
	other.UID = "uid-2"
	for what, c := range map[string]struct {
		do   func()
		want bool // of the pod: it has its gate
	}{
		"1: the gate was removed":                  {func() {}, false},
		"2: the removal of another gate was shown": {func() { tracker.ShowedNoGate(other.UID) }, false},
	} {
		if c.do(); tracker.Expected(pod).Gated != c.want || !tracker.Expected(other).Gated {
			t.Errorf("%s: %+v", what, tracker.Ungated)
		}
	}
	without := other
	without.Gated = false
	if tracker.Expected(without).Gated {
		t.Error("a pod without a gate has one")
	}
	tracker.ShowedNoGate(pod.UID)
	tracker.RemovedGate(other.UID)
	if tracker.Forget(other.UID); len(tracker.Ungated) > 0 {
		t.Errorf("%v is left", tracker.Ungated)
	}
}
