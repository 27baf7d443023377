package objects

import (
	"slices"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
)

func TestIndex(t *testing.T) {
	t.Parallel()
	var x Index[string, int]
	x.Move("", "a", "one", 1)
	x.Move("", "a", "two", 2)
	x.Move("", "b", "three", 3)
	x.Move("", "b", "four", 4)
	x.Move("", "", "none", 5)
	x.Move("a", "a", "two", 20)
	x.Move("b", "c", "four", 40)
	x.Move("b", "", "one", 0) // it is elsewhere
	x.Move("d", "", "one", 0)
	x.Move("b", "", "three", 0)
	for group, want := range map[string][]int{"a": {1, 20}, "b": nil, "c": {40}, "": nil} {
		if got := slices.Sorted(slices.Values(x.In(group))); !slices.Equal(got, want) {
			t.Errorf("in %q: %v, want %v", group, got, want)
		}
	}
	if got := slices.Sorted(slices.Values(x.All())); !slices.Equal(got, []int{1, 20, 40}) {
		t.Errorf("all: %v", got)
	}
	if len(x.groups) != 2 {
		t.Errorf("empty groups take memory: %v", x.groups)
	}
}

// A reader that misses an object because it is being replaced does nothing for it.
func TestMovedObjectIsAlwaysFound(t *testing.T) {
	t.Parallel()
	var x Index[string, int]
	x.Move("", "a", "replaced", 1)
	x.Move("", "b", "moved", 1)
	goroutines.Hold(t, "one object is in its group, and two are in all groups",
		func() bool { return len(x.In("a")) == 1 && len(x.All()) == 2 },
		func() {
			x.Move("a", "a", "replaced", 1)
			x.Move("b", "c", "moved", 1)
			x.Move("c", "b", "moved", 1)
		})
}
