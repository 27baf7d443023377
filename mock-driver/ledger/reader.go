package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// ErrDamaged means that a ledger has an invalid line that no interrupted write explains.
const ErrDamaged damage = "ledger is damaged"

type damage string

// Error implements error.
func (d damage) Error() string { return string(d) }

// Read returns all entries of a ledger, and none if the file does not exist yet. It skips a torn line where a killed
// writer may have left one: at the end, and before the first entry of another process.
func Read(path string) ([]Entry, error) {
	return NewTail(path).Next()
}

// Tail reads a ledger as it grows.
type Tail struct {
	path   string
	offset int64
	line   int
	torn   bool
}

// NewTail returns a Tail that starts with the first entry.
func NewTail(path string) *Tail { return &Tail{path: path} }

// Next returns the entries added since the last call.
func (t *Tail) Next() ([]Entry, error) {
	data, err := t.read()
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	var entries []Entry
	for {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			return entries, nil
		}
		data = rest
		t.offset += int64(len(line)) + 1
		t.line++
		var e Entry
		switch err := json.Unmarshal(line, &e); {
		case err != nil && !t.torn:
			t.torn = true
		case err != nil || t.torn && e.Phase != Started:
			return entries, fmt.Errorf("read %q up to line %d: %w", t.path, t.line, ErrDamaged)
		default:
			t.torn = false
			entries = append(entries, e)
		}
	}
}

func (t *Tail) read() ([]byte, error) {
	f, err := os.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(t.offset, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// pollEvery is the poll interval of Wait: short enough not to delay a test, and long enough not to load a busy
// machine.
const pollEvery = 5 * time.Millisecond

// Wait reads a ledger until enough returns true for its calls, and returns them. If ctx ends first, it returns the
// calls so far and an error.
func Wait(ctx context.Context, path string, enough func([]Call) bool) ([]Call, error) {
	tail := NewTail(path)
	var entries []Entry
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		more, err := tail.Next()
		entries = append(entries, more...)
		if err != nil {
			return Calls(entries), err
		}
		if first || len(more) > 0 {
			if calls := Calls(entries); enough(calls) {
				return calls, nil
			}
		}
		select {
		case <-ctx.Done():
			calls := Calls(entries)
			return calls, fmt.Errorf("wait for calls in the ledger, which has %d: %w", len(calls), context.Cause(ctx))
		case <-tick.C:
		}
	}
}
