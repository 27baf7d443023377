//go:build unix

package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

var update = flag.Bool("update", false, "write test/bench/report.md from report.json")

// TestReportPageIsMadeFromReport compares report.md with report.json, the only source of its figures.
func TestReportPageIsMadeFromReport(t *testing.T) {
	root := process.RootForTest(t)
	folder := filepath.Join(root, "test", "bench")
	data, err := os.ReadFile(filepath.Join(folder, "report.json"))
	must(t, err)
	var measured Report
	must(t, json.Unmarshal(data, &measured))
	var want bytes.Buffer
	must(t, measured.Markdown(&want))
	page := filepath.Join(folder, "report.md")
	got, err := os.ReadFile(page)
	must(t, err)
	if bytes.Equal(got, want.Bytes()) {
		return
	}
	if !*update {
		t.Fatal("test/bench/report.md is not made from report.json; run go test ./test/bench/report -update")
	}
	must(t, os.WriteFile(page, want.Bytes(), 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
