package objects

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestRefused(t *testing.T) {
	t.Parallel()
	absent := func(reason string) func(*v1.Pod) {
		return func(o *v1.Pod) {
			because(reason)(o)
			byKubelet(o)
			statuses(lost(v1.ContainerStatus{}), waitingStatus("two"))(o)
			o.Status.InitContainerStatuses = nil
		}
	}
	for name, c := range map[string]struct {
		pod              *v1.Pod
		refusal, refused bool
	}{
		"and no container found": {apiPod(absent("NodePorts")), true, true},
		"and its volumes may be mounted": {
			apiPod(absent("NodePorts"), statuses(waitingStatus("one"), waitingStatus("two"))), true, false},
		"and an init container is not found": {apiPod(absent("NodePorts"),
			statuses(waitingStatus("one"), waitingStatus("two")), initStatus(lost(v1.ContainerStatus{}))), true, true},
		"and its deadline passed": {apiPod(absent("DeadlineExceeded")), true, true},
		"and nothing reported":    {apiPod(absent("NodePorts"), statuses()), true, false},
		"and one is missing":      {apiPod(absent("NodePorts"), statuses(lost(v1.ContainerStatus{}))), true, false},
		"of a pod without any": {
			apiPod(absent("NodePorts"), statuses(), func(o *v1.Pod) { o.Spec.Containers = nil }), true, false},
		"for no reason":      {apiPod(absent("")), false, false},
		"in a shutdown":      {apiPod(absent("Terminated")), false, false},
		"by another program": {apiPod(absent("NodePorts"), func(o *v1.Pod) { o.ManagedFields = nil }), false, false},
		"and Succeeded":      {apiPod(absent("NodePorts"), phase(v1.PodSucceeded)), false, false},
		"and Pending":        {apiPod(absent("NodePorts"), phase(v1.PodPending)), false, false},
		"and one runs":       {apiPod(absent("NodePorts"), second(runningStatus("two"))), false, false},
		"and one has ended":  {apiPod(absent("NodePorts"), second(over("two"))), false, false},
		"and one ran": {
			apiPod(absent("NodePorts"), second(lost(v1.ContainerStatus{LastTerminationState: ran("Error")}))), false, false},
		"and one ran, it seems": {
			apiPod(absent("NodePorts"), second(lost(v1.ContainerStatus{RestartCount: 1}))), false, false},
		"and one is known": {
			apiPod(absent("NodePorts"), second(lost(v1.ContainerStatus{ContainerID: "id"}))), false, false},
		"and an init container ran": {apiPod(absent("NodePorts"), initStatus(over("init"))), false, false},
	} {
		if p := PodOf(c.pod); p.Refusal != c.refusal || p.Refused != c.refused {
			t.Errorf("%s: refusal %t, refused %t", name, p.Refusal, p.Refused)
		}
	}
}

func TestUnstarted(t *testing.T) {
	t.Parallel()
	for p, want := range map[v1.PodPhase]bool{"": true, v1.PodPending: true, v1.PodFailed: true, v1.PodRunning: false,
		v1.PodSucceeded: false, v1.PodUnknown: false} {
		if got := PodOf(&v1.Pod{Status: v1.PodStatus{Phase: p}}).Unstarted; got != want {
			t.Errorf("%q: %t", p, got)
		}
	}
}
