//go:build unix

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// maxTailBytes bounds how much of a log is read to find its last lines.
	maxTailBytes = 64 << 10
	// logPollInterval is how often WaitLog looks. Reading the end of a file costs microseconds.
	logPollInterval = 20 * time.Millisecond
)

// log is the output of one run of a program: the part of a file from start on.
type log struct {
	file  *os.File
	start int64

	closing sync.Once
}

// openLog opens path for appending, or a file without a name where path is empty.
func openLog(path string) (*log, error) {
	if path == "" {
		file, err := os.CreateTemp("", "process-*.log")
		if err != nil {
			return nil, fmt.Errorf("open log: %w", err)
		}
		// Unix keeps the file for processes that have it open.
		if err := os.Remove(file.Name()); err != nil {
			return nil, errors.Join(fmt.Errorf("open log: %w", err), file.Close())
		}
		return &log{file: file}, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open log: %w", err), file.Close())
	}
	return &log{file: file, start: info.Size()}, nil
}

func (l *log) close() { l.closing.Do(func() { _ = l.file.Close() }) }

// from reads the log from offset on, at most the last limit bytes.
func (l *log) from(offset, limit int64) ([]byte, error) {
	info, err := l.file.Stat()
	if err != nil {
		return nil, err
	}
	offset = max(offset, info.Size()-limit, 0)
	return io.ReadAll(io.NewSectionReader(l.file, offset, info.Size()-offset))
}

// LogTail returns up to the last n lines that this process wrote to its log, for use in messages. It never fails: an
// error message replaces an unreadable log.
func (p *Process) LogTail(n int) string {
	text, err := p.log.from(p.log.start, maxTailBytes)
	if err != nil {
		return fmt.Sprintf("(log of %s: %v)", p.name, err)
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// WaitLog waits until this process has written text to its log. The error names
// the end of the log when the process ends or ctx ends first.
func (p *Process) WaitLog(ctx context.Context, text string) error {
	ticker := time.NewTicker(logPollInterval)
	defer ticker.Stop()
	seen := p.log.start
	for {
		ended := !p.Running() // before the read: the log of an ended process is complete
		written, err := p.log.from(seen, 1<<30)
		if err != nil {
			return fmt.Errorf("wait for log of %s: %w", p.name, err)
		}
		if bytes.Contains(written, []byte(text)) {
			return nil
		}
		if ended {
			return fmt.Errorf("wait for %q in the log of %s: it ended: %w\n%s", text, p.name, endErr(p.Err()), p.LogTail(20))
		}
		// The text may be half written: keep its possible beginning.
		seen += max(0, int64(len(written)-len(text)+1))
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %q in the log of %s: %w\n%s", text, p.name, context.Cause(ctx), p.LogTail(20))
		case <-p.Done():
		case <-ticker.C:
		}
	}
}

// endErr gives a clean exit a name, so that it can stand where an error is expected.
func endErr(err error) error {
	if err == nil {
		return errExitedCleanly
	}
	return err
}

var errExitedCleanly = errors.New("exit status 0")
