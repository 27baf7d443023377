//go:build unix

package suite

import "sync"

// Warnings keeps the API server's warnings to a client, as the WarningHandler of its configuration.
type Warnings struct {
	mu   sync.Mutex
	said []string
}

// HandleWarningHeader takes a warning.
func (w *Warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// Take returns the warnings since its last call.
func (w *Warnings) Take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}
