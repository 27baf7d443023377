package app

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// An interrupted task has failed. The caller would otherwise remove the program before its finalizers.
func TestAtEnd(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	broken, start := errors.New("broken"), fmt.Errorf("start: %w", context.Canceled)
	for sentence, c := range map[string]struct {
		ctx      context.Context
		task     bool
		err      error
		fails    error
		succeeds bool
	}{
		"it runs to its end":                 {t.Context(), false, nil, nil, true},
		"it fails":                           {t.Context(), false, broken, broken, false},
		"a call is cancelled by another":     {t.Context(), false, start, context.Canceled, false},
		"it ends during its start":           {ended, false, start, nil, true},
		"it fails at its end":                {ended, false, broken, broken, false},
		"a task is done":                     {t.Context(), true, nil, nil, true},
		"a task fails":                       {t.Context(), true, broken, broken, false},
		"a task is interrupted":              {ended, true, start, errInterrupted, false},
		"a task is interrupted in a wait":    {ended, true, nil, errInterrupted, false},
		"a task is interrupted after errors": {ended, true, errors.Join(broken, start), broken, false},
	} {
		err := AtEnd(c.ctx, c.task, c.err)
		if c.succeeds != (err == nil) || !errors.Is(err, c.fails) {
			t.Errorf("%s: %v", sentence, err)
		}
	}
}
