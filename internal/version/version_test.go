package version

import "testing"

// No version is set in a test. A test of a whole release in test/deploy checks that the Makefile sets it.
func TestGet(t *testing.T) {
	if got := Get(); got != "unknown" {
		t.Errorf("the version is %q", got)
	}
}
