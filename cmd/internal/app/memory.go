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

	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
)

// A sidecar runs beside every driver of a cluster and is idle most of the time, so its memory costs more than its CPU
// time.
const (
	// collectAt is GOGC: garbage in percent of the live heap.
	collectAt = 40
	// minGarbage is the minimum amount of garbage in bytes. In a small cluster, 40 % of the few MiB in use would start
	// the collector for every few volumes, which took a fifth of the processor time of a burst.
	minGarbage = 16 << 20
	// limitShare is the share of the container's memory limit at which the collector begins to work harder.
	limitShare = 0.9
)

// saveMemory sets a lower limit for garbage than the runtime's default. GOGC and GOMEMLIMIT (package runtime) take
// precedence. limitFiles may contain the container's memory limit. paced reports that GOGC is not set, so that a pacer
// may adjust it.
func saveMemory(getenv func(string) string, limitFiles []string) (paced bool) {
	if paced = getenv("GOGC") == ""; paced {
		debug.SetGCPercent(collectAt)
	}
	if getenv("GOMEMLIMIT") != "" {
		return paced
	}
	if limit, found := containerLimit(limitFiles); found {
		debug.SetMemoryLimit(int64(limitShare * float64(limit)))
	}
	return paced
}

// afterEachCollection calls do after each garbage collection, on the runtime's goroutine for finalizers, as long as
// do returns true.
func afterEachCollection(do func() bool) {
	type sentinel struct{ _ *byte } // its pointer keeps it out of the tiny allocator's shared blocks
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

// pacer sets GOGC after each collection. Its zero value has not set it yet.
type pacer struct{ percent int }

// adjust sets GOGC for the live heap of the last collection, and always returns true.
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

// percentOf returns the GOGC that allows minGarbage of garbage, but at least collectAt, in steps of 20.
func percentOf(live uint64) int {
	live = max(live, 1<<20)
	return max(collectAt, int(minGarbage*100/live)/20*20)
}

// cgroupLimits contain the memory limit of this process's container: the first with cgroup v2, the second with v1.
var cgroupLimits = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// unlimited is less than the limit that cgroup v1 has for none, which is the largest number of whole pages.
const unlimited = int64(1) << 62

// containerLimit reads a limit in bytes from the first of these files that exists. found is false if no limit is set.
func containerLimit(files []string) (limit int64, found bool) {
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // the cgroup's file, or that of a test
		if err != nil {
			continue
		}
		limit, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return limit, err == nil && limit > 0 && limit < unlimited
	}
	return 0, false
}

// settling is the time allowed for the first pass over all PVs after the first lists, before which no memory is
// returned.
const settling = 2 * time.Second

// ReturnMemory returns memory to the system after the start, which needs more memory than the normal operation.
func ReturnMemory(ctx context.Context, firstLists func(context.Context) error) {
	if firstLists(ctx) == nil && controller.Pause(ctx, clock.RealClock{}, settling) {
		debug.FreeOSMemory()
	}
}
