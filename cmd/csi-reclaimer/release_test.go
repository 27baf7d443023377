package main

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// The PV of a volume that is settled during a release may have got its finalizer after the list of PVs.
func TestReleaseIsRepeatedUntilEntriesStay(t *testing.T) {
	failure := errors.New("no answer")
	for name, c := range map[string]struct {
		left   []int // the entries before the first release, and after each
		fails  error
		passes int
	}{
		"nothing is in flight":                {[]int{0, 0}, nil, 1},
		"an entry stays":                      {[]int{1, 1}, nil, 1},
		"an entry is settled":                 {[]int{1, 0, 0}, nil, 2},
		"each release has one settled":        {[]int{2, 1, 0, 0}, nil, 3},
		"an entry is settled, and it fails":   {[]int{1, 0}, failure, 1},
		"an entry comes, against expectation": {[]int{0, 1}, nil, 1},
	} {
		passes := 0
		entries := func() []inflight.Entry { return make([]inflight.Entry, c.left[passes]) }
		done, left, err := untilSettled(entries, func() (reclaim.Released, error) {
			passes++
			return reclaim.Released{PVs: 10, Abandoned: []string{fmt.Sprint("pv-", passes)},
				InFlight: make([]string, c.left[passes])}, c.fails
		})
		if passes != c.passes || done.PVs != 10*passes || len(done.Abandoned) != passes || !errors.Is(err, c.fails) ||
			len(left) != c.left[passes] || len(done.InFlight) != c.left[passes] || !slices.Contains(done.Abandoned, "pv-1") {
			t.Errorf("%s: %d releases, %+v, %d entries are left: %v", name, passes, done, len(left), err)
		}
	}
}
