package podsafety

import "testing"

func TestCandidateIsDroppedByUID(t *testing.T) {
	w := newWorld(t, Config{})
	w.observer.candidates["ns/db"] = podOf(held(unheld)).facts()
	w.observer.drop("ns/db", "uid-of-before")
	if len(w.observer.candidates) != 1 {
		t.Error("a pod that was offered meanwhile is dropped")
	}
	w.observer.drop("ns/db", "uid")
	if len(w.observer.candidates) != 0 {
		t.Error("the pod is not dropped")
	}
}
