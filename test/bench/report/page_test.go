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
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(root, "test", "bench")
	data, err := os.ReadFile(filepath.Join(folder, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var measured Report
	if err := json.Unmarshal(data, &measured); err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := measured.Markdown(&want); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(folder, "report.md")
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want.Bytes()) {
		return
	}
	if !*update {
		t.Fatal("test/bench/report.md is not made from report.json; run go test ./test/bench/report -update")
	}
	if err := os.WriteFile(page, want.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
