package request

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// What decides has no client, clock, logger or flags at hand.
func TestWhatDecidesCannotAct(t *testing.T) {
	for _, dir := range []string{".", "../topology"} {
		out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, dir).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range strings.Fields(string(out)) {
			if slices.Contains([]string{"context", "flag", "math/rand", "os", "sync", "time", "google.golang.org/grpc"},
				path) || strings.HasPrefix(path, "k8s.io/client-go") {
				t.Errorf("%s imports %s", dir, path)
			}
		}
	}
}
