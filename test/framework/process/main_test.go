//go:build unix

package process_test

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// roleVariable makes the test binary play a program under test, or a test run that starts one.
const roleVariable = "PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		goleak.VerifyTestMain(m)
		return
	}
	play(role)
}

// play never returns. The waiting roles wait forever: only the tested code ends them.
func play(role string) {
	switch role {
	case "server":
		fmt.Println("ready", os.Getpid())
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		<-term
		fmt.Println("ending")
		os.Exit(0)
	case "crasher":
		fmt.Println("out of", "luck")
		os.Exit(3)
	case "deaf":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		fmt.Println("ready")
		time.Sleep(time.Hour)
	case "ticker":
		for i := 0; ; i++ {
			fmt.Println("tick", i)
			time.Sleep(time.Millisecond)
		}
	case "busy":
		fmt.Println("ready")
		for range 4 {
			go func() {
				for {
					_ = os.Getpid()
				}
			}()
		}
		time.Sleep(time.Hour)
	case "forker":
		// Its child holds the same standard output, and is started without this package.
		_ = os.Setenv(roleVariable, "deaf")
		child := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}}
		if _, err := syscall.ForkExec(os.Args[0], os.Args, child); err != nil {
			panic(err)
		}
		fmt.Println("forked")
		time.Sleep(time.Hour)
	case "parent":
		startChild()
		fmt.Println("started")
		time.Sleep(time.Hour)
	case "panicking parent":
		startChild()
		panic("a test that panics")
	case "exiting parent":
		startChild()
		os.Exit(0)
	case "parent with dead thread":
		// The goroutine that calls Start dies together with its thread, as threads of a Go program do.
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			startChild()
		}()
		<-done
		fmt.Println("started")
		time.Sleep(time.Hour)
	}
	panic("unknown role " + role)
}

// startChild starts a process that holds this one's standard output, which the test reads, and ignores
// all that can be ignored.
func startChild() {
	child, err := process.Start(process.Command{
		Path: os.Args[0], Env: []string{roleVariable + "=deaf"}, Stdout: os.Stdout,
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("child", child.PID())
}
