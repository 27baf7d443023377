package search

import "testing"

func TestStatesThatNoWayLeadsOutOfAreStuck(t *testing.T) {
	// 0 -> 1 -> 2 (rest), 0 -> 3 <-> 4
	e := &explorer{
		parents: []uint32{0, 0, 1, 0, 3}, codes: make([]uint32, 5),
		steps: []uint32{0, 1, 1, 2, 0, 3, 3, 4, 4, 3}, settled: []uint32{2},
	}
	var r Result
	e.findStuck(&r)
	if r.Stuck != 2 || r.StuckHere == nil || len(r.StuckHere.Moves) != 1 {
		t.Errorf("%d stuck, %+v, want 2 and the way to the first", r.Stuck, r.StuckHere)
	}
}
