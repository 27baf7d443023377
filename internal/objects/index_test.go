package objects

import (
	"slices"
	"testing"
)

func TestIndex(t *testing.T) {
	t.Parallel()
	var x Index[string, int]
	x.Put("a", "one", 1)
	x.Put("a", "two", 2)
	x.Put("b", "three", 3)
	x.Put("", "none", 4)
	x.Put("a", "two", 20)
	x.Remove("b", "one") // it is elsewhere
	x.Remove("c", "one")
	x.Remove("b", "three")
	for group, want := range map[string][]int{"a": {1, 20}, "b": nil, "": nil} {
		if got := slices.Sorted(slices.Values(x.In(group))); !slices.Equal(got, want) {
			t.Errorf("in %q: %v, want %v", group, got, want)
		}
	}
	if got := slices.Sorted(slices.Values(x.All())); !slices.Equal(got, []int{1, 20}) {
		t.Errorf("all: %v", got)
	}
	if len(x.groups) != 1 {
		t.Errorf("empty groups take memory: %v", x.groups)
	}
}
