package inuse

import (
	"reflect"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

func TestSettle(t *testing.T) {
	full := Duty{Mode: ModeFull}
	alone := Duty{Mode: ModeFull, Alone: true}
	there := Object{Name: "o", UID: "u"}
	protected := Object{Name: "o", UID: "u", Protected: true}
	going := Object{Name: "o", UID: "u", Terminating: true, Protected: true}
	protects := Step(AddFinalizer, ReasonProtect)
	cases := map[string]struct {
		duty    Duty
		o       Object
		want    Decision
		settled bool
	}{
		"off: nothing is put on":         {Duty{Alone: true, Unanswered: true}, there, Rest(ReasonOff), true},
		"off: nothing is released":       {Duty{Alone: true, Unanswered: true}, going, Rest(ReasonOff), true},
		"nothing is known of the object": {alone, Object{}, Rest(reasonUnknown), true},
		"protected already":              {alone, protected, Rest(ReasonProtected), true},
		"others may be at work":          {full, there, Later(ReasonLeftToBuiltIn), true},
		"no answer":                      {Duty{Mode: ModeFull, Unanswered: true}, there, protects, true},
		"no other controller":            {alone, there, protects, true},
		"put on in a write that the watch lags": {Duty{Mode: ModeFull, Alone: true, Added: true}, there,
			Rest(ReasonProtect), true},
		"removed by others too often": {Duty{Mode: ModeFull, Alone: true, Adds: maxAdds}, there,
			Rest(reasonContested), true},
		"removed by others, not too often": {Duty{Mode: ModeFull, Alone: true, Adds: maxAdds - 1}, there, protects, true},
		"terminating without the finalizer": {alone, Object{UID: "u", Terminating: true},
			Rest(ReasonNoFinalizer), true},
		"terminating with it: by who uses it": {alone, going, Decision{}, false},
		"terminating, released in a write that lags": {Duty{Mode: ModeFull, Alone: true, Removed: true}, going,
			Rest(ReasonUnused), true},
		"others may be at work, and it has to be released": {full, going, Decision{}, false},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			if d, settled := c.duty.Settle(c.o); d != c.want || settled != c.settled {
				t.Errorf("Settle = %+v, %v, want %+v, %v", d, settled, c.want, c.settled)
			}
		})
	}
}

func TestActs(t *testing.T) {
	for d, want := range map[Duty]bool{
		{}: false, {Mode: ModeFull}: false, {Alone: true}: false, {Unanswered: true}: false,
		{Mode: ModeFull, Alone: true}: true, {Mode: ModeFull, Unanswered: true}: true,
	} {
		if got := d.Acts(); got != want {
			t.Errorf("%+v acts: %v", d, got)
		}
	}
}

// The object may have come into use since it was read.
func TestPatchPreconditions(t *testing.T) {
	o := Object{Namespace: "ns", Name: "o", UID: "u", ResourceVersion: "7"}
	bound := kube.FinalizerPatch{Name: "o", UID: "u", ResourceVersion: "7"}
	on, off := bound, bound
	on.Add, off.Remove = []string{"f"}, []string{"f"}
	for action, want := range map[Action]kube.FinalizerPatch{AddFinalizer: on, RemoveFinalizer: off} {
		if got := Patch(o, action, "f"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", action, got, want)
		}
	}
}

func TestEveryReasonIsExplained(t *testing.T) {
	seen := map[Reason]bool{}
	for _, r := range Reasons() {
		if r.Sentence() == "" || seen[r] {
			t.Errorf("%s: explained as %q, repeated %v", r, r.Sentence(), seen[r])
		}
		seen[r] = true
	}
}

func TestModes(t *testing.T) {
	for m, want := range map[Mode]string{ModeOff: "off", ModeFull: "full"} {
		if got := m.String(); got != want {
			t.Errorf("mode %q, want %q", got, want)
		}
	}
	for name, cfg := range map[string]Config{
		"a mode that is none": {Mode: "none"}, "negative patience": {Patience: -1},
		"negative workers": {Settings: controllers.Settings{Workers: -1}},
	} {
		if cfg.Validate() == nil {
			t.Errorf("%s is valid", name)
		}
	}
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}
