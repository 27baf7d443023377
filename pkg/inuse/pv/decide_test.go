package pv

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// going is a PV that is being deleted and not bound, in a cluster without another controller.
func going() Facts {
	return Facts{
		Duty: inuse.Duty{Mode: inuse.ModeFull, Alone: true},
		PV:   PV{Object: inuse.Object{Name: "pv", UID: "u", Terminating: true, Protected: true}, Free: true},
	}
}

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		change func(*Facts)
		want   inuse.Decision
	}{
		"no claim has it: it goes": {func(*Facts) {}, inuse.Step(inuse.RemoveFinalizer, inuse.ReasonUnused)},
		"nothing is known":         {func(s *Facts) { *s = Facts{} }, inuse.Rest(inuse.ReasonOff)},
		"off":                      {func(s *Facts) { s.Duty.Mode = inuse.ModeOff }, inuse.Rest(inuse.ReasonOff)},
		"bound":                    {func(s *Facts) { s.PV.Free = false }, inuse.Rest(inuse.ReasonBound)},
		"others may be at work":    {func(s *Facts) { s.Duty.Alone = false }, inuse.Later(inuse.ReasonLeftToBuiltIn)},
		"no answer": {func(s *Facts) { s.Duty.Alone, s.Duty.Unanswered = false, true },
			inuse.Step(inuse.RemoveFinalizer, inuse.ReasonUnused)},
		"released already": {func(s *Facts) { s.Duty.Removed = true }, inuse.Rest(inuse.ReasonUnused)},
		"without the finalizer": {func(s *Facts) { s.PV.Terminating, s.PV.Protected = false, false },
			inuse.Step(inuse.AddFinalizer, inuse.ReasonProtect)},
		"a twin without the finalizer": {func(s *Facts) { s.PV.Terminating, s.PV.Protected, s.PV.Twin = false, false, true },
			inuse.Rest(inuse.ReasonTwin)},
		"a twin that is being deleted": {func(s *Facts) { s.PV.Twin = true },
			inuse.Step(inuse.RemoveFinalizer, inuse.ReasonUnused)},
		"terminating, held by others":   {func(s *Facts) { s.PV.Protected = false }, inuse.Rest(inuse.ReasonNoFinalizer)},
		"protected and not terminating": {func(s *Facts) { s.PV.Terminating = false }, inuse.Rest(inuse.ReasonProtected)},
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

// TestRemovalInEveryState checks every combination of the facts.
func TestRemovalInEveryState(t *testing.T) {
	bools := []bool{false, true}
	var s Facts
	s.PV.UID = "u"
	let := 0
	for _, s.Duty.Mode = range []inuse.Mode{inuse.ModeOff, inuse.ModeFull} {
		for _, s.Duty.Alone = range bools {
			for _, s.Duty.Unanswered = range bools {
				for _, s.Duty.Removed = range bools {
					for _, s.PV.Terminating = range bools {
						for _, s.PV.Protected = range bools {
							for _, s.PV.Twin = range bools {
								for _, s.PV.Free = range bools {
									if Decide(s).Action != inuse.RemoveFinalizer {
										continue
									}
									let++
									if s.Duty.Mode != inuse.ModeFull || !s.Duty.Alone && !s.Duty.Unanswered || s.Duty.Removed ||
										!s.PV.Terminating || !s.PV.Protected || !s.PV.Free {
										t.Fatalf("released: %+v", s)
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
		t.Error("none was released: this test shows nothing")
	}
}

func TestPVOf(t *testing.T) {
	for phase, free := range map[v1.PersistentVolumePhase]bool{
		"": true, v1.VolumePending: true, v1.VolumeAvailable: true, v1.VolumeReleased: true, v1.VolumeFailed: true,
		v1.VolumeBound: false, "Sleeping": false,
	} {
		api := &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "u", ResourceVersion: "7", Finalizers: []string{"other", Finalizer},
				Labels: map[string]string{twinLabel: "x"}, DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}},
			Status: v1.PersistentVolumeStatus{Phase: phase},
		}
		want := PV{Object: inuse.Object{Name: "pv", UID: "u", ResourceVersion: "7", Terminating: true, Protected: true},
			Free: free, Twin: true}
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
