//go:build unix

package previous

import (
	"context"
	"os"
)

// RequiredVariable, set to "required", has tests fail where the release before is not to be had. Otherwise they are
// skipped.
const RequiredVariable = "UPGRADES"

// TB is the part of testing.TB that ForTest needs.
type TB interface {
	Helper()
	Context() context.Context
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// ForTest returns the release before this checkout. Without one, it skips the test, or fails it: see
// [RequiredVariable].
func ForTest(t TB) Release {
	t.Helper()
	r, err := Find(t.Context())
	switch {
	case err == nil:
	case os.Getenv(RequiredVariable) == "required":
		t.Fatalf("%v", err)
	default:
		t.Skipf("%v", err)
	}
	return r
}
