package kube

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// shown records the calls of a handler.
type shown struct {
	mu    sync.Mutex
	lines []string
}

func (s *shown) Added(name string)           { s.record("+" + name) }
func (s *shown) Updated(_, name string)      { s.record("=" + name) }
func (s *shown) Deleted(name string, _ bool) { s.record("-" + name) }

func (s *shown) record(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

// take returns the calls since the last call, sorted.
func (s *shown) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	slices.Sort(lines)
	return lines
}

// sharing is a cluster of PVs whose lists and watches are counted, with Watches.
type sharing struct {
	*testing.T
	client         *fake.Clientset
	lists, watches atomic.Int64
	shared         *Watches
}

func newSharing(t *testing.T, shared *Watches, names ...string) *sharing {
	t.Helper()
	s := &sharing{T: t, client: fake.NewClientset(), shared: shared}
	for _, name := range names {
		s.create(name)
	}
	s.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		s.lists.Add(1)
		return false, nil, nil
	})
	s.client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
		s.watches.Add(1)
		return false, nil, nil
	})
	return s
}

func (s *sharing) create(name string) {
	s.Helper()
	if _, err := s.client.CoreV1().PersistentVolumes().Create(s.Context(),
		&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s *sharing) delete(name string) {
	s.Helper()
	if err := s.client.CoreV1().PersistentVolumes().Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

// cache returns a Cache that keeps the PVs with this prefix, and shares the watch.
func (s *sharing) cache(prefix string) (*Cache[string], *shown) {
	handler := &shown{}
	c := NewTypedCache(s.client.CoreV1().PersistentVolumes(), "persistentvolumes", &v1.PersistentVolume{},
		func(object runtime.Object, _ bool) (string, bool, error) {
			pv, ok := object.(*v1.PersistentVolume)
			if !ok {
				return "", false, errRecord
			}
			return pv.Name, strings.HasPrefix(pv.Name, prefix), nil
		}, handler)
	s.shared.Share(c)
	return c, handler
}

// run runs a Cache, and returns a function that ends it.
func run(t *testing.T, c *Cache[string]) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	end = func() { cancel(); <-ended }
	t.Cleanup(end)
	return end
}

func (s *sharing) expect(handler *shown, want ...string) {
	s.Helper()
	synctest.Wait()
	if got := handler.take(); !slices.Equal(got, want) {
		s.Errorf("a cache received %q, want %q", got, want)
	}
}

func (s *sharing) expectRequests(want int64) {
	s.Helper()
	if lists, watches := s.lists.Load(), s.watches.Load(); lists != want || watches != want {
		s.Errorf("%d lists and %d watches, want %d of each", lists, watches, want)
	}
}

func TestSharedWatch(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		shared   *Watches
		requests int64
	}{
		"a shared watch": {NewWatches(), 1},
		"two watches":    {nil, 2},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSharing(t, c.shared, "a1", "b1")
				all, allShown := s.cache("")
				some, someShown := s.cache("b")
				endAll, endSome := run(t, all), run(t, some)
				s.expect(allShown, "+a1", "+b1")
				s.expect(someShown, "+b1")
				if !all.Synced() || !some.Synced() {
					t.Error("not synced after the first list")
				}
				s.create("a2")
				s.delete("b1")
				s.expect(allShown, "+a2", "-b1")
				s.expect(someShown, "-b1")
				if _, kept := some.Get("a2"); kept {
					t.Error("a cache keeps a record of another one")
				}
				s.expectRequests(c.requests)
				endAll()
				endSome()
			})
		})
	}
}

// A cache that begins late receives everything, and the others nothing twice. A cache that has ended receives nothing.
func TestSharedWatchOfCachesThatComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(t, NewWatches(), "a1", "b1")
		first, firstShown := s.cache("")
		late, lateShown := s.cache("b")
		endFirst := run(t, first)
		s.expect(firstShown)
		s.expectRequests(0) // the other is about to run
		time.Sleep(gathering)
		s.expect(firstShown, "+a1", "+b1")
		s.expectRequests(1)
		if late.Synced() {
			t.Error("a cache that does not run is synced")
		}

		endLate := run(t, late)
		s.expect(lateShown, "+b1")
		s.expect(firstShown)
		s.expectRequests(2)
		s.create("b2")
		s.expect(firstShown, "+b2")
		s.expect(lateShown, "+b2")

		endLate()
		s.create("b3")
		time.Sleep(gathering)
		s.expect(firstShown, "+b3")
		s.expect(lateShown)
		endFirst()

		endFirst, endLate = run(t, first), run(t, late)
		s.expect(firstShown)
		s.expect(lateShown, "+b3")
		endFirst()
		endLate()
	})
}

func TestSharedCachesRefuseUnreadableObjects(t *testing.T) {
	t.Parallel()
	s := newSharing(t, NewWatches())
	one, _ := s.cache("")
	to := fanOut{store[string]{one}}
	if err := to.Replace([]any{&v1.Pod{}}, "1"); !errors.Is(err, errRecord) {
		t.Errorf("Replace = %v, want the recorder's error", err)
	}
	if err := to.Update(&v1.Pod{}); !errors.Is(err, errRecord) {
		t.Errorf("Update = %v, want the recorder's error", err)
	}
	if err := to.Add("text"); err == nil {
		t.Error("took a text for an API object")
	}
	if one.Synced() {
		t.Error("synced without a list")
	}
}
