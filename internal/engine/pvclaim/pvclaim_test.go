package pvclaim

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestState(t *testing.T) {
	ref := volume.ClaimRef{Namespace: "ns", Name: "claim", UID: "claim-uid"}
	other := ref
	other.UID = "other-uid"
	for name, c := range map[string]struct {
		claim Result
		want  State
	}{
		"not read":                  {Result{}, Unknown},
		"read for another":          {Result{Of: other}, Unknown},
		"gone":                      {Result{Of: ref}, Gone},
		"gone, despite other reads": {Result{Of: ref, UID: ref.UID}, Gone},
		"gone, by another read":     {Result{Of: ref, VolumeName: "pv"}, Gone},
		"exists":                    {Result{Of: ref, Found: true, UID: ref.UID}, Exists},
		"exists, bound to the PV":   {Result{Of: ref, Found: true, UID: ref.UID, VolumeName: "pv"}, Exists},
		"another of the name":       {Result{Of: ref, Found: true, UID: "new"}, Gone},
		"another of the name, which names the PV": {
			Result{Of: ref, Found: true, UID: "new", VolumeName: "pv"}, NamesPV},
	} {
		if got := c.claim.State("pv", ref); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestResultOf(t *testing.T) {
	ref := volume.ClaimRef{Namespace: "ns", Name: "claim", UID: "claim-uid"}
	o := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "uid"},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
	if got := ResultOf(ref, o); got != (Result{Of: ref, Found: true, UID: "uid", VolumeName: "pv"}) {
		t.Errorf("%+v", got)
	}
	if got := ResultOf(ref, nil); got != (Result{Of: ref}) {
		t.Errorf("a claim that does not exist: %+v", got)
	}
}
