package text

import "testing"

func TestInert(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "csi-0": "csi-0", "nothing to delete": "nothing to delete", "kubectl": "kubectl",
		"x: kubectl delete ns a":       "x: kubectl_delete ns a",
		"kubectl get a; kubectl get b": "kubectl_get a; kubectl_get b",
		"kubectl\tdelete":              "kubectl_delete",
		"kubectl\ndelete":              "kubectl_delete",
		"kubectl\u00a0delete":          "kubectl_delete",
		"kubectl\u200edelete":          "kubectl_delete",
		"a\u202eb":                     "a_b",
	} {
		if got := Inert(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
