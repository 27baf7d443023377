//go:build unix

package cluster

import (
	"testing"
	"time"
)

func TestDeletionAfterPVIsTooLate(t *testing.T) {
	goneAt := time.Now()
	cases := map[string]struct {
		answered, goneAt time.Time
		want             bool
	}{
		"the PV is still there":     {goneAt, time.Time{}, false},
		"answered, then gone":       {goneAt.Add(-time.Millisecond), goneAt, false},
		"gone, then answered":       {goneAt.Add(time.Millisecond), goneAt, true},
		"gone, and never answered":  {time.Time{}, goneAt, true},
		"there, and never answered": {time.Time{}, time.Time{}, false},
	}
	for name, c := range cases {
		if got := tooLate(c.answered, c.goneAt); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
