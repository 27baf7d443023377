package objects

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var graceEnds = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// apiPod is a pod with a claim, in the state after a force deletion that its kubelet has carried out.
func apiPod(alter ...func(*v1.Pod)) *v1.Pod {
	zero := int64(0)
	o := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "db-0", UID: "uid-1", ResourceVersion: "10", Generation: 2,
			Finalizers: []string{RunningFinalizer}, DeletionTimestamp: &metav1.Time{Time: graceEnds},
			DeletionGracePeriodSeconds: &zero,
		},
		Spec: v1.PodSpec{
			NodeName:       "a",
			InitContainers: []v1.Container{{Name: "init"}},
			Containers:     []v1.Container{{Name: "one"}, {Name: "two"}},
			Volumes: []v1.Volume{
				{Name: "data", VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}}},
				{Name: "tmp", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
				{Name: "config", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
			},
		},
		Status: v1.PodStatus{
			Phase:                 v1.PodFailed,
			Conditions:            []v1.PodCondition{{Type: v1.ContainersReady, ObservedGeneration: 2, Reason: "PodFailed"}},
			InitContainerStatuses: []v1.ContainerStatus{over("init")},
			ContainerStatuses:     []v1.ContainerStatus{over("one"), over("two")},
		},
	}
	for _, a := range alter {
		a(o)
	}
	return o
}

func over(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}
}

func runningStatus(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

func waitingStatus(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}}
}

// lost is the status of a container that is unknown to the kubelet's runtime. before holds the fields that the kubelet
// copied from the earlier status.
func lost(before v1.ContainerStatus) v1.ContainerStatus {
	before.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: statusUnknown, ExitCode: 137}}
	return before
}

// ran is the last state of a container that ran, as a kubelet copies it.
func ran(reason string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason, ExitCode: 137}}
}

// condition sets the condition ContainersReady.
func condition(generation int64, reason string) func(*v1.Pod) {
	return func(o *v1.Pod) {
		o.Status.Conditions = []v1.PodCondition{
			{Type: v1.PodReady, ObservedGeneration: 2, Reason: podFailed},
			{Type: v1.ContainersReady, ObservedGeneration: generation, Reason: reason},
			{Type: v1.DisruptionTarget, ObservedGeneration: 2, Reason: podFailed},
		}
	}
}

// writes makes a field manager the writer of the phase.
func writes(manager, subresource, fields string) func(*v1.Pod) {
	return func(o *v1.Pod) {
		o.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource,
			FieldsV1: metav1.NewFieldsV1(fields),
		}}
	}
}

func statuses(all ...v1.ContainerStatus) func(*v1.Pod) {
	return func(o *v1.Pod) { o.Status.ContainerStatuses = all }
}

// because sets the reason of the status.
func because(reason string) func(*v1.Pod) { return func(o *v1.Pod) { o.Status.Reason = reason } }

// disrupted adds the condition DisruptionTarget.
func disrupted(reason string) func(*v1.Pod) {
	return func(o *v1.Pod) {
		o.Status.Conditions = append(o.Status.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Reason: reason})
	}
}

// crashed is the status of a container that has ended, and that its kubelet waited to restart when it ended the pod.
func crashed(now, last string) v1.ContainerStatus {
	c := lost(v1.ContainerStatus{RestartCount: 1, ContainerID: now, LastTerminationState: ran("Error")})
	c.LastTerminationState.Terminated.ContainerID = last
	return c
}

func second(c v1.ContainerStatus) func(*v1.Pod) {
	return func(o *v1.Pod) { o.Status.ContainerStatuses[1] = c }
}

func initStatus(c v1.ContainerStatus) func(*v1.Pod) {
	return func(o *v1.Pod) { o.Status.InitContainerStatuses = []v1.ContainerStatus{c} }
}

func phase(p v1.PodPhase) func(*v1.Pod) { return func(o *v1.Pod) { o.Status.Phase = p } }
func byKubelet(o *v1.Pod)               { writes("kubelet", "status", phaseField)(o) }
func noInit(o *v1.Pod)                  { o.Status.InitContainerStatuses = nil }
func notDeleted(o *v1.Pod)              { o.DeletionTimestamp = nil }

const phaseField = `{"f:status":{"f:phase":{}}}`

func TestFinished(t *testing.T) {
	withoutGenerations := func(o *v1.Pod) { o.Generation = 0 }
	lostOne, waitingAgain := lost(v1.ContainerStatus{}), waitingStatus("two")
	waitingAgain.LastTerminationState = ran(statusUnknown)
	neverStarted := statuses(over("one"), lostOne)
	byCollector := writes("kube-controller-manager", "status", phaseField)
	endedByKubelet := disrupted(v1.PodReasonTerminationByKubelet)
	noConditions := func(o *v1.Pod) { o.Status.Conditions = nil }
	debugged := func(o *v1.Pod) { o.Status.EphemeralContainerStatuses = []v1.ContainerStatus{runningStatus("debug")} }
	for _, c := range []struct {
		name string
		pod  *v1.Pod
		want bool
	}{
		{"the kubelet has seen the deletion", apiPod(), true},
		{"Succeeded", apiPod(phase(v1.PodSucceeded)), true},
		{"with grace", apiPod(func(o *v1.Pod) { *o.DeletionGracePeriodSeconds = 30 }), true},
		{"not deleted", apiPod(notDeleted), false},
		{"it runs", apiPod(phase(v1.PodRunning)), false},
		{"its state is not known", apiPod(phase(v1.PodUnknown)), false},
		{"the kubelet has not seen the deletion", apiPod(condition(1, podFailed)), false},
		{"the garbage collector has written the generation",
			apiPod(condition(1, ""), func(o *v1.Pod) { o.Status.ObservedGeneration = 2 }), false},
		{"it ended during init", apiPod(condition(2, "ContainersNotReady"),
			statuses(waitingStatus("one"), waitingStatus("two"))), true},
		{"a container runs", apiPod(second(runningStatus("two"))), false},
		{"a sidecar runs", apiPod(initStatus(runningStatus("init"))), false},
		{"an ephemeral container runs", apiPod(debugged), false},
		{"no statuses", apiPod(statuses()), false},
		{"a status is missing", apiPod(func(o *v1.Pod) { o.Status.ContainerStatuses = o.Status.ContainerStatuses[:1] }),
			false},
		{"no statuses, of no containers", apiPod(statuses(), func(o *v1.Pod) { o.Spec.Containers = nil }), false},

		{"before 1.34: failed", apiPod(withoutGenerations, condition(0, podFailed)), true},
		{"before 1.34: completed", apiPod(withoutGenerations, condition(0, podCompleted)), true},
		{"1.33: failed", apiPod(condition(0, podFailed)), true},
		{"before 1.34: not ready", apiPod(withoutGenerations, condition(0, "ContainersNotReady")), false},
		{"before 1.34: not ready, and the kubelet wrote the phase",
			apiPod(withoutGenerations, condition(0, "ContainersNotReady"), byKubelet), true},
		{"before 1.34: failed by the garbage collector", apiPod(withoutGenerations, condition(0, ""), byCollector), false},
		{"before 1.34: and then by the kubelet", apiPod(withoutGenerations, condition(0, podFailed), byCollector), true},
		{"before 1.34: the kubelet refused it after a restart",
			apiPod(withoutGenerations, byKubelet, statuses(), noInit, noConditions), false},
		{"it completed before the deletion", apiPod(condition(1, podCompleted), phase(v1.PodSucceeded)), true},
		{"it failed before the deletion", apiPod(condition(1, podFailed), byKubelet), true},
		{"it failed before the deletion, on Windows",
			apiPod(condition(1, podFailed), writes("kubelet.exe", "status", phaseField)), true},
		{"it failed before the deletion, on MicroK8s",
			apiPod(condition(1, podFailed), writes("kubelite", "status", phaseField)), false},
		{"it failed during init before the deletion", apiPod(condition(1, "ContainersNotReady"), byKubelet), true},
		{"it failed before the deletion, and the garbage collector wrote that", apiPod(condition(1, podFailed), byCollector),
			false},
		{"it completed before the deletion, and a sidecar runs",
			apiPod(condition(1, podCompleted), phase(v1.PodSucceeded), initStatus(runningStatus("init"))), false},
		{"it was refused by its kubelet before the deletion", apiPod(condition(1, podFailed), byKubelet, statuses(), noInit),
			false},
		{"the kubelet does not find a container that ran",
			apiPod(statuses(over("one"), lost(v1.ContainerStatus{LastTerminationState: ran(statusUnknown)}))), false},
		{"it has not said so yet", apiPod(second(waitingAgain)), false},
		{"it does not find a container to be restarted",
			apiPod(statuses(over("one"), lost(v1.ContainerStatus{LastTerminationState: ran("Error")}))), false},
		{"it does not find a restarted container", apiPod(statuses(over("one"), lost(v1.ContainerStatus{RestartCount: 1}))),
			false},
		{"it does not find a restarted container of a known ID",
			apiPod(statuses(over("one"), lost(v1.ContainerStatus{RestartCount: 1, ContainerID: "id"}))), false},
		{"it does not find a sidecar",
			apiPod(initStatus(lost(v1.ContainerStatus{LastTerminationState: ran(statusUnknown)}))), false},
		{"it never started a container", apiPod(statuses(over("one"), lostOne)), true},
		{"it refused the pod, and finds no container", apiPod(because("OutOfcpu"), statuses(lostOne, lostOne)), false},
		{"it refused the pod, and is about to say so",
			apiPod(because("OutOfcpu"), statuses(waitingStatus("one"), waitingStatus("two"))), false},
		{"it refused the pod, and ended each container", apiPod(because("OutOfcpu")), true},
		{"it ended the pod at its deadline, and one never started", apiPod(because("DeadlineExceeded"), neverStarted), true},
		{"it refused the pod, whose deadline passed", apiPod(because("DeadlineExceeded"), statuses(lostOne, lostOne), noInit),
			false},
		{"it shut down, and one never started", apiPod(because("Terminated"), neverStarted), true},
		{"it preempted the pod, and one never started", apiPod(because("Preempting"), neverStarted), true},
		{"it refused or evicted it, and one is missing", apiPod(because("Evicted"), neverStarted), false},
		{"it evicted it, and one never started", apiPod(because("Evicted"), endedByKubelet, neverStarted), true},
		{"it refused it, and another program evicted it",
			apiPod(because("Evicted"), disrupted("EvictionByEvictionAPI"), neverStarted), false},
		{"it refused it, and another condition has that reason",
			apiPod(because("Evicted"), neverStarted, func(o *v1.Pod) {
				o.Status.Conditions = append(o.Status.Conditions,
					v1.PodCondition{Type: v1.PodReady, Reason: v1.PodReasonTerminationByKubelet})
			}), false},
		{"it evicted it, and does not find a container that ran",
			apiPod(because("Evicted"), endedByKubelet, statuses(over("one"), lost(v1.ContainerStatus{RestartCount: 1}))), false},
		{"it refused it, and has evicted it before", apiPod(because("NodeAffinity"), endedByKubelet, neverStarted), false},
		{"it waited to restart a container", apiPod(statuses(over("one"), crashed("id", "id"))), true},
		{"it does not find the last run", apiPod(statuses(over("one"), crashed("id2", "id"))), false},
		{"it does not find a run before or now", apiPod(statuses(over("one"), crashed("", ""))), false},
	} {
		if got := PodOf(c.pod).Finished(); got != c.want {
			t.Errorf("%s: finished %t", c.name, got)
		}
	}
}

func TestOfSet(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		owner metav1.OwnerReference
		want  bool
	}{
		"its controller":     {metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Controller: &yes}, true},
		"of another group":   {metav1.OwnerReference{APIVersion: "a.com/v1", Kind: "StatefulSet", Controller: &yes}, true},
		"an owner alone":     {metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Controller: &no}, false},
		"another controller": {metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Controller: &yes}, false},
	} {
		if got := OfSet(apiPod(func(o *v1.Pod) { o.OwnerReferences = []metav1.OwnerReference{c.owner} })); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if OfSet(apiPod()) {
		t.Error("no owner")
	}
}

func TestHasClaims(t *testing.T) {
	volumes := apiPod().Spec.Volumes
	for i, want := range []bool{true, true, false} {
		if got := HasClaims(apiPod(func(o *v1.Pod) { o.Spec.Volumes = volumes[i : i+1] })); got != want {
			t.Errorf("volume %s: %t", volumes[i].Name, got)
		}
	}
}

func TestEnding(t *testing.T) {
	runs := statuses(runningStatus("one"), runningStatus("two"))
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"a container runs":                  {apiPod(runs), true},
		"each has ended":                    {apiPod(), false},
		"not deleted":                       {apiPod(runs, notDeleted), false},
		"its kubelet has not seen that":     {apiPod(runs, condition(1, "")), false},
		"its kubelet tracks no generations": {apiPod(runs, condition(0, ""), func(o *v1.Pod) { o.Generation = 0 }), false},
	} {
		if got := PodOf(c.pod).Ending(); got != c.want {
			t.Errorf("%s: ending %t", name, got)
		}
	}
}

func TestCompleted(t *testing.T) {
	kept := func(o *v1.Pod) { o.DeletionTimestamp, o.DeletionGracePeriodSeconds = nil, nil }
	done := phase(v1.PodSucceeded)
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"of a Job":                  {apiPod(kept, done), true},
		"failed":                    {apiPod(kept, byKubelet), true},
		"it is terminating":         {apiPod(done), false},
		"failed by another program": {apiPod(kept), false},
		"a container runs": {apiPod(kept, done,
			func(o *v1.Pod) { o.Status.ContainerStatuses[0] = runningStatus("one") }), false},
		"its kubelet refused it": {apiPod(kept, byKubelet, statuses()), false},
		"its kubelet does not find a container": {apiPod(kept, byKubelet,
			statuses(over("one"), lost(v1.ContainerStatus{RestartCount: 1}))), false},
		"it runs": {apiPod(kept, phase(v1.PodRunning)), false},
		"its kubelet evicted it before one started": {apiPod(kept, byKubelet, because("Evicted"),
			disrupted(v1.PodReasonTerminationByKubelet), statuses(over("one"), lost(v1.ContainerStatus{}))), true},
		"its kubelet evicted it in a crash loop": {apiPod(kept, byKubelet, because("Evicted"),
			disrupted(v1.PodReasonTerminationByKubelet), statuses(over("one"), crashed("id", "id"))), true},
	} {
		if got := PodOf(c.pod).Completed(); got != c.want {
			t.Errorf("%s: completed %t", name, got)
		}
	}
	if (Pod{Succeeded: true, Reported: true}).Completed() {
		t.Error("a phase that is not final")
	}
}

// The phase of a held pod is no evidence of its end, because the pod garbage collector writes it while containers run.
func TestUsesVolumes(t *testing.T) {
	kept := func(o *v1.Pod) { o.DeletionTimestamp, o.DeletionGracePeriodSeconds = nil, nil }
	unheld := func(o *v1.Pod) { o.Finalizers = nil }
	runs := func(o *v1.Pod) { o.Status.Phase = v1.PodRunning }
	unbound := func(o *v1.Pod) { o.Spec.NodeName = "" }
	withGrace := func(o *v1.Pod) { *o.DeletionGracePeriodSeconds = 1 }
	for name, c := range map[string]struct {
		pod            *v1.Pod
		uses, shutDown bool
	}{
		"held, failed by the garbage collector, without grace": {apiPod(condition(1, "")), true, false},
		"held, ended by its kubelet, not released":             {apiPod(), true, false},
		"held, failed by another program":                      {apiPod(kept), true, false},
		"held, completed":                                      {apiPod(kept, byKubelet), false, false},
		"held, runs":                                           {apiPod(kept, runs), true, false},
		"held, without a node":                                 {apiPod(kept, runs, unbound), false, false},
		"failed, without grace":                                {apiPod(unheld), false, true},
		"terminating, with grace":                              {apiPod(unheld, runs, withGrace), true, false},
		"without grace":                                        {apiPod(unheld, runs), true, true},
	} {
		if p := PodOf(c.pod); p.UsesVolumes() != c.uses || p.ShutDown() != c.shutDown {
			t.Errorf("%s: uses its volumes %t, shut down %t", name, p.UsesVolumes(), p.ShutDown())
		}
	}
	if (Pod{GraceZero: true}).ShutDown() {
		t.Error("a pod that is not terminating is shut down")
	}
}

func TestPhaseByKubelet(t *testing.T) {
	for name, c := range map[string]struct {
		alter func(*v1.Pod)
		want  bool
	}{
		"the kubelet":               {writes("kubelet", "status", phaseField), true},
		"another program":           {writes("kubelet-like", "status", phaseField), false},
		"not by the subresource":    {writes("kubelet", "", phaseField), false},
		"other fields":              {writes("kubelet", "status", `{"f:status":{"f:conditions":{}}}`), false},
		"a phase of something else": {writes("kubelet", "status", `{"f:status":{"f:other":{"f:phase":{}}}}`), false},
		"no JSON":                   {writes("kubelet", "status", `{"f:phase"`), false},
		"applied": {func(o *v1.Pod) {
			writes("kubelet", "status", phaseField)(o)
			o.ManagedFields[0].Operation = metav1.ManagedFieldsOperationApply
		}, false},
		"before it ended": {func(o *v1.Pod) {
			writes("kubelet", "status", phaseField)(o)
			o.Status.Phase = v1.PodRunning
		}, false},
		"nothing": {func(*v1.Pod) {}, false},
		"no fields": {func(o *v1.Pod) {
			writes("kubelet", "status", phaseField)(o)
			o.ManagedFields[0].FieldsV1 = nil
		}, false},
	} {
		if got := PodOf(apiPod(c.alter)).PhaseByKubelet; got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestPodOf(t *testing.T) {
	p := PodOf(apiPod())
	if p.Namespace != "ns" || p.Name != "db-0" || p.UID != "uid-1" || p.ResourceVersion != "10" || p.Node != "a" {
		t.Errorf("%+v", p)
	}
	others := PodOf(apiPod(func(o *v1.Pod) { o.Finalizers = append([]string{"example.com/keep"}, o.Finalizers...) }))
	if len(p.Finalizers) > 0 || !slices.Equal(others.Finalizers, []string{"example.com/keep"}) {
		t.Errorf("finalizers %q, %q", p.Finalizers, others.Finalizers)
	}
	if got := strings.Join(p.Claims, " "); got != "data-db-0 db-0-tmp" {
		t.Errorf("claims %q", got)
	}
	if !p.Held || !p.Terminating || !p.GraceZero || !p.GraceEnds.Equal(graceEnds) || p.Mirror {
		t.Errorf("%+v", p)
	}
	again := runningStatus("two")
	again.RestartCount = 1
	scheduled := func(status v1.ConditionStatus, reason string) func(*v1.Pod) {
		return func(o *v1.Pod) {
			o.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: status, Reason: reason},
				{Type: v1.PodInitialized, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable}}
		}
	}
	for name, c := range map[string]struct {
		alter func(*v1.Pod)
		is    func(Pod) bool
	}{
		"gates": {func(o *v1.Pod) {
			o.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "queue.example.com/x"}, {Name: VolumeGate}}
		}, func(p Pod) bool { return p.Gated && slices.Equal(p.OtherGates, []string{"queue.example.com/x"}) }},
		"of a ReplicaSet": {func(o *v1.Pod) {
			yes := true
			o.OwnerReferences = []metav1.OwnerReference{{Kind: "Other"}, {Kind: "ReplicaSet", Controller: &yes}}
		}, func(p Pod) bool { return p.OwnerKind == "ReplicaSet" }},
		"the gate of a queue": {func(o *v1.Pod) {
			o.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "queue.example.com/x"}}
		}, func(p Pod) bool { return !p.Gated }},
		"a claim in two volumes": {func(o *v1.Pod) { o.Spec.Volumes = append(o.Spec.Volumes, o.Spec.Volumes[0]) },
			func(p Pod) bool { return slices.Equal(p.Claims, []string{"data-db-0", "db-0-tmp"}) }},
		"a container that runs again": {statuses(over("one"), again), func(p Pod) bool { return p.Reported }},
		"no gates":                    {func(*v1.Pod) {}, func(p Pod) bool { return !p.Gated && p.OtherGates == nil }},
		"no node fits it":             {scheduled("False", "Unschedulable"), func(p Pod) bool { return p.Unschedulable }},
		"gated":                       {scheduled("False", "SchedulingGated"), func(p Pod) bool { return !p.Unschedulable }},
		"scheduled after a delay":     {scheduled("True", "Unschedulable"), func(p Pod) bool { return !p.Unschedulable }},
		"other finalizer": {func(o *v1.Pod) { o.Finalizers = []string{"other"} },
			func(p Pod) bool { return !p.Held }},
		"with grace": {func(o *v1.Pod) { *o.DeletionGracePeriodSeconds = 1 },
			func(p Pod) bool { return !p.GraceZero }},
		"no grace given": {func(o *v1.Pod) { o.DeletionGracePeriodSeconds = nil },
			func(p Pod) bool { return !p.GraceZero }},
		"not deleted": {notDeleted,
			func(p Pod) bool { return !p.Terminating && !p.GraceZero && p.GraceEnds.IsZero() }},
		"a mirror pod": {func(o *v1.Pod) { o.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} },
			func(p Pod) bool { return p.Mirror }},
		"confirmed": {func(o *v1.Pod) { o.Annotations = map[string]string{ConfirmAnnotation: "uid-1"} },
			func(p Pod) bool { return p.Confirmation == ConfirmedThis }},
		"confirmed for another": {func(o *v1.Pod) { o.Annotations = map[string]string{ConfirmAnnotation: "uid-2"} },
			func(p Pod) bool { return p.Confirmation == ConfirmedOther }},
		"confirmed for nothing": {func(o *v1.Pod) { o.UID, o.Annotations = "", map[string]string{ConfirmAnnotation: ""} },
			func(p Pod) bool { return p.Confirmation == ConfirmedOther }},
		"not confirmed": {func(*v1.Pod) {}, func(p Pod) bool { return p.Confirmation == NotConfirmed }},
	} {
		if p := PodOf(apiPod(c.alter)); !c.is(p) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// FuzzPhaseByKubelet compares the result from managedFields with a decoder that does not know the format.
func FuzzPhaseByKubelet(f *testing.F) {
	f.Add([]byte(phaseField))
	f.Add([]byte(`{"f:status":{"f:phase":{},"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{}}}}}`))
	f.Add([]byte(`{"f:status":null,"f:phase":{}}`))
	f.Add([]byte(`{"f:status":{"\u0066:phase":{}}}`))
	f.Fuzz(func(t *testing.T, fields []byte) {
		if !hasPhase(fields) {
			return
		}
		var set map[string]any
		if err := json.Unmarshal(fields, &set); err != nil {
			t.Fatalf("%q is no JSON: %v", fields, err)
		}
		status, _ := set["f:status"].(map[string]any)
		if _, has := status["f:phase"]; !has {
			t.Fatalf("%q has no phase", fields)
		}
	})
}

// FuzzPod reads any pod. A pod that was not deleted has not finished.
func FuzzPod(f *testing.F) {
	seed, err := json.Marshal(apiPod())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, text []byte) {
		var o v1.Pod
		if json.Unmarshal(text, &o) != nil {
			return
		}
		p := PodOf(&o)
		if p.UID != o.UID || (p.Finished() || p.ShutDown()) && o.DeletionTimestamp == nil {
			t.Fatalf("%+v of %s", p, text)
		}
	})
}
