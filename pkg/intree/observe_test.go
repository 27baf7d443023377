package intree

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestWhichEndOfATwinShowsThatTheVolumeIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		alter func(*PV)
		final bool
		want  bool
	}{
		"armed and released, its end seen":          {func(*PV) {}, true, true},
		"its end was not seen":                      {func(*PV) {}, false, false},
		"it was not armed":                          {of(volume.PolicyRetain), true, false},
		"it had failed: somebody may have ended it": {in(volume.PhaseFailed), true, false},
		"the PV controller had not looked at it":    {in(volume.PhasePending), true, false},
		"it is no twin":                             {func(pv *PV) { pv.TwinOf = "another" }, true, false},
	} {
		w := newWorld(t)
		pv, twin := due(), made()
		twin.Policy, twin.Phase, twin.Terminating = volume.PolicyDelete, volume.PhaseReleased, true
		c.alter(&twin)
		w.cache[pv.Name] = &pv
		changes{w.c.observer}.Deleted(&twin, c.final)
		if done, _ := w.c.observer.notes.of(pv.UID); done.VolumeDeleted != c.want {
			t.Errorf("%s: the volume is taken for deleted: %v, want %v", name, done.VolumeDeleted, c.want)
		}
	}
}
