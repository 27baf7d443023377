//go:build unix

// Package filelock lets programs on one machine take turns. A lock is the kernel's (flock(2)): it
// ends with the program that holds it, so none is ever stale. It is exclusive
// between holders in one program too.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// pollInterval is how often a waiter tries again. flock can wait by itself, but not be interrupted.
const pollInterval = 50 * time.Millisecond

// ErrHeld is returned while another process holds the lock.
var ErrHeld = errors.New("held by another")

// Lock is a held lock.
type Lock struct{ file *os.File }

// Try takes the lock on the file at path, which is created if it is missing. The error is [ErrHeld] if the lock is
// taken.
func Try(path string) (*Lock, error) {
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		err = flock(file)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrHeld
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %q: %w", path, err), file.Close())
		}
		if current(file, path) {
			return &Lock{file: file}, nil
		}
		// The holder removed the file between our open and our lock: a lock on it has no effect.
		_ = file.Close()
	}
}

// Acquire waits for the lock. onWait, which may be nil, is called once if the lock is taken.
func Acquire(ctx context.Context, path string, onWait func()) (*Lock, error) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		lock, err := Try(path)
		if !errors.Is(err, ErrHeld) {
			return lock, err
		}
		if onWait != nil {
			onWait()
			onWait = nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %q: %w", path, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// Release gives the lock up. The file stays.
func (l *Lock) Release() error { return l.file.Close() }

func flock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// current says whether path still names the open file.
func current(file *os.File, path string) bool {
	held, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(held, named)
}
