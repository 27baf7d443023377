// Package kubetest has replacements for watches and API servers in tests.
package kubetest

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Cache is a watch cache that Deliver fills. Get and Each are safe for concurrent use.
type Cache[R any] struct {
	// Records are the kept records by key. A test that removes one simulates a lagging watch, because the record is not
	// delivered again before the object changes.
	Records map[string]R

	mu sync.RWMutex
	// versions are the delivered resourceVersions, including those for objects that are left out.
	versions map[string]string
}

// NewCache returns an empty Cache.
func NewCache[R any]() *Cache[R] {
	return &Cache[R]{Records: map[string]R{}, versions: map[string]string{}}
}

// Get returns the record of a key.
func (c *Cache[R]) Get(key string) (R, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r, found := c.Records[key]
	return r, found
}

// Each visits all records in the order of their keys.
func (c *Cache[R]) Each(visit func(R)) {
	c.mu.RLock()
	all := maps.Clone(c.Records)
	c.mu.RUnlock()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		visit(all[key])
	}
}

func (c *Cache[R]) set(key, version string, r R, keep bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.versions[key] = version
	if keep {
		c.Records[key] = r
	}
}

func (c *Cache[R]) remove(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.Records, key)
	delete(c.versions, key)
}

// Deliver stores the existing objects by their keys, and delivers to the handler their differences from the previous
// call.
func Deliver[R any, O interface {
	runtime.Object
	metav1.Object
}](t *testing.T, c *Cache[R], objects map[string]O, record kube.Recorder[R], handler kube.Handler[R]) {
	t.Helper()
	leftOut, _ := handler.(kube.LeftOutHandler[R])
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		version := objects[key].GetResourceVersion()
		before, known := c.Get(key)
		if c.versions[key] == version {
			continue
		}
		now, keep, err := record(objects[key].DeepCopyObject(), known)
		if err != nil {
			t.Fatal(err)
		}
		c.set(key, version, now, keep || known)
		switch {
		case known:
			handler.Updated(before, now)
		case keep:
			handler.Added(now)
		case leftOut != nil:
			leftOut.LeftOut(now)
		}
	}
	for key, last := range maps.Clone(c.Records) {
		if _, found := objects[key]; !found {
			c.remove(key)
			handler.Deleted(last, true)
		}
	}
}

// EagerClock is a fake clock that advances by the duration of each new timer at once. Code that waits in a loop then
// runs without a second goroutine that advances its clock, and the elapsed time is exact.
type EagerClock struct{ *testclock.FakeClock }

// NewTimer returns a timer that has fired.
func (c EagerClock) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}
