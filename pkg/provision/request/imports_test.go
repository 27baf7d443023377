package request

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The deciding packages have no access to a client, clock, logger or flags.
func TestImports(t *testing.T) {
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
