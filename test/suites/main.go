// Command suites runs suites of tests, each a make target. It continues after one that fails, and says at its end how
// each ended, after which time, and how much processor time it took:
//
//	go run ./test/suites MAKE TARGET... [+ TARGET...] [- TARGET...]
//
// The suites run one after the other. Those after a plus sign run beside the others, also one after the other, and
// those after a minus sign do so with less priority: they compute while the others wait. A suite's output is printed in
// one piece when it ends; until then it is in .build/suites, in a file named after the suite.
//
// The exit status is 1 unless all ended well.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: suites MAKE TARGET... [+ TARGET...] [- TARGET...]")
		os.Exit(2)
	}
	os.Exit(runMain(os.Args[1], os.Args[2:]))
}

func runMain(program string, targets []string) int {
	root, err := process.ModuleRoot()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := runner{
		out: os.Stdout, folder: filepath.Join(root, ".build", "suites"), every: time.Minute,
		suite: func(s suite, output *os.File) (time.Duration, error) { return s.run(ctx, program, output) },
	}
	if !r.run(ctx, lanes(targets)) {
		return 1
	}
	return 0
}

// lanes splits the arguments at the signs.
func lanes(targets []string) [][]suite {
	all, yields := [][]suite{nil}, false
	for _, target := range targets {
		if target == "+" || target == "-" {
			all, yields = append(all, nil), target == "-"
			continue
		}
		last := len(all) - 1
		all[last] = append(all[last], suite{target: target, yields: yields})
	}
	return slices.DeleteFunc(all, func(lane []suite) bool { return len(lane) == 0 })
}

// suite is a make target. One that yields leaves the processors to the others.
type suite struct {
	target string
	yields bool
}

// run has make run the suite, and returns the processor time of all that ran in it.
func (s suite) run(ctx context.Context, program string, output *os.File) (processor time.Duration, err error) {
	command := []string{program, s.target}
	if s.yields {
		command = append([]string{"nice", "-n", "10"}, command...)
	}
	// Not CommandContext: a terminal's interrupt reaches the suite too, which then cleans up after itself.
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	unhook := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer unhook()
	err = cmd.Wait()
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
}
