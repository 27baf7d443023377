package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Lock locks a state directory for this process, and creates it if necessary. The kernel releases the lock at the end
// of the process in any case. Lock returns an error if another process holds the lock.
func Lock(state string) (unlock func() error, err error) {
	if err := os.MkdirAll(state, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(state, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("state directory %q is in use by another mock-driver", state)
		}
		return nil, fmt.Errorf("lock state directory %q: %w", state, err)
	}
	return f.Close, nil
}
