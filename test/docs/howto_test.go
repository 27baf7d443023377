package docs

import (
	"io/fs"
	"os"
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

// The alert about PVs without a finalizer has no label for the cause.
func TestRunbookOfUnprotectedPVsNamesCauses(t *testing.T) {
	page := read(t, filepath.Join(process.RootForTest(t), "docs", "how-to", "respond-to-alerts.md"))
	_, after, _ := strings.Cut(page, "### CSIReclaimerPVsUnprotected\n")
	section, _, _ := strings.Cut(after, "\n### ")
	for _, cause := range []string{"--dry-run", "observer", "DeletionUnprotected", "PVContested"} {
		if !strings.Contains(section, "`"+cause+"`") {
			t.Errorf("the runbook does not name %s", cause)
		}
	}
}

var (
	// messageTable is a table of messages; its first column quotes them.
	messageTable = regexp.MustCompile(`(?m)^\| message \|.*\n\|.*\n((?:\|.*\n)+)`)
	// joined matches where a string of the sources continues in the next line.
	joined = regexp.MustCompile(`"\s*\+\s*"`)
)

// TestTroubleshootingNamesRealMessages finds each message of the page in the sources. A "…" stands for any text.
func TestTroubleshootingNamesRealMessages(t *testing.T) {
	root := process.RootForTest(t)
	sources, named := sourcesOf(t, root), 0
	page := read(t, filepath.Join(root, "docs", "how-to", "troubleshoot.md"))
	for _, table := range messageTable.FindAllStringSubmatch(page, -1) {
		for _, row := range strings.Split(strings.TrimSpace(table[1]), "\n") {
			cell := strings.Split(row, " | ")[0]
			for i, message := range strings.Split(cell, "`") {
				if i%2 == 0 {
					continue // between two messages
				}
				named++
				for _, part := range strings.Split(message, "…") {
					if !strings.Contains(sources, strings.TrimSpace(part)) {
						t.Errorf("%q: no source has %q", message, part)
					}
				}
			}
		}
	}
	if named < 30 {
		t.Errorf("the page names only %d messages", named)
	}
}

// sourcesOf returns the shipped Go sources as one text, in which no string is broken into lines.
func sourcesOf(t *testing.T, root string) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range []string{"cmd", "internal", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(file string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
				return err
			}
			text, err := os.ReadFile(file)
			all.Write(text)
			return err
		})
		must(t, err)
	}
	return strings.ReplaceAll(joined.ReplaceAllString(all.String(), ""), `\"`, `"`)
}

// TestSwitchItOffReleasesOneController reads the sections that switch one controller off: the command releases all that
// its --controllers name, so with the list of the Deployment it would also end fences and the holds of other pods.
func TestSwitchItOffReleasesOneController(t *testing.T) {
	want := map[string][]string{
		"docs/how-to/pod-safety.md":         {"pod-safety", "single-node,pod-safety"},
		"docs/how-to/single-node.md":        {"single-node"},
		"docs/how-to/statefulset-claims.md": {"statefulset-claims"},
	}
	lists := regexp.MustCompile("`--controllers=([^`]*)`")
	found := 0
	for _, page := range markdown(t) {
		_, section, there := strings.Cut(page.text, "\n## Switch it off\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !there || !strings.Contains(section, "--release-finalizers") {
			continue
		}
		found++
		var named []string
		for _, list := range lists.FindAllStringSubmatch(section, -1) {
			named = append(named, list[1])
		}
		if !slices.Equal(named, want[page.name]) {
			t.Errorf("%s releases %q, want %q", page.name, named, want[page.name])
		}
		if words := strings.Join(strings.Fields(section), " "); strings.Contains(words, "among its `--controllers`") {
			t.Errorf("%s does not name the whole list", page.name)
		}
	}
	if found != len(want) {
		t.Errorf("%d pages release one controller, want %d", found, len(want))
	}
}
