//go:build unix

package mockdriver

import "context"

// logLines is how much of a driver's log a failed test shows.
const logLines = 20

// TB is the part of testing.TB that ForTest needs, so that programs do not link package testing.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// ForTest starts a driver that ends with the test, and shows its log if the test has failed.
func ForTest(t TB, o Options) *Driver {
	t.Helper()
	d, err := Start(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the mock driver, which may be longer:\n%s", d.current().LogTail(logLines))
		}
		if err := d.Stop(); err != nil {
			t.Errorf("stop mock driver: %v", err)
		}
	})
	return d
}
