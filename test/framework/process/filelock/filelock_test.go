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

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
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
	must.OK(t, group.Wait())
}

func TestAcquireWaitsUntilContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held := must.Get(filelock.Try(path))(t)
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
	must.OK(t, held.Release())
	again, err := filelock.Try(path)
	if err != nil {
		t.Fatalf("Try after Release: %v", err)
	}
	must.OK(t, again.Release())
}

func TestLockOnRemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	old := must.Get(filelock.Try(path))(t)
	defer func() { _ = old.Release() }()
	must.OK(t, os.Remove(path))
	lock, err := filelock.Try(path)
	if err != nil {
		t.Fatalf("lock on the new file: %v", err)
	}
	if _, err := filelock.Try(path); !errors.Is(err, filelock.ErrHeld) {
		t.Fatalf("second Try: %v, want ErrHeld", err)
	}
	must.OK(t, lock.Release())
}
