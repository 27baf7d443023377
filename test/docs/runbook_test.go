package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

var (
	// reasonTable is a table of reasons; its first column names them.
	reasonTable = regexp.MustCompile(`(?m)^\| reason \|.*\n\|.*\n((?:\|.*\n)+)`)
	firstColumn = regexp.MustCompile("(?m)^\\| (`.*?`) \\|")
	quoted      = regexp.MustCompile("`(\\w+)`")
)

// People look a reason up by the word of an Event.
func TestRunbooksNameExistingReasons(t *testing.T) {
	root, err := process.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Concat(words(reclaim.Reasons()), words(provision.Reasons()), words(intree.Reasons()),
		words(inuse.Reasons()), words(podsafety.Reasons()), words(singlenode.Reasons()),
		words(statefulset.Reasons()), words(fencing.Reasons()))
	files, err := filepath.Glob(filepath.Join(root, "docs", "how-to", "respond-to-alerts*.md"))
	if err != nil {
		t.Fatal(err)
	}
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
