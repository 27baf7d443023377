package admit

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

func TestWhichFinalizersGoWithADriver(t *testing.T) {
	const other = "kubernetes.io/pv-protection"
	of := func(driver string, finalizers ...string) *v1.PersistentVolume {
		pv := &v1.PersistentVolume{}
		pv.Finalizers = finalizers
		pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver}
		return pv
	}
	migrated := of("", reclaim.Finalizer)
	migrated.Spec.CSI, migrated.Annotations = nil, map[string]string{annMigratedTo: "disk", annProvisionedBy: "kubernetes.io/disk"}
	for name, c := range map[string]struct {
		pv   *v1.PersistentVolume
		want []string
	}{
		"those of either role, and nobody else's": {of("disk", other, reclaim.Finalizer, reclaim.CompanionFinalizer), []string{reclaim.Finalizer, reclaim.CompanionFinalizer}},
		"none where there is none":                {of("disk", other), nil},
		"none of a driver that is not released":   {of("file", reclaim.Finalizer), nil},
		"those of a volume that was migrated":     {migrated, []string{reclaim.Finalizer}},
		"none of a PV of no driver":               {&v1.PersistentVolume{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := releasable(c.pv, []string{"disk"}); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestWhichDriversAreReleased(t *testing.T) {
	listed := Parameters("ns", map[string]string{"b": finalizer, "a": finalizer})
	cutOff := Parameters("ns", nil)
	cutOff.Annotations = map[string]string{releasedAnnotation: "a,b"}
	for name, c := range map[string]struct {
		of    *v1.ConfigMap
		asked []string
		want  []string
	}{
		"one by its name":                            {listed, []string{"a"}, []string{"a"}},
		"one that is not listed":                     {listed, []string{"c"}, []string{"c"}},
		"all that are listed":                        {listed, []string{AllDrivers}, []string{"a", "b"}},
		"all that were when a release was cut off":   {cutOff, []string{AllDrivers}, []string{"a", "b"}},
		"all, and one more":                          {listed, []string{AllDrivers, "c", "a"}, []string{"a", "b", "c"}},
		"without the ConfigMap those that are named": {&v1.ConfigMap{}, []string{AllDrivers, "c"}, []string{"c"}},
		"none": {listed, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unlisted(c.of, c.asked); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
