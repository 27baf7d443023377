// Command suites runs suites of tests, each a make target, one after the other. It continues after one that fails, and
// says at its end how each ended:
//
//	go run ./test/suites MAKE TARGET...
//
// It exits with status 1 unless all ended well.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: suites MAKE TARGET...")
		os.Exit(2)
	}
	os.Exit(runMain(os.Args[1], os.Args[2:]))
}

func runMain(program string, targets []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok := run(ctx, os.Stdout, targets, func(target string) error {
		// Not CommandContext: a terminal's interrupt reaches the suite too, which then cleans up after itself.
		suite := exec.Command(program, target)
		suite.Stdin, suite.Stdout, suite.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := suite.Start(); err != nil {
			return err
		}
		unhook := context.AfterFunc(ctx, func() { _ = suite.Process.Signal(syscall.SIGTERM) })
		defer unhook()
		return suite.Wait()
	})
	if !ok {
		return 1
	}
	return 0
}

// run calls suite for each target until ctx ends, writes how each ended, and reports whether all were run and ended
// without an error.
func run(ctx context.Context, out io.Writer, targets []string, suite func(target string) error) (ok bool) {
	summary := ""
	ok = true
	for _, target := range targets {
		if ctx.Err() != nil {
			summary += fmt.Sprintf("%-8s %8s  %s\n", "not run", "", target)
			ok = false
			continue
		}
		begun, word := time.Now(), "ok"
		if err := suite(target); err != nil {
			word, ok = "FAILED", false
			fmt.Fprintf(out, "%s: %v\n", target, err)
		}
		summary += fmt.Sprintf("%-8s %7.0fs  %s\n", word, time.Since(begun).Seconds(), target)
	}
	fmt.Fprint(out, "\n"+summary)
	return ok
}
