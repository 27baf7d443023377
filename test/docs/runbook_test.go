package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

var (
	// reasonTable is a table of reasons; its first column names them.
	reasonTable = regexp.MustCompile(`(?m)^\| reason \|.*\n\|.*\n((?:\|.*\n)+)`)
	firstColumn = regexp.MustCompile("(?m)^\\| (`.*?`) \\|")
	quoted      = regexp.MustCompile("`(\\w+)`")
)

// TestNoTextSaysThatAllWritesAreAdmitted while shipped webhooks have failurePolicy Fail.
func TestNoTextSaysThatAllWritesAreAdmitted(t *testing.T) {
	root := process.RootForTest(t)
	webhooks, err := filepath.Glob(filepath.Join(root, "deploy", "manifests", "*-webhook.yaml"))
	if err != nil || !slices.ContainsFunc(webhooks, func(file string) bool {
		return strings.Contains(read(t, file), "failurePolicy: Fail")
	}) {
		t.Fatalf("of %q none refuses a write: %v", webhooks, err)
	}
	texts := append(markdown(t), file{"the alerts", read(t, filepath.Join(root, "deploy", "alerts",
		"csi-reclaimer.rules.yaml"))})
	for _, page := range texts {
		for _, wrong := range []string{"admits every write", "blocks no write", "Nothing is lost"} {
			if strings.Contains(page.text, wrong) {
				t.Errorf("%s: %q", page.name, wrong)
			}
		}
	}
}

// People look a reason up by the word of an Event.
func TestRunbooksNameExistingReasons(t *testing.T) {
	root := process.RootForTest(t)
	known := slices.Concat(words(reclaim.Reasons()), words(provision.Reasons()), words(intree.Reasons()),
		words(inuse.Reasons()), words(podsafety.Reasons()), words(singlenode.Reasons()),
		words(statefulset.Reasons()), words(fencing.Reasons()))
	files, err := filepath.Glob(filepath.Join(root, "docs", "how-to", "respond-to-alerts*.md"))
	must(t, err)
	named, pages := 0, ""
	for _, file := range files {
		pages += read(t, file)
	}
	for _, table := range reasonTable.FindAllStringSubmatch(pages, -1) {
		for _, row := range firstColumn.FindAllStringSubmatch(table[1], -1) {
			for _, word := range quoted.FindAllStringSubmatch(row[1], -1) {
				named++
				if !slices.Contains(known, word[1]) {
					t.Errorf("the runbooks name %s, which is no reason", word[1])
				}
			}
		}
	}
	if named < 20 {
		t.Errorf("the runbooks name only %d reasons", named)
	}
}
