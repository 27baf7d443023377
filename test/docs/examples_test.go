package docs

import (
	"path/filepath"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

func TestDocsQuoteExamples(t *testing.T) {
	root := process.RootForTest(t)
	for _, name := range []string{"pkg/reclaim/example_cloud_test.go", "pkg/reclaim/example_csidriver_test.go",
		"pkg/provision/example_test.go", "pkg/provision/example_cloud_test.go", "pkg/provision/example_fake_test.go",
		"pkg/provision/example_production_test.go"} {
		code := read(t, filepath.Join(root, filepath.FromSlash(name)))
		CheckPart(t, "how-to/embed.md", name, "```go\n"+code+"```\n")
	}
}
