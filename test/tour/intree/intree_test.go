//go:build unix

package intree

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/demo/cluster"
	"github.com/csi-reclaimer/csi-reclaimer/test/demo/stage/stagetest"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

func TestJudge(t *testing.T) {
	stagetest.Judged(t, Act().Scenarios, map[string]func(*outcome){
		"the directory is left, or gone, against the policy": func(o *outcome) { o.onDisk = !o.onDisk },
		"the PV is stuck":                       func(o *outcome) { o.pv = "Released" },
		"the claim is stuck":                    func(o *outcome) { o.claim = terminating },
		"a twin is left":                        func(o *outcome) { o.twins++ },
		"the claim was taken away from its pod": func(o *outcome) { o.used = lostTo },
	})
}

func TestClaimState(t *testing.T) {
	bound := &v1.PersistentVolumeClaim{Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
	deleted := bound.DeepCopy()
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for want, claim := range map[string]*v1.PersistentVolumeClaim{cluster.Gone: nil, "Bound": bound,
		terminating: deleted} {
		if got := claimState(claim); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestTwinsAreOtherPVsOfTheSameDirectory(t *testing.T) {
	of := func(name, path string) v1.PersistentVolume {
		pv := v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.HostPath = &v1.HostPathVolumeSource{Path: path}
		return pv
	}
	pvs := []v1.PersistentVolume{of("a", "/tmp/x/a"), of("a-reclaim", "/tmp/x/a"), of("b", "/tmp/x/b"),
		{ObjectMeta: metav1.ObjectMeta{Name: "csi"}}}
	if n := twins(pvs, &objects.Volume{Name: "a", Handle: "/tmp/x/a"}); n != 1 {
		t.Errorf("%d twins of a, want 1", n)
	}
	if n := twins(pvs, &objects.Volume{Name: "b", Handle: "/tmp/x/b"}); n != 0 {
		t.Errorf("%d twins of b, want none", n)
	}
}
