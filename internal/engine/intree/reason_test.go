package intree

import (
	"testing"
)

func TestEveryReasonHasASentence(t *testing.T) {
	seen := map[Reason]bool{}
	for _, reason := range Reasons() {
		if reason.Sentence() == "" || seen[reason] {
			t.Errorf("%q says nothing, or is there twice", reason)
		}
		seen[reason] = true
	}
	if Reason("nothing").Sentence() != "" {
		t.Error("a reason that is none says something")
	}
	for a := Wait; a <= RemoveFinalizerByUID; a++ {
		if a.String() == "Unknown" {
			t.Errorf("action %d has no name", a)
		}
	}
}
