// Package goroutines checks that tests leave no goroutine behind, and that a state holds beside another goroutine.
// goleak alone looks for less than half a second, in which a goroutine on its way out may get no processor.
package goroutines

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds the wait for goroutines that end.
const patience = time.Minute

// Run runs a package's tests, and returns the exit code of the process: 1 if they pass and leave a goroutine behind.
func Run(m *testing.M) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	if err := left(patience); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// ExpectEnded fails the test if a goroutine stays. The options exclude goroutines.
func ExpectEnded(t testing.TB, options ...goleak.Option) {
	t.Helper()
	if err := left(patience, options...); err != nil {
		t.Error(err)
	}
}

// left returns an error that names the goroutines that do not end within the limit.
func left(limit time.Duration, options ...goleak.Option) error {
	for end := time.Now().Add(limit); ; {
		if err := goleak.Find(options...); err == nil || time.Now().After(end) {
			return err
		}
	}
}
