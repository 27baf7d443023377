//go:build linux && !processwatchdog

package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// TestPauseReturnsWhenAllThreadsStopped pauses a program whose threads are busy, again and again.
func TestPauseReturnsWhenAllThreadsStopped(t *testing.T) {
	p := must.Get(process.Start(process.Command{Path: os.Args[0], Env: []string{roleVariable + "=busy"}}))(t)
	t.Cleanup(p.Close)
	waitLog(t, p, "ready")
	for range 100 {
		must.OK(t, p.Pause())
		if running := threadsNotStopped(t, p.PID()); len(running) > 0 {
			t.Fatalf("threads go on after Pause: %q", running)
		}
		must.OK(t, p.Resume())
	}
}

// threadsNotStopped returns the states of the threads of a process that are other than T, see proc_pid_stat(5).
func threadsNotStopped(t *testing.T, pid int) (states []string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("threads of process %d: %q, %v", pid, files, err)
	}
	for _, file := range files {
		stat := must.Get(os.ReadFile(file))(t)
		_, rest, _ := strings.Cut(string(stat), ") ")
		if state, _, _ := strings.Cut(rest, " "); state != "T" {
			states = append(states, state)
		}
	}
	return states
}
