//go:build unix

package subject

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is a process's use of resources up to now.
type Usage struct {
	// PeakMiB and ResidentMiB are the largest and the present resident set.
	PeakMiB, ResidentMiB float64
	// CPU is processor time in seconds, of user and system.
	CPU float64
}

// ticksPerSecond is USER_HZ, which Linux fixes at 100 for all programs.
const ticksPerSecond = 100

// UsageOf reads a process's use of resources up to now from /proc, which only Linux has.
func UsageOf(pid int) (Usage, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return Usage{}, fmt.Errorf("read memory of process %d: %w", pid, err)
	}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return Usage{}, fmt.Errorf("read processor time of process %d: %w", pid, err)
	}
	return parseUsage(string(status), string(stat))
}

// parseUsage reads /proc/PID/status and /proc/PID/stat (proc_pid_status(5), proc_pid_stat(5)).
func parseUsage(status, stat string) (u Usage, err error) {
	for _, field := range []struct {
		name string
		into *float64
	}{{"VmHWM:", &u.PeakMiB}, {"VmRSS:", &u.ResidentMiB}} {
		_, after, found := strings.Cut(status, field.name)
		var kB float64
		if _, err := fmt.Sscan(after, &kB); err != nil || !found {
			return Usage{}, fmt.Errorf("read process status: no %s in it", field.name)
		}
		*field.into = kB / 1024
	}
	// The program's name, in parentheses, may hold anything; utime and stime are the 12th and 13th field after it.
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 13 {
		return Usage{}, fmt.Errorf("read process stat: %d fields", len(fields))
	}
	for _, text := range fields[11:13] {
		ticks, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("read process stat: %w", err)
		}
		u.CPU += ticks / ticksPerSecond
	}
	return u, nil
}

// A process is at rest when it has used less than this share of a processor for this long.
const (
	restShare = 0.03
	restFor   = time.Second
)

// AtRest waits for a process to rest and returns its use then.
func AtRest(ctx context.Context, pid int) (Usage, error) {
	for {
		before, err := UsageOf(pid)
		if err != nil {
			return Usage{}, err
		}
		select {
		case <-ctx.Done():
			return Usage{}, fmt.Errorf("wait for process %d to rest: %w", pid, context.Cause(ctx))
		case <-time.After(restFor):
		}
		after, err := UsageOf(pid)
		if err != nil || after.CPU-before.CPU < restShare*restFor.Seconds() {
			return after, err
		}
	}
}

// busyFor is for how long processors are watched.
const busyFor = time.Second

// BusyPercent returns how busy all processors were for a second; 0 where /proc/stat is not known.
func BusyPercent(ctx context.Context) (float64, error) {
	before, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, nil //nolint:nilerr // not every system has it
	}
	select {
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(busyFor):
	}
	after, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, nil //nolint:nilerr // not every system has it
	}
	return busyBetween(string(before), string(after)), nil
}

// busyBetween compares the first lines of two /proc/stat: "cpu", then ticks of user, nice, system, idle, iowait and
// more (proc_stat(5)).
func busyBetween(before, after string) float64 {
	ticks := func(stat string) (idle, all float64) {
		line, _, _ := strings.Cut(stat, "\n")
		for i, field := range strings.Fields(line) {
			n, err := strconv.ParseFloat(field, 64)
			if err != nil || i > 8 { // guests are in user already
				continue
			}
			all += n
			if i == 4 || i == 5 {
				idle += n
			}
		}
		return idle, all
	}
	idle0, all0 := ticks(before)
	idle1, all1 := ticks(after)
	if all1 <= all0 {
		return 0
	}
	return 100 * (1 - (idle1-idle0)/(all1-all0))
}
