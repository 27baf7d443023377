package app

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestSaveMemory(t *testing.T) {
	cases := map[string]struct {
		file        string
		environment map[string]string
		limit       int64
		percent     int
	}{
		"a limit is nearly used":          {"134217728\n", nil, 120795955, collectAt},
		"without a limit there is none":   {"max\n", nil, math.MaxInt64, collectAt},
		"without the file there is none":  {"", nil, math.MaxInt64, collectAt},
		"an unreadable limit is no limit": {"128 MiB", nil, math.MaxInt64, collectAt},
		"a limit of nothing is none":      {"0", nil, math.MaxInt64, collectAt},
		"the limit for none of cgroup v1": {"9223372036854771712\n", nil, math.MaxInt64, collectAt},
		"GOMEMLIMIT goes before the container's": {"134217728", map[string]string{"GOMEMLIMIT": "1GiB"}, math.MaxInt64,
			collectAt},
		"a GOGC that is set stays": {"134217728", map[string]string{"GOGC": "80"}, 120795955, 100},
	}
	for sentence, test := range cases {
		t.Run(sentence, func(t *testing.T) {
			percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
			t.Cleanup(func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(limit) })
			file, absent := filepath.Join(t.TempDir(), "memory.max"), filepath.Join(t.TempDir(), "memory.max")
			if test.file != "" {
				must.OK(t, os.WriteFile(file, []byte(test.file), 0o600))
			}
			if paced := saveMemory(func(name string) string { return test.environment[name] },
				[]string{absent, file}); paced != (test.environment["GOGC"] == "") {
				t.Errorf("paced: %v", paced)
			}
			if got := debug.SetMemoryLimit(-1); got != test.limit {
				t.Errorf("the limit is %d, want %d", got, test.limit)
			}
			if got := debug.SetGCPercent(100); got != test.percent {
				t.Errorf("the collector works at %d %%, want %d", got, test.percent)
			}
		})
	}
}

func TestPacer(t *testing.T) {
	for live, want := range map[uint64]int{0: 1600, 1 << 20: 1600, 8 << 20: 200, 10 << 20: 160, 40 << 20: collectAt,
		80 << 20: collectAt} {
		if got := percentOf(live); got != want {
			t.Errorf("%d MiB in use: the collector works at %d %%, want %d", live>>20, got, want)
		}
	}
	percent := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	var p pacer
	p.adjust()
	if got := debug.SetGCPercent(100); got != p.percent || got < collectAt {
		t.Errorf("the collector works at %d %%, want %d", got, p.percent)
	}
	const times = 3
	collected, n := make(chan struct{}), 0
	afterEachCollection(func() bool {
		if n++; n == times {
			close(collected)
		}
		return n < times
	})
	for end := time.After(time.Minute); ; {
		runtime.GC()
		select {
		case <-collected:
			return
		case <-end:
			t.Fatal("collections went unnoticed")
		default:
		}
	}
}

// Memory is returned once, after the first lists.
func TestReturnMemory(t *testing.T) {
	forced := func() uint32 {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.NumForcedGC
	}
	for sentence, c := range map[string]struct {
		ended bool
		lists error
		want  uint32
	}{
		"after the lists":  {false, nil, 1},
		"the lists fail":   {false, context.Canceled, 0},
		"the program ends": {true, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			if c.ended {
				end()
			}
			before := forced()
			ReturnMemory(ctx, func(context.Context) error { return c.lists })
			if got := forced() - before; got != c.want {
				t.Errorf("%s: %d collections, want %d", sentence, got, c.want)
			}
		})
	}
}
