package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/kubectl-reclaim/internal/cli"
)

// Each command that the help lists has a page, and no page names this machine or this time.
func TestManPages(t *testing.T) {
	t.Setenv("HOME", "/home/of-a-builder")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	folder := t.TempDir()
	if _, err := root.Run(t, "man", folder); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{cli.Name + ".1": true}
	for _, cmd := range root.Discard().Commands() {
		want[cli.Name+"-"+cmd.Name()+".1"] = cmd.IsAvailableCommand()
	}
	for page, is := range want {
		text, err := os.ReadFile(filepath.Join(folder, page))
		if is != (err == nil) {
			t.Errorf("%s: %v, want a page: %t", page, err, is)
		}
		if is && (!strings.Contains(string(text), `"Nov 2023"`) || strings.Contains(string(text), "of-a-builder") ||
			!strings.Contains(string(text), "kubectl reclaim")) {
			t.Errorf("%s is\n%s", page, text)
		}
	}
	if _, err := root.Run(t, "man"); err == nil {
		t.Error("pages are written without a folder")
	}
}
