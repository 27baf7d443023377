// Package explained has the common parts of tests about explanations.
package explained

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrForbidden is the error of a read that the API server refuses.
var ErrForbidden = errors.New("forbidden")

// Now is the time of all reads.
func Now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// Ago is a time before Now.
func Ago(d time.Duration) metav1.Time { return metav1.NewTime(Now().Add(-d)) }

// Expect checks that text contains each of the words, and does not contain words that begin with "!".
func Expect(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, words := range want {
		words, not := strings.CutPrefix(words, "!")
		if strings.Contains(text, words) == not {
			t.Errorf("%q is said: %v, in\n%s", words, !not, text)
		}
	}
}
