package plural

import "testing"

func TestCountAndVerb(t *testing.T) {
	for n, want := range map[int]string{0: "0 PVs are left", 1: "1 PV is left", 2: "2 PVs are left"} {
		if got := Count(n, "PV") + " " + Verb(n, "is", "are") + " left"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
