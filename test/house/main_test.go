package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// write writes a file of a tree.
func write(t *testing.T, root, name, text string) {
	t.Helper()
	file := filepath.Join(root, filepath.FromSlash(name))
	must.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.OK(t, os.WriteFile(file, []byte(text), 0o644))
}

// settled returns the root of a tree with 22 structs that mirror API kinds, and all figures at their limits.
func settled(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, limitsFile, "1 functions over 60 lines\n") // which tightens
	write(t, root, "pkg/a/a.go", "package a\n\n"+strings.Repeat("type pod struct{}\n", 22))
	if status, out := house(t, root, "--update"); status != 0 {
		t.Fatalf("status %d with --update:\n%s", status, out)
	}
	return root
}

// house runs the command on a tree.
func house(t *testing.T, root string, args ...string) (status int, out string) {
	t.Helper()
	var stdout, stderr strings.Builder
	status = runMain(append(args, root), &stdout, &stderr)
	return status, stdout.String() + stderr.String()
}

// limitOf returns the limit of a figure in the file of limits.
func limitOf(t *testing.T, root, name string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(root, filepath.FromSlash(limitsFile))))(t)
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(line, " "+name+"\n") {
			return strings.Fields(line)[0]
		}
	}
	return ""
}

func TestSettledTreePasses(t *testing.T) {
	status, out := house(t, settled(t))
	if status != 0 || strings.Contains(out, "BETTER") {
		t.Errorf("status %d:\n%s", status, out)
	}
	table := strings.Join(strings.Fields(out), " ")
	for _, row := range []string{
		"figure | now | limit | goal", "structs that mirror API kinds | 22 | 22 | ≤ 20", "public names | 0 | 850 | ≤ 850",
		"lines of Markdown | 0 | 0 | –", "comments: words in a sentence | 0 | 0 | 13 to 17",
	} {
		if !strings.Contains(table, row) {
			t.Errorf("no row %q in\n%s", row, out)
		}
	}
}

func TestRegressionFailsAndNamesTheHeaviestPlaces(t *testing.T) {
	root := settled(t)
	for name, n := range map[string]int{"a": 1, "b": 3, "c": 2, "d": 4} {
		write(t, root, "docs/"+name+".md", strings.Repeat(strings.Repeat("wide ", 21)+".\n", n))
	}
	status, out := house(t, root)
	want := "WORSE   lines of Markdown over 100 columns: 10, limit 0, goal 0; " +
		"most in docs/d.md (4), docs/b.md (3), docs/c.md (2)\n"
	if status != 1 || !strings.Contains(out, want) {
		t.Errorf("status %d, want 1 and %q in\n%s", status, want, out)
	}
}

func TestImprovementPassesAndAsksForItsLimit(t *testing.T) {
	root := settled(t)
	write(t, root, "pkg/a/a.go", "package a\n\n"+strings.Repeat("type pod struct{}\n", 21))
	status, out := house(t, root)
	want := "BETTER  structs that mirror API kinds: 21, limit 22; commit what make house UPDATE=1 writes\n"
	if status != 0 || !strings.Contains(out, want) {
		t.Errorf("status %d, want 0 and %q in\n%s", status, want, out)
	}
	if limit := limitOf(t, root, "structs that mirror API kinds"); limit != "22" {
		t.Errorf("limit %s without --update, want 22", limit)
	}
}

func TestUpdateWritesStricterLimitsOnly(t *testing.T) {
	root := settled(t)
	write(t, root, "pkg/a/a.go", "package a\n\n"+strings.Repeat("type pod struct{}\n", 21))
	write(t, root, "docs/wide.md", strings.Repeat("wide ", 21)+".\n")
	status, out := house(t, root, "--update")
	if status != 1 || !strings.Contains(out, "WORSE   lines of Markdown over 100 columns: 1, limit 0") {
		t.Errorf("status %d, want 1 for the wide line:\n%s", status, out)
	}
	for name, want := range map[string]string{
		"structs that mirror API kinds": "21", "lines of Markdown over 100 columns": "0", "functions over 60 lines": "0",
	} {
		if limit := limitOf(t, root, name); limit != want {
			t.Errorf("limit %s of %s, want %s", limit, name, want)
		}
	}
}

func TestFigureWithinItsGoalMayMove(t *testing.T) {
	root := settled(t)
	write(t, root, "pkg/a/b.go", "package a\n\nfunc B() {}\n\nfunc C() {}\n")
	if status, out := house(t, root); status != 0 || strings.Contains(out, "BETTER") {
		t.Errorf("status %d, want 0: two public names are within the goal\n%s", status, out)
	}
}

func TestFigureWithoutLimitFails(t *testing.T) {
	root := settled(t)
	write(t, root, limitsFile, "# none\n\n22 structs that mirror API kinds\n")
	status, out := house(t, root)
	if want := "NEW     public names: 0, without a limit"; status != 1 || !strings.Contains(out, want) {
		t.Errorf("status %d, want 1 and %q in\n%s", status, want, out)
	}
	if strings.Contains(out, "NEW     structs") {
		t.Errorf("the limit of mirrors is not read:\n%s", out)
	}
}

func TestUnreadableInputIsAnError(t *testing.T) {
	for name, texts := range map[string][]string{
		limitsFile:   {"many public names\n", "1\n", "1 a\n2 a\n"},
		"pkg/a/b.go": {"package\n"},
	} {
		for _, text := range texts {
			root := settled(t)
			write(t, root, name, text)
			if status, out := house(t, root); status != 2 || !strings.Contains(out, name) {
				t.Errorf("%s with %q: status %d, want 2 and its name in\n%s", name, text, status, out)
			}
		}
	}
	if status, _ := house(t, t.TempDir(), "--unknown"); status != 2 {
		t.Errorf("status %d with an unknown flag, want 2", status)
	}
}

// TestCommittedLimitsNameTheFigures finds a limit whose figure is gone.
func TestCommittedLimitsNameTheFigures(t *testing.T) {
	limits := must.Get(readLimits("limits.txt"))(t)
	figures := must.Get(measure(t.TempDir()))(t)
	for _, f := range figures {
		if _, ok := limits[f.name]; !ok {
			t.Errorf("limits.txt has no limit of %q", f.name)
		}
		delete(limits, f.name)
	}
	for name := range limits {
		t.Errorf("limits.txt has a limit of %q, which is no figure", name)
	}
}
