package ledger

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

// maxField bounds the length of a field in bytes, because a gRPC request may contain strings of megabytes.
const maxField = 1024

// Writer appends entries to a ledger, and is safe for concurrent use.
type Writer struct {
	boot string
	now  func() time.Time

	mu  sync.Mutex
	out io.WriteCloser
	seq uint64
	err error
}

// Open opens a ledger for appending, creates it if necessary, and writes an entry of phase Started with the given
// note.
func Open(path, note string, now func() time.Time) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	if err := endLine(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return start(f, note, now)
}

// Discard returns a writer that discards its entries.
func Discard(now func() time.Time) *Writer {
	return &Writer{out: discard{}, now: now}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }

// endLine completes a line that a predecessor may have torn, so that the next entry has its own line.
func endLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	_, err = f.Write([]byte{'\n'})
	return err
}

func start(out io.WriteCloser, note string, now func() time.Time) (*Writer, error) {
	var boot [6]byte
	_, _ = rand.Read(boot[:]) // Never fails.
	w := &Writer{boot: hex.EncodeToString(boot[:]), now: now, out: out}
	w.Write(Entry{Phase: Started, Note: note, PID: os.Getpid()})
	if err := w.Err(); err != nil {
		_ = out.Close()
		return nil, err
	}
	return w, nil
}

// Write appends an entry with Time, Boot and Seq, and returns it as written.
func (w *Writer) Write(e Entry) Entry {
	for _, s := range []*string{&e.Volume, &e.Name, &e.Snapshot, &e.Node, &e.Error, &e.Note} {
		*s = text.Truncate(*s, maxField)
	}
	for i := range e.SecretKeys {
		e.SecretKeys[i] = text.Truncate(e.SecretKeys[i], maxField)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	e.Time, e.Boot, e.Seq = w.now().UTC(), w.boot, w.seq
	line, err := json.Marshal(e)
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("write ledger: %w", err)
	}
	return e
}

// Err returns the first write error, or nil. A driver without its ledger proves nothing, so the writer's owner should
// end on an error.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close writes an entry of phase Stopped and closes the ledger.
func (w *Writer) Close() error {
	w.Write(Entry{Phase: Stopped})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.out.Close(); err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return w.err
}
