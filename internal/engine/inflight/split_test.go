package inflight

import (
	"maps"
	"testing"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		old, want int
		moves     bool
		next      int
		write     bool
		young     int
	}{
		"none":                    {},
		"young":                   {want: 1, young: 1},
		"young, and moves":        {want: 1, moves: true, next: 1, write: true},
		"removed before it moves": {moves: true},
		"old":                     {old: 1, want: 1, next: 1},
		"removed":                 {old: 1, write: true},
		"removed, and moves":      {old: 1, moves: true, write: true},
		"replaced":                {old: 1, want: 2, next: 1, young: 2},
		"replaced, and moves":     {old: 1, want: 2, moves: true, next: 2, write: true},
	} {
		of := func(value int) map[string]int {
			if value == 0 {
				return map[string]int{}
			}
			return map[string]int{"a": value}
		}
		var moving []string
		if test.moves {
			moving = []string{"a"}
		}
		old, write := Split(of(test.old), of(test.want), moving)
		if !maps.Equal(old, of(test.next)) || write != test.write {
			t.Errorf("%s: old %v, written %v", name, old, write)
		}
		if young := Young(of(test.want), old); !maps.Equal(young, of(test.young)) {
			t.Errorf("%s: young %v", name, young)
		}
	}
}
