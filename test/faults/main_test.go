//go:build unix

package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// bench is shared by all tests. Its sidecar has the race detector if the test has it. An interrupt ends interrupted,
// and with it every running scenario.
var (
	bench       *Bench
	interrupted context.Context
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	// A scenario waits for other programs most of the time.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := suite.Interruptible()
	defer stop()
	interrupted = ctx
	var err error
	if bench, err = Open(ctx, os.Stderr, process.RaceFlags()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := bench.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return m.Run()
}
