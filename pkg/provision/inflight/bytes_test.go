package inflight

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// TestBytesWritten measures how much of the log is written for a volume, at different numbers of topology segments: 100
// to 500 claims at once, 100 workers, 10 ms for a request to the API server and 100 ms for CreateVolume.
func TestBytesWritten(t *testing.T) {
	const workers, latency, creates = 100, 10 * time.Millisecond, 100 * time.Millisecond
	perVolume := map[int]int{}
	for _, c := range []struct{ segments, claims int }{{3, 500}, {100, 300}, {1000, 100}, {5000, 100}} {
		places := nodes(c.segments)
		synctest.Test(t, func(t *testing.T) {
			s := newStore()
			s.latency = latency
			p := start(t, settings(s, "one"))
			var written, writes, largest int
			s.committed = func(_ string, lease *coordinationv1.Lease) {
				writes++
				written += size(lease.Annotations)
				largest = max(largest, size(lease.Annotations))
			}
			names := make(chan int)
			var all sync.WaitGroup
			for range workers {
				all.Go(func() {
					for i := range names {
						e := onNodes(fmt.Sprintf("pvc-%08x-6f0e-4a55-9c5e-2f2d6f7b8a01", i*7919), places, i%c.segments)
						if err := p.put(e); err != nil {
							t.Errorf("%d segments: %v", c.segments, err)
						}
						time.Sleep(creates)
						p.Remove(e.Volume)
					}
				})
			}
			for i := range c.claims {
				names <- i
			}
			close(names)
			all.Wait()
			time.Sleep(time.Minute)
			if left := p.Entries(); len(left) > 0 {
				t.Errorf("%d segments: %d entries are left", c.segments, len(left))
			}
			perVolume[c.segments] = written / c.claims
			t.Logf("%d segments: %d bytes a volume in %.2f writes, the largest Lease %d bytes", c.segments,
				perVolume[c.segments], float64(writes)/float64(c.claims), largest)
		})
	}
	if perVolume[100] > 2*perVolume[3] || perVolume[5000] > 2*perVolume[3] {
		t.Errorf("bytes a volume, by segments: %v", perVolume)
	}
}
