package objects

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

func TestNodeFenceOf(t *testing.T) {
	at := metav1.NewTime(time.Unix(1_800_000_000, 0))
	o := &v1alpha1.NodeFence{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "fence", ResourceVersion: "10", Generation: 3,
			CreationTimestamp: at, DeletionTimestamp: &at, Finalizers: []string{"example.com/other", FenceFinalizer}},
		Spec:   v1alpha1.NodeFenceSpec{Reason: "it is down"},
		Status: v1alpha1.NodeFenceStatus{Phase: v1alpha1.PhaseFenced},
	}
	f := NodeFenceOf(o)
	if f.GivenUp {
		t.Error("nothing says that it was given up")
	}
	if f.Name != "node-1" || f.UID != "fence" || f.ResourceVersion != "10" || f.Generation != 3 || !f.Terminating ||
		!f.Created.Equal(at.Time) || !f.Finalized || f.Spec.Reason != "it is down" || f.Status.Phase != v1alpha1.PhaseFenced {
		t.Errorf("%+v", f)
	}
	o.DeletionTimestamp, o.Finalizers = nil, []string{"example.com/other"}
	o.Annotations = map[string]string{"remediation.medik8s.io/nhc-timed-out": ""}
	if f = NodeFenceOf(o); f.Terminating || f.Finalized || !f.GivenUp {
		t.Errorf("%+v", f)
	}
}

// An unknown boot ID shows no reboot.
func TestEndedRunNeedsBothBootIDs(t *testing.T) {
	for boots, want := range map[[2]string]bool{{"boot", "boot2"}: true, {"boot", "boot"}: false, {"boot", ""}: false,
		{"", "boot2"}: false, {"", ""}: false} {
		f := Fence{InForce: true, Coverage: v1alpha1.CoversVolumes, BootID: boots[0]}
		if got := f.EndedRun(Node{Found: true, BootID: boots[1]}); got != want {
			t.Errorf("boot IDs %q: %v", boots, got)
		}
	}
}
