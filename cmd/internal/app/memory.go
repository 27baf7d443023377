package app

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// A sidecar runs beside every driver of a cluster, and does nothing for most of the time: its
// memory costs more than its CPU time.
const (
	// collectAt is how much garbage there may be, in percent of what is in use (GOGC).
	collectAt = 40
	// minGarbage is how much there may be at least, in bytes. 40 % of the few MiB that a small cluster needs would have
	// the collector run with every few volumes: it took a fifth of the processor time of a burst.
	minGarbage = 16 << 20
	// limitShare of the container's memory is where the collector begins to work harder.
	limitShare = 0.9
)

// saveMemory sets the garbage collector to hold less than it does by default. GOGC and GOMEMLIMIT
// (package runtime) go first. limitFile is where the container's limit is; none is no error. paced: GOGC is not set,
// so that a pacer may set it.
func saveMemory(getenv func(string) string, limitFile string) (paced bool) {
	if paced = getenv("GOGC") == ""; paced {
		debug.SetGCPercent(collectAt)
	}
	if getenv("GOMEMLIMIT") != "" {
		return paced
	}
	if limit, found := containerLimit(limitFile); found {
		debug.SetMemoryLimit(int64(limitShare * float64(limit)))
	}
	return paced
}

// afterEachCollection has do called after each garbage collection, by the runtime's goroutine for finalizers, as long
// as it returns true.
func afterEachCollection(do func() bool) {
	type sentinel struct{ _ *byte } // with a pointer, it shares its memory with nothing
	var arm func()
	arm = func() {
		runtime.SetFinalizer(new(sentinel), func(*sentinel) {
			if do() {
				arm()
			}
		})
	}
	arm()
}

// pacer sets when the collector runs next. The zero value has set nothing yet.
type pacer struct{ percent int }

// adjust reads how much memory the last collection has left in use. It returns true.
func (p *pacer) adjust() bool {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if live[0].Value.Kind() != metrics.KindUint64 {
		return true
	}
	// Each change stops the world for a moment.
	if percent := percentOf(live[0].Value.Uint64()); percent != p.percent {
		p.percent = percent
		debug.SetGCPercent(percent)
	}
	return true
}

// percentOf returns the GOGC at which there is minGarbage, or collectAt if that is more, in steps of 20.
func percentOf(live uint64) int {
	live = max(live, 1<<20)
	return max(collectAt, int(minGarbage*100/live)/20*20)
}

// cgroupLimit is the memory limit of this process's container (cgroup v2, memory.max).
const cgroupLimit = "/sys/fs/cgroup/memory.max"

// containerLimit reads a limit in bytes. found is false when there is none.
func containerLimit(file string) (limit int64, found bool) {
	text, err := os.ReadFile(file) //nolint:gosec // the cgroup's file, or that of a test
	if err != nil {
		return 0, false
	}
	limit, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return limit, err == nil && limit > 0
}

// settling is how long the first pass over all PVs may take after the first lists; memory is not returned
// before.
const settling = 2 * time.Second

// ReturnMemory returns memory to the system after the start, which needs more than is kept.
func ReturnMemory(ctx context.Context, firstLists func(context.Context) error) {
	if firstLists(ctx) != nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(settling):
		debug.FreeOSMemory()
	}
}
