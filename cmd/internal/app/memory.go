package app

import (
	"context"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// A sidecar runs beside every driver of a cluster, and does nothing for most of the time: its
// memory costs more than its CPU time.
const (
	// collectAt is how much garbage there may be, in percent of what is in use (GOGC).
	collectAt = 40
	// limitShare of the container's memory is where the collector begins to work harder.
	limitShare = 0.9
)

// saveMemory sets the garbage collector to hold less than it does by default. GOGC and GOMEMLIMIT
// (package runtime) go first. limitFile is where the container's limit is; none is no error.
func saveMemory(getenv func(string) string, limitFile string) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, found := containerLimit(limitFile); found {
		debug.SetMemoryLimit(int64(limitShare * float64(limit)))
	}
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
