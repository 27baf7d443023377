package request

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// The deciding packages have no access to a client, clock, logger or flags.
func TestImports(t *testing.T) {
	for _, dir := range []string{".", "../topology"} {
		out := must.Get(exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, dir).Output())(t)
		for _, path := range strings.Fields(string(out)) {
			if slices.Contains([]string{"context", "flag", "math/rand", "os", "sync", "time", "google.golang.org/grpc"},
				path) || strings.HasPrefix(path, "k8s.io/client-go") {
				t.Errorf("%s imports %s", dir, path)
			}
		}
	}
}
