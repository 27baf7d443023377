//go:build unix

package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process/filelock"
)

func TestLockExcludesOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var inside atomic.Int32
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			lock, err := filelock.Acquire(t.Context(), path, nil)
			if err != nil {
				return err
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d holders at once", n)
			}
			runtime.Gosched()
			inside.Add(-1)
			return lock.Release()
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestAcquireWaitsUntilContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := filelock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filelock.Try(path); !errors.Is(err, filelock.ErrHeld) {
		t.Fatalf("second Try: %v, want ErrHeld", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
	defer cancel()
	waits := 0
	if _, err := filelock.Acquire(ctx, path, func() { waits++ }); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Acquire of a held lock: %v, want DeadlineExceeded", err)
	}
	if waits != 1 {
		t.Errorf("onWait called %d times, want once", waits)
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := filelock.Try(path)
	if err != nil {
		t.Fatalf("Try after Release: %v", err)
	}
	if err := again.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestLockOnRemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	old, err := filelock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Release() }()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	lock, err := filelock.Try(path)
	if err != nil {
		t.Fatalf("lock on the new file: %v", err)
	}
	if _, err := filelock.Try(path); !errors.Is(err, filelock.ErrHeld) {
		t.Fatalf("second Try: %v, want ErrHeld", err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
}
