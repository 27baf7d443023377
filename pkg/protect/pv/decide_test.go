package pv

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/protect"
)

// going is a PV that is being deleted and that no claim has, in a cluster that nobody else serves.
func going() Snapshot {
	return Snapshot{
		Duty: protect.Duty{Mode: protect.ModeFull, Alone: true},
		PV:   PV{Object: protect.Object{Name: "pv", UID: "u", Terminating: true, Protected: true}, Phase: PhaseFree},
	}
}

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		change func(*Snapshot)
		want   protect.Decision
	}{
		"no claim has it: it goes":      {func(*Snapshot) {}, protect.Step(protect.DropFinalizer, protect.ReasonUnused)},
		"nothing is known":              {func(s *Snapshot) { *s = Snapshot{} }, protect.Rest(protect.ReasonOff)},
		"off":                           {func(s *Snapshot) { s.Duty.Mode = protect.ModeOff }, protect.Rest(protect.ReasonOff)},
		"bound":                         {func(s *Snapshot) { s.PV.Phase = PhaseBound }, protect.Rest(protect.ReasonBound)},
		"in a phase that nobody knows":  {func(s *Snapshot) { s.PV.Phase = PhaseUnknown }, protect.Rest(protect.ReasonBound)},
		"others may be at work":         {func(s *Snapshot) { s.Duty.Alone = false }, protect.Later(protect.ReasonLeftToBuiltIn)},
		"nobody answered":               {func(s *Snapshot) { s.Duty.Alone, s.Duty.Unanswered = false, true }, protect.Step(protect.DropFinalizer, protect.ReasonUnused)},
		"let go already":                {func(s *Snapshot) { s.Duty.Dropped = true }, protect.Rest(protect.ReasonUnused)},
		"without the finalizer":         {func(s *Snapshot) { s.PV.Terminating, s.PV.Protected = false, false }, protect.Step(protect.AddFinalizer, protect.ReasonProtect)},
		"a twin without the finalizer":  {func(s *Snapshot) { s.PV.Terminating, s.PV.Protected, s.PV.Twin = false, false, true }, protect.Rest(protect.ReasonTwin)},
		"a twin that is being deleted":  {func(s *Snapshot) { s.PV.Twin = true }, protect.Step(protect.DropFinalizer, protect.ReasonUnused)},
		"terminating, held by others":   {func(s *Snapshot) { s.PV.Protected = false }, protect.Rest(protect.ReasonNotHeld)},
		"protected and not terminating": {func(s *Snapshot) { s.PV.Terminating = false }, protect.Rest(protect.ReasonProtected)},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			s := going()
			c.change(&s)
			if d := Decide(s); d != c.want {
				t.Errorf("Decide = %+v, want %+v", d, c.want)
			}
		})
	}
}

// TestWhatLetsAPVGo goes through all that can be known.
func TestWhatLetsAPVGo(t *testing.T) {
	bools := []bool{false, true}
	var s Snapshot
	s.PV.UID = "u"
	let := 0
	for _, s.Duty.Mode = range []protect.Mode{protect.ModeOff, protect.ModeFull} {
		for _, s.Duty.Alone = range bools {
			for _, s.Duty.Unanswered = range bools {
				for _, s.Duty.Dropped = range bools {
					for _, s.PV.Terminating = range bools {
						for _, s.PV.Protected = range bools {
							for _, s.PV.Twin = range bools {
								for s.PV.Phase = PhaseUnknown; s.PV.Phase <= PhaseFree; s.PV.Phase++ {
									if Decide(s).Action != protect.DropFinalizer {
										continue
									}
									let++
									if s.Duty.Mode != protect.ModeFull || !s.Duty.Alone && !s.Duty.Unanswered || s.Duty.Dropped ||
										!s.PV.Terminating || !s.PV.Protected || s.PV.Phase != PhaseFree {
										t.Fatalf("let go: %+v", s)
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if let == 0 {
		t.Error("none was let go: this test shows nothing")
	}
}

func TestPVOf(t *testing.T) {
	for phase, want := range map[v1.PersistentVolumePhase]Phase{
		"": PhaseFree, v1.VolumePending: PhaseFree, v1.VolumeAvailable: PhaseFree, v1.VolumeReleased: PhaseFree, v1.VolumeFailed: PhaseFree,
		v1.VolumeBound: PhaseBound, "Sleeping": PhaseUnknown,
	} {
		api := &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "u", ResourceVersion: "7", Finalizers: []string{"other", Finalizer},
				Labels: map[string]string{twinLabel: "x"}, DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}},
			Status: v1.PersistentVolumeStatus{Phase: phase},
		}
		want := PV{Object: protect.Object{Name: "pv", UID: "u", ResourceVersion: "7", Terminating: true, Protected: true}, Phase: want, Twin: true}
		if got := PVOf(api); got != want {
			t.Errorf("phase %q: %+v, want %+v", phase, got, want)
		}
		if _, keep, err := record(api, false); !keep || err != nil {
			t.Errorf("one that is to go: kept %v, %v", keep, err)
		}
		api.DeletionTimestamp = nil
		if _, keep, err := record(api, false); keep || err != nil {
			t.Errorf("one at rest: kept %v, %v", keep, err)
		}
	}
	if _, _, err := record(&v1.Pod{}, false); err == nil {
		t.Error("a pod is taken for a PV")
	}
}
