package pvc

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// apiPod is a pod on a node that names the claim "data" and has a generic ephemeral volume "cache".
func apiPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0", UID: "pod"},
		Spec: v1.PodSpec{NodeName: "node", Volumes: []v1.Volume{
			{Name: "data", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "cache", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
			{Name: "token", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		}},
	}
}

// apiClaim is a claim that is being deleted and has the finalizer.
func apiClaim(name, owner string) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: "claim", DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)},
		Finalizers: []string{"other", Finalizer},
	}}
	if owner != "" {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "web-0", UID: "pod",
			Controller: ptr.To(owner == "controls")}}
	}
	return c
}

func held(p *v1.Pod) { p.Finalizers = []string{objects.RunningFinalizer} }

func TestUsage(t *testing.T) {
	runs, ended := Usage{By: "web-0"}, Usage{ByEnded: "web-0"}
	data, ephemeral := apiClaim("data", ""), apiClaim("web-0-cache", "controls")
	change := func(changes ...func(*v1.Pod)) *v1.Pod {
		p := apiPod()
		for _, change := range changes {
			change(p)
		}
		return p
	}
	phase := func(phase v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = phase } }
	unscheduled := func(p *v1.Pod) { p.Spec.NodeName = "" }
	graced := func(grace int64) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(2, 0)}, &grace
		}
	}
	deleted := func(grace int64) *v1.Pod { return change(graced(grace)) }
	cases := map[string]struct {
		pod   *v1.Pod
		claim *v1.PersistentVolumeClaim
		want  Usage
	}{
		"a pod on a node names it":            {apiPod(), data, runs},
		"another claim":                       {apiPod(), apiClaim("another", ""), Usage{}},
		"a claim of another namespace":        {change(func(p *v1.Pod) { p.Namespace = "elsewhere" }), data, Usage{}},
		"a pod without a node":                {change(unscheduled), data, Usage{}},
		"a pod that succeeded":                {change(phase(v1.PodSucceeded)), data, ended},
		"a pod that failed":                   {change(phase(v1.PodFailed)), data, ended},
		"a pod that starts":                   {change(phase(v1.PodPending)), data, runs},
		"a pod of an unknown phase":           {change(phase(v1.PodUnknown)), data, runs},
		"a pod that is being deleted":         {deleted(30), data, runs},
		"a pod deleted by force":              {deleted(0), data, runs},
		"an ephemeral volume of the pod":      {apiPod(), ephemeral, runs},
		"owned but not controlled by the pod": {apiPod(), apiClaim("web-0-cache", "owns"), Usage{}},
		"a similar name":                      {apiPod(), apiClaim("web-0-cache", ""), Usage{}},
		"one of an earlier pod of the name":   {change(func(p *v1.Pod) { p.UID = "later" }), ephemeral, Usage{}},
		"one of a pod that is shut down":      {deleted(0), ephemeral, Usage{}},
		"one of a pod that is being deleted":  {deleted(30), ephemeral, runs},
		"one of a pod that is not deleted": {change(func(p *v1.Pod) { p.DeletionGracePeriodSeconds = ptr.To[int64](0) }),
			ephemeral, runs},
		// The pod garbage collector sets Failed and grace 0 while the containers run.
		"a held pod, failed and without grace":        {change(held, phase(v1.PodFailed), graced(0)), data, runs},
		"one of a held pod, failed and without grace": {change(held, phase(v1.PodFailed), graced(0)), ephemeral, runs},
		"a held pod that failed by the word of another than its kubelet": {
			change(held, phase(v1.PodFailed)), data, runs},
		"a held pod that has completed": {change(held, phase(v1.PodSucceeded), func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "one"}}
		}), data, ended},
		"one of a pod without a node": {change(unscheduled), ephemeral, Usage{}},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			pod := PodOf(c.pod)
			if got := usageOf(ClaimOf(c.claim), []*Pod{{Namespace: "ns", Name: "idle", Scheduled: true}, &pod}); got != c.want {
				t.Errorf("used by %+v, want %+v", got, c.want)
			}
			if got := indexed([]Pod{pod}).usage(ClaimOf(c.claim)); got != c.want {
				t.Errorf("by the index used by %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestRecordedClaimsAndPods(t *testing.T) {
	for sentence, c := range map[string]struct {
		claim func(*v1.PersistentVolumeClaim)
		want  bool
	}{
		"a claim at rest": {func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = nil }, false},
		"a claim without the finalizer": {func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp, c.Finalizers = nil, nil },
			true},
		"a claim that is being deleted": {func(*v1.PersistentVolumeClaim) {}, true},
		"a claim that others hold":      {func(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{"other"} }, false},
	} {
		api := apiClaim("data", "")
		c.claim(api)
		if _, keep, err := recordClaim(api, false); keep != c.want || err != nil {
			t.Errorf("%s: kept %v, %v", sentence, keep, err)
		}
	}
	for sentence, c := range map[string]struct {
		pod  func(*v1.Pod)
		want bool
	}{
		"a pod that uses claims":       {func(*v1.Pod) {}, true},
		"a pod that has ended":         {func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, true},
		"a pod without a node":         {func(p *v1.Pod) { p.Spec.NodeName = "" }, false},
		"a pod that uses no claim":     {func(p *v1.Pod) { p.Spec.Volumes = p.Spec.Volumes[2:] }, false},
		"a pod with ephemeral volumes": {func(p *v1.Pod) { p.Spec.Volumes = p.Spec.Volumes[1:] }, true},
	} {
		api := apiPod()
		c.pod(api)
		if _, keep, err := recordPod(api, false); keep != c.want || err != nil {
			t.Errorf("%s: kept %v, %v", sentence, keep, err)
		}
	}
	if _, _, err := recordPod(apiClaim("data", ""), false); err == nil {
		t.Error("a claim is taken for a pod")
	}
	if _, _, err := recordClaim(apiPod(), false); err == nil {
		t.Error("a pod is taken for a claim")
	}
}
