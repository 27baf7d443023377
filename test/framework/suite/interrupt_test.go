//go:build unix

package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// roleVariable has the test binary play a suite whose test ignores its context.
const roleVariable = "SUITE_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := Interruptible()
	defer stop()
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("interrupted")
	select {}
}

func TestSecondSignalEndsProcess(t *testing.T) {
	run := exec.Command(os.Args[0])
	run.Env = append(os.Environ(), roleVariable+"=suite")
	stdout := must.Get(run.StdoutPipe())(t)
	must.OK(t, run.Start())
	t.Cleanup(func() { _ = run.Process.Kill() })
	lines := bufio.NewScanner(stdout)
	for _, want := range []string{"ready", "interrupted"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("it says %q, want %q", lines.Text(), want)
		}
		must.OK(t, run.Process.Signal(syscall.SIGTERM))
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	for {
		select {
		case err := <-ended:
			if err == nil || err.Error() != "signal: terminated" {
				t.Errorf("it ended with %v", err)
			}
			return
		case <-time.After(10 * time.Millisecond): // the default action may come after the line
			_ = run.Process.Signal(syscall.SIGTERM)
		}
	}
}

func TestInterruptEndsContextOfTest(t *testing.T) {
	interrupted, interrupt := context.WithCancel(t.Context())
	ctx := Context(interrupted, t, time.Hour)
	if ctx.Err() != nil {
		t.Fatal(ctx.Err())
	}
	interrupt()
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), ErrInterrupted) {
		t.Errorf("it ended because of %v", context.Cause(ctx))
	}
	if later := Context(interrupted, t, time.Hour); !errors.Is(waited(later), ErrInterrupted) {
		t.Error("a later test runs")
	}
}

func waited(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
