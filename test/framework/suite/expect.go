//go:build unix

package suite

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Must ends the test on an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// waitTimeout bounds each wait. It is far above the usual time, even on a busy machine.
const waitTimeout = 2 * time.Minute

// Until waits for a condition.
func Until(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, waitTimeout, true,
		func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// PolicyIn returns the name of the policy that a refusal or a warning names, empty for none.
func PolicyIn(text string) string {
	_, rest, found := strings.Cut(text, "ValidatingAdmissionPolicy '")
	if !found {
		return ""
	}
	name, _, _ := strings.Cut(rest, "'")
	return name
}
