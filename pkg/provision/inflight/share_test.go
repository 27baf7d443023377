package inflight

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNoOwnerTakesAllRoom checks that entries of one namespace or class leave room for entries of others.
func TestNoOwnerTakesAllRoom(t *testing.T) {
	own := meta{Version: 1, Driver: driver, Epoch: 5, Process: "p"}
	of := func(n int, namespace, class string) (string, coded) {
		e := entry(fmt.Sprint("pvc-", n))
		e.Claim.Namespace, e.Requests[0].PV.Spec.StorageClassName = namespace, class
		return annotationKey(e.Volume), coded{entry: &e, value: strings.Repeat("x", 1000)}
	}
	s := newShard(3, shardName(3))
	n := 0
	fill := func(namespace, class func(int) string) (count int, err error) {
		for ; ; count++ {
			n++
			key, e := of(n, namespace(count), class(count))
			if _, err = s.put(key, e, own); err != nil {
				return count, err
			}
		}
	}
	same := func(name string) func(int) string { return func(int) string { return name } }
	each := func(prefix string) func(int) string { return func(i int) string { return fmt.Sprint(prefix, i) } }

	first, err := fill(same("a"), same("fast"))
	if wantError(t, err, ErrShare); !strings.Contains(err.Error(), `namespace "a" has`) {
		t.Error(err)
	}
	second, err := fill(same("b"), same("fast"))
	wantError(t, err, ErrShare)
	third, err := fill(each("c"), same("fast"))
	if wantError(t, err, ErrShare); !strings.Contains(err.Error(), `StorageClass "fast" has`) {
		t.Error(err)
	}
	last, err := fill(each("d"), each("class"))
	if wantError(t, err, ErrFull); strings.Contains(err.Error(), `"`) { // users of any namespace read it
		t.Errorf("it names an owner: %v", err)
	}
	t.Logf("%d entries of one namespace, %d of the next, %d of others in the class, %d of others: %v", first, second,
		third, last, err)
	if first < 90 || second < 40 || third < 20 || last < 20 {
		t.Errorf("%d, %d, %d and %d entries", first, second, third, last)
	}
	// Open entries can still grow.
	for i := 1; i <= 25; i++ {
		key, e := of(i, "a", "fast")
		e.value = strings.Repeat("x", 2000)
		if _, err := s.put(key, e, own); err != nil {
			t.Errorf("the %d. entry cannot grow: %v", i, err)
		}
	}
}

// TestNamespaceLeavesRoomForAnother checks that a second namespace gets its entries, however many volumes of the first
// one stay in flight.
func TestNamespaceLeavesRoomForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, settings(newStore(), "one"))
		put := func(namespace string, claims int) (refused int32) {
			var all sync.WaitGroup
			var count atomic.Int32
			for n := range claims {
				e := entry(fmt.Sprintf("pvc-%s-%d", namespace, n))
				e.Claim.Namespace, e.Requests[0].PV.Spec.StorageClassName = namespace, "fast"
				e.Requests[0].Create.Parameters = map[string]string{"x": noise(e.Volume, 500)}
				all.Go(func() {
					if err := p.put(e); err != nil {
						wantError(t, err, ErrShare)
						count.Add(1)
					}
				})
			}
			all.Wait()
			return count.Load()
		}
		if refused := put("broken", 1500); refused < 100 {
			t.Errorf("%d entries of one namespace are refused", refused)
		}
		if refused := put("healthy", 16); refused > 0 {
			t.Errorf("%d entries of another namespace are refused", refused)
		}
	})
}

// TestTooLarge distinguishes an entry that no Lease can hold from one that waits for room.
func TestTooLarge(t *testing.T) {
	own := meta{Version: 1, Driver: driver, Epoch: 5, Process: "p"}
	s := newShard(3, shardName(3))
	for _, c := range []struct {
		volume string
		size   int
		want   error
	}{
		{"pvc-1", room, ErrTooLarge},
		{"pvc-1", room - reserve - 500, nil},
		{"pvc-2", room, ErrTooLarge},
		{"pvc-2", 1000, ErrFull},
	} {
		e := entry(c.volume)
		_, err := s.put(annotationKey(c.volume), coded{entry: &e, value: strings.Repeat("x", c.size)}, own)
		if c.want == nil && err != nil {
			t.Errorf("%d bytes: %v", c.size, err)
		} else if c.want != nil {
			wantError(t, err, c.want)
		}
	}
}

// TestUnreadableEntriesFillLog checks that a new entry waits for their end.
func TestUnreadableEntriesFillLog(t *testing.T) {
	s, key := newShard(3, shardName(3)), annotationKey("pvc-1")
	s.seen.lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{key: strings.Repeat("x", room-reserve)}}}
	s.kept[key] = ErrDecode
	e := entry("pvc-2")
	_, err := s.put(annotationKey(e.Volume), coded{entry: &e, value: strings.Repeat("x", 1000)},
		meta{Version: 1, Driver: driver, Epoch: 5, Process: "p"})
	wantError(t, err, ErrFull)
}

// TestSecondRequestsLeaveRoomForNotes checks that every entry can still get its notes in a shard that is full for
// entries and second requests.
func TestSecondRequestsLeaveRoomForNotes(t *testing.T) {
	own := meta{Version: 1, Driver: driver, Epoch: 5, Process: "p"}
	s := newShard(3, shardName(3))
	put := func(n, requests, size int) error {
		e := entry(fmt.Sprint("pvc-", n))
		e.Claim.Namespace, e.Requests[0].PV.Spec.StorageClassName = fmt.Sprint(n), fmt.Sprint(n)
		for len(e.Requests) < requests {
			e.Requests = append(e.Requests, e.Requests[0])
		}
		_, err := s.put(annotationKey(e.Volume), coded{entry: &e, value: strings.Repeat("x", size)}, own)
		return err
	}
	entries, err := 0, error(nil)
	for ; err == nil; entries++ {
		err = put(entries, 1, 1400)
	}
	wantError(t, err, ErrFull)
	entries--
	seconds := 0
	for err = nil; err == nil; seconds++ {
		err = put(seconds, 2, 2400)
	}
	wantError(t, err, ErrFull)
	seconds--
	for n := range entries {
		requests, size := 1, 1400
		if n < seconds {
			requests, size = 2, 2400
		}
		if err := put(n, requests, size+30); err != nil {
			t.Fatalf("entry %d of %d, %d of them with a second request: %v", n, entries, seconds, err)
		}
	}
	if entries < 100 || seconds < 10 || seconds == entries {
		t.Errorf("%d entries, %d second requests", entries, seconds)
	}
}
