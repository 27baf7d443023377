package volume

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestTwinName(t *testing.T) {
	for pv, want := range map[string]string{
		"pv":                                    "pv-reclaim",
		strings.Repeat("n", maxName-8):          strings.Repeat("n", maxName-8) + "-reclaim",
		strings.Repeat("n", maxName-7):          "",
		strings.Repeat("n", maxName):            "",
		strings.Repeat("n.", maxName/2-1) + "n": "",
		strings.Repeat("n-", maxName/2-1) + "n": "",
	} {
		got := TwinName(pv)
		if want != "" && got != want {
			t.Errorf("TwinName(%q) = %q", pv, got)
		}
		if wrong := validation.IsDNS1123Subdomain(got); len(wrong) > 0 {
			t.Errorf("TwinName(%q) = %q: %v", pv, got, wrong)
		}
	}
	a, b := strings.Repeat("n", maxName-1)+"a", strings.Repeat("n", maxName-1)+"b"
	if TwinName(a) == TwinName(b) {
		t.Error("two PVs whose names differ at the end have one name for their twins")
	}
}

func FuzzTwinName(f *testing.F) {
	f.Add("pv")
	f.Add(strings.Repeat("n.", 126))
	f.Add(strings.Repeat("n-.", 80) + "n")
	f.Fuzz(func(t *testing.T, pv string) {
		got := TwinName(pv)
		if len(validation.IsDNS1123Subdomain(pv)) > 0 {
			return // no PV has that name
		}
		if wrong := validation.IsDNS1123Subdomain(got); len(wrong) > 0 {
			t.Errorf("TwinName(%q) = %q: %v", pv, got, wrong)
		}
		if got == pv || got != TwinName(pv) {
			t.Errorf("TwinName(%q) = %q, then %q", pv, got, TwinName(pv))
		}
	})
}

// A PV that was copied from a twin is no twin, in spite of its labels.
func TestIsTwinOf(t *testing.T) {
	original := PV{Name: "pv", UID: "u", Claim: ClaimRef{Namespace: "ns", Name: "data", UID: "c"}}
	for name, c := range map[string]struct {
		change func(twin, original *PV)
		want   bool
	}{
		"a twin":                   {func(_, _ *PV) {}, true},
		"without the label":        {func(twin, _ *PV) { twin.TwinOf = "" }, false},
		"of nothing":               {func(twin, original *PV) { twin.TwinOf, original.UID = "", "" }, false},
		"of a PV of before":        {func(_, original *PV) { original.UID = "newer" }, false},
		"a copy of another name":   {func(twin, _ *PV) { twin.Name = "rescued" }, false},
		"edited for another claim": {func(twin, _ *PV) { twin.Claim.Name, twin.Claim.UID = "rescue", "" }, false},
	} {
		twin, of := original, original
		twin.Name, twin.UID, twin.TwinOf = TwinName("pv"), "twin", original.UID
		c.change(&twin, &of)
		if got := twin.IsTwinOf(of); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
