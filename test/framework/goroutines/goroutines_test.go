package goroutines

import (
	"testing"

	"go.uber.org/goleak"
)

func TestGoroutineThatStaysIsFound(t *testing.T) {
	before := goleak.IgnoreCurrent()
	end := make(chan struct{})
	go func() { <-end }()
	if left(0, before) == nil {
		t.Error("a goroutine that does not end is not found")
	}
	close(end)
	ExpectEnded(t, before)
}
