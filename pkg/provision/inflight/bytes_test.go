package inflight

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// TestBytesWritten measures the log's written bytes per volume at different numbers of topology segments. A request to
// the API server takes 10 ms and CreateVolume 100 ms. A single worker shares no writes: each Put and each removal is
// one. 100 workers share as many as they can.
//
// At any number of segments a volume costs at most twice the bytes of a log whose entries hold all topologies, without
// compression, at 3 segments: whole has these bytes, measured with the same entries.
func TestBytesWritten(t *testing.T) {
	const latency, creates = 10 * time.Millisecond, 100 * time.Millisecond
	whole := map[int]int{1: 2996, 100: 4759}
	for workers, claims := range map[int]int{1: 50, 100: 200} {
		perVolume := map[int]int{}
		for _, segments := range []int{3, 100, 1000, 5000} {
			places := nodes(segments)
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
							e := onNodes(fmt.Sprintf("pvc-%08x-6f0e-4a55-9c5e-2f2d6f7b8a01", i*7919), places, i%segments)
							if err := p.put(e); err != nil {
								t.Errorf("%d segments: %v", segments, err)
							}
							time.Sleep(creates)
							if p.Remove(e.Volume); workers == 1 {
								time.Sleep(time.Minute)
							}
						}
					})
				}
				for i := range claims {
					names <- i
				}
				close(names)
				all.Wait()
				time.Sleep(2 * chunksStay)
				if left := p.Entries(); len(left) > 0 {
					t.Errorf("%d segments: %d entries are left", segments, len(left))
				}
				perVolume[segments] = written / claims
				t.Logf("%d workers, %d segments: %d bytes a volume in %.2f writes, the largest Lease %d bytes", workers,
					segments, perVolume[segments], float64(writes)/float64(claims), largest)
				if n := float64(writes) / float64(claims); workers == 1 && n < 2 {
					t.Errorf("%.2f writes a volume share some", n)
				}
			})
		}
		if perVolume[100] > 2*perVolume[3] || perVolume[5000] > 2*perVolume[3] ||
			slices.Max(slices.Collect(maps.Values(perVolume))) > 2*whole[workers] {
			t.Errorf("%d workers: bytes a volume, by segments: %v", workers, perVolume)
		}
	}
}

// TestOrdinaryEntryIsCompressed checks an entry without parameters, Secret and source. A busy log writes each open
// entry many times.
func TestOrdinaryEntryIsCompressed(t *testing.T) {
	t.Parallel()
	for _, segments := range []int{3, 100, 1000, 5000} {
		e := onNodes("pvc-00000000-6f0e-4a55-9c5e-2f2d6f7b8a01", nodes(segments), segments/2)
		r := &e.Requests[0]
		r.Create.Parameters, r.Create.MutableParameters, r.Create.VolumeContentSource = nil, nil, nil
		r.Secret, r.Source = nil, nil
		stored := must.Get(newCodec("log-topology").encode(&e))(t)
		if whole := len(plain(t, stored.value)); len(stored.value) > whole*3/4 {
			t.Errorf("%d segments: stored in %d bytes, uncompressed %d", segments, len(stored.value), whole)
		}
	}
}
