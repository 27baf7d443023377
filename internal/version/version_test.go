package version

import "testing"

// TestGet: nothing sets the version of a test. That the Makefile sets it is tested with a whole release in test/deploy.
func TestGet(t *testing.T) {
	if got := Get(); got != "unknown" {
		t.Errorf("the version is %q", got)
	}
}
