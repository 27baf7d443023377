package podsafety

import "testing"

func TestModeOf(t *testing.T) {
	for value, want := range map[string]Mode{"enforce": ModeEnforce, "warn": ModeWarn, "Enforce": ModeOff, "": ModeOff} {
		if got := ModeOf(map[string]string{NamespaceLabel: value}); got != want {
			t.Errorf("%q: %d", value, got)
		}
	}
	if got := ModeOf(nil); got != ModeOff {
		t.Errorf("no label: %d", got)
	}
}
