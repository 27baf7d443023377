package podsafety

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestHoldOf(t *testing.T) {
	claim := v1.Volume{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}
	ephemeral := v1.Volume{VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}
	mirror := metav1.ObjectMeta{Annotations: map[string]string{v1.MirrorPodAnnotationKey: ""}}
	for sentence, c := range map[string]struct {
		pod  v1.Pod
		want Changes
	}{
		"a claim":             {v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{claim}}}, Changes{Hold: true}},
		"an ephemeral volume": {v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{}, ephemeral}}}, Changes{Hold: true}},
		"no volume":           {v1.Pod{}, Changes{}},
		"other volumes":       {v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{}}}}, Changes{}},
		"of a StatefulSet": {v1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "StatefulSet", Controller: ptr.To(true)}}}}, Changes{Hold: true}},
		"a mirror pod": {v1.Pod{ObjectMeta: mirror, Spec: v1.PodSpec{Volumes: []v1.Volume{claim}}}, Changes{}},
		"held already": {v1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{Finalizer}},
			Spec: v1.PodSpec{Volumes: []v1.Volume{claim}}}, Changes{}},
		"another finalizer": {v1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"other"}},
			Spec: v1.PodSpec{Volumes: []v1.Volume{claim}}}, Changes{Hold: true}},
		"no grace": {v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](0)}}, Changes{Grace: true}},
		"a second": {v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](1)}}, Changes{}},
		"a claim, no grace": {v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{claim},
			TerminationGracePeriodSeconds: ptr.To[int64](0)}}, Changes{Hold: true, Grace: true}},
		"a mirror pod, no grace": {v1.Pod{ObjectMeta: mirror, Spec: v1.PodSpec{Volumes: []v1.Volume{claim},
			TerminationGracePeriodSeconds: ptr.To[int64](0)}}, Changes{Grace: true}},
	} {
		if got := HoldOf(&c.pod); got != c.want {
			t.Errorf("%s: %+v, want %+v", sentence, got, c.want)
		}
	}
}

func TestGateOf(t *testing.T) {
	claim := v1.Volume{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}
	ephemeral := v1.Volume{VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}
	gates := func(names ...string) (all []v1.PodSchedulingGate) {
		for _, name := range names {
			all = append(all, v1.PodSchedulingGate{Name: name})
		}
		return all
	}
	for sentence, c := range map[string]struct {
		meta metav1.ObjectMeta
		spec v1.PodSpec
		want bool
	}{
		"a claim":             {spec: v1.PodSpec{Volumes: []v1.Volume{claim}}, want: true},
		"an ephemeral volume": {spec: v1.PodSpec{Volumes: []v1.Volume{{}, ephemeral}}, want: true},
		"no volume":           {},
		"other volumes":       {spec: v1.PodSpec{Volumes: []v1.Volume{{}}}},
		"a mirror pod": {meta: metav1.ObjectMeta{Annotations: map[string]string{v1.MirrorPodAnnotationKey: ""}},
			spec: v1.PodSpec{Volumes: []v1.Volume{claim}}},
		"a node":       {spec: v1.PodSpec{Volumes: []v1.Volume{claim}, NodeName: "a"}},
		"the gate":     {spec: v1.PodSpec{Volumes: []v1.Volume{claim}, SchedulingGates: gates("other", Gate)}},
		"another gate": {spec: v1.PodSpec{Volumes: []v1.Volume{claim}, SchedulingGates: gates("other")}, want: true},
	} {
		if got := GateOf(&v1.Pod{ObjectMeta: c.meta, Spec: c.spec}); got != (Changes{Gate: c.want}) {
			t.Errorf("%s: %+v, want gate %v", sentence, got, c.want)
		}
	}
}
