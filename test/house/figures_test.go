package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// figuresOf measures a tree of these files.
func figuresOf(t *testing.T, files map[string]string) map[string]*figure {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		write(t, root, name, text)
	}
	all := must.Get(measure(root))(t)
	figures := map[string]*figure{}
	for _, f := range all {
		figures[f.name] = f
	}
	return figures
}

// expect compares figures by their names, and the places that they name.
func expect(t *testing.T, figures map[string]*figure, want map[string]float64, places ...string) {
	t.Helper()
	for name, value := range want {
		f := figures[name]
		if f == nil {
			t.Fatalf("there is no figure %q", name)
		}
		if now := f.now(); math.Abs(now-value) > 0.005 {
			t.Errorf("%s: %g, want %g", name, now, value)
		}
		if len(places) > 0 && !slices.Equal(f.heaviest(), places) {
			t.Errorf("%s: heaviest %q, want %q", name, f.heaviest(), places)
		}
	}
}

func TestLinesCountByClass(t *testing.T) {
	code, page := "package a\n\nfunc f() {}\n", "# A\n\nText.\n"
	expect(t, figuresOf(t, map[string]string{
		"pkg/a/a.go": code, "cmd/b/b.go": code, "tools/c/c.go": code, "pkg/a/zz_generated.go": code,
		"pkg/a/a_test.go": code, "test/e/e.go": code, "test/e/e_test.go": code, "test/e/testdata/e.go": code,
		"README.md": page, "docs/x.md": page, ".build/x.md": page, ".build/x.go": code, "docs/x.txt": page,
		"web/node_modules/x/x.md": page,
	}), map[string]float64{
		"lines of shipped Go": 9, "lines of tests and their harness": 9, "lines of Markdown": 6,
	})
}

// TestFunctionCountsMatchLinters counts functions at each bound and one beyond it.
func TestFunctionCountsMatchLinters(t *testing.T) {
	function := func(name string, statements ...string) string {
		return "func " + name + "(a, b bool) {\n" + strings.Join(statements, "\n") + "\n}\n"
	}
	lines := func(n int) []string { return slices.Repeat([]string{"\tprintln()"}, n) }
	branches := []string{
		"if a && b || a {", "}", "for range 3 {", "}", "for a {", "}", "switch {", "case a:", "case b:", "default:", "}",
		"select {", "default:", "}", "func() { if a { } }()", "if b { }", "if b { }", "if b { }",
	} // 14 with the function itself
	one := []string{"if a { }"}
	code := "package a\n" + function("Short", slices.Concat(lines(60), []string{"\t// comment"})...) +
		function("Long", lines(61)...) + function("Simple", slices.Concat(branches, one)...) +
		function("Complex", slices.Concat(branches, one, one)...)
	figures := figuresOf(t, map[string]string{"test/a/a.go": code, "pkg/a/a_test.go": code, "pkg/a/b.go": "package a\n"})
	expect(t, figures, map[string]float64{"functions over 60 lines": 1}, "test/a/a.go:Long (1)")
	expect(t, figures, map[string]float64{"functions of complexity over 15": 1}, "test/a/a.go:Complex (1)")
}

func TestFoldersCountOverTwelveShippedFiles(t *testing.T) {
	files := map[string]string{}
	for i := range 13 {
		files[fmt.Sprintf("pkg/full/%d.go", i)] = "package full\n"
		files[fmt.Sprintf("test/harness/%d.go", i)] = "package harness\n"
		files[fmt.Sprintf("pkg/tested/%d_test.go", i)] = "package tested\n"
		if i < 12 {
			files[fmt.Sprintf("pkg/fits/%d.go", i)] = "package fits\n"
		}
	}
	expect(t, figuresOf(t, files), map[string]float64{"folders with over 12 files": 1}, "pkg/full (1)")
}

func TestPackagesWithQueuesCount(t *testing.T) {
	queue := "package a\n\nimport _ \"k8s.io/client-go/util/workqueue\"\n"
	expect(t, figuresOf(t, map[string]string{"pkg/a/loop.go": queue, "pkg/a/more.go": queue, "internal/b/b.go": queue,
		"pkg/c/c_test.go": queue, "test/d/d.go": queue}), map[string]float64{"packages with queues of client-go": 2},
		"internal/b (1)", "pkg/a (1)")
}

func TestRoleFilesCountInControllers(t *testing.T) {
	loop := "package a\n\nimport _ \"example.com/internal/controller\"\n\n"
	files := map[string]string{
		"pkg/a/controller.go": loop,                               // 4 lines
		"pkg/a/metrics.go":    "package a\n\n",                    // 2
		"pkg/a/rules.go":      "package a\n" + "//\n//\n//\n//\n", // 5, of no role
		"pkg/a/doc.go":        "package a\n\n\n\n\n\n",            // of none, and not counted
		"pkg/a/watch_test.go": loop,
	}
	no := maps.Clone(files)
	no["pkg/b/controller.go"] = "package b\n\n\n\n\n" // imports no loop
	no["pkg/a/sub/controller.go"] = loop              // part of a feature
	no["internal/c/controller.go"] = loop
	for _, files := range []map[string]string{files, no} {
		expect(t, figuresOf(t, files), map[string]float64{"role files in controllers, %": 100 * 6. / 11},
			"pkg/a/controller.go (4)", "pkg/a/metrics.go (2)")
	}
}

func TestMirrorsCountByStructName(t *testing.T) {
	code := `package a

type (
	Pod struct{}
	podFacts struct{}
	PVRecord struct{}
	Attachment struct{}
	Claim = int
	Facts struct{}
	Record struct{}
	podList struct{}
	Volume struct{}
)

func f() { type node struct{} }
`
	expect(t, figuresOf(t, map[string]string{
		"pkg/a/a.go": code, "internal/objects/pod.go": code, "pkg/apis/b/b.go": code, "test/a/a.go": code,
		"pkg/a/a_test.go": code,
	}), map[string]float64{"structs that mirror API kinds": 5}, "pkg/a/a.go (5)")
}

func TestPublicNamesCountInPackagesForOthers(t *testing.T) {
	code := `package a

const A, b = 1, 2

var C = 1

type T[X any] struct{ Field int }

func (t *T[X]) Method() {}

func (t T[X]) method() {}

type u struct{}

func (u) Method() {}

func F() {}
`
	expect(t, figuresOf(t, map[string]string{
		"pkg/a/a.go": code, "pkg/a/a_test.go": code, "pkg/a/zz_a.go": code,
		"internal/a/a.go": code, "cmd/a/a.go": code, "mock-driver/a/a.go": code, "test/a/a.go": code,
	}), map[string]float64{"public names": 5}, "pkg/a/a.go (5)")
}

func TestProseOfCommentsCountsShippedGo(t *testing.T) {
	code := `// Copyright what.
package a

//go:build what

// What says what: those that
// one that. Somebody knows whatever. Two words.
func f() {
	//nolint:what // what
	g() // what
}
`
	expect(t, figuresOf(t, map[string]string{"pkg/a/a.go": code, "pkg/a/a_test.go": code, "test/a/a.go": code}),
		map[string]float64{
			`comments: "what" in 1000 words`:                   1000 * 2. / 12,
			`comments: "that one", "those that" in 1000 words`: 1000 * 2. / 12,
			`comments: "somebody", "nobody" in 1000 words`:     1000 * 1. / 12,
			"comments: words in a sentence":                    10. / 2,
		})
}

func TestProseOfPagesLeavesOutCodeTablesAndHeadings(t *testing.T) {
	page := "# What\n\nWhat is it? One thing.\n\n| what | what |\n\n    what\n\n```\nwhat\n```\n\n" +
		"1. item:\n\n   ```\n   what\n   ```\n"
	figures := figuresOf(t, map[string]string{"a/DESIGN.md": page, "README.md": page, "docs/b.md": page})
	for kind, what := range map[string]float64{"DESIGN.md": 1000. / 7, "docs": 1000. / 7} {
		expect(t, figures, map[string]float64{kind + `: "what" in 1000 words`: what, kind + ": words in a sentence": 3})
	}
}

func TestSentencesFarFromTheGoalAreTheHeaviest(t *testing.T) {
	sentence := func(words int) string { return strings.Repeat("w ", words-1) + "w.\n" }
	expect(t, figuresOf(t, map[string]string{
		"short.md": sentence(5), "short2.md": sentence(6) + sentence(6), "good.md": sentence(15), "long.md": sentence(20),
	}), map[string]float64{"docs: words in a sentence": 52. / 5},
		"short2.md (6)", "short.md (5)", "long.md (20)")
}

func TestSentencesMayVaryWithinTheGoal(t *testing.T) {
	f := newProse("docs").sentence
	for _, test := range []struct {
		now, limit    float64
		worse, better bool
	}{
		{12.7, 12.7, false, false}, {12.6, 12.7, true, false}, {12.84, 12.7, false, true}, {14, 12.7, false, true},
		{13, 17, false, false}, {17, 13, false, false}, {12.9, 17, true, false}, {17.1, 17, true, false},
		{19, 19, false, false}, {19.1, 19, true, false}, {18.5, 19, false, true},
	} {
		f.places = map[string]tally{"a": {test.now, 1}}
		if worse, better := f.worse(test.limit), f.better(test.limit); worse != test.worse || better != test.better {
			t.Errorf("%g with limit %g: worse %v, better %v", test.now, test.limit, worse, better)
		}
	}
}

func TestValuesRoundBeforeTheyCompare(t *testing.T) {
	f := figure{step: ratioStep, scale: 1000, places: map[string]tally{"a": {14_204, 1_000_000}}}
	if now := f.now(); now != 14.2 || f.worse(14.2) {
		t.Errorf("%g is worse than 14.2: %v", now, f.worse(14.2))
	}
}

func TestLimitsAreRoundedToSteps(t *testing.T) {
	f := figure{most: 69_000, step: linesStep}
	for now, want := range map[float64]float64{75_951: 76_000, 76_000: 76_000, 76_001: 76_500, 68_000: 69_000} {
		f.places = map[string]tally{"a": {now, 0}}
		if limit := f.limit(); limit != want || f.worse(limit) || f.better(limit) {
			t.Errorf("limit %g of %g, want %g", limit, now, want)
		}
	}
}

func TestRiddlesCountInNamesOfTests(t *testing.T) {
	code := "package a\n\nfunc TestWhatWakes() {}\nfunc TestThatIsIt() {}\nfunc TestDeletion() {}\n" +
		"func TestAnswerIsNothing() {}\nfunc what() {}\nfunc BenchmarkWhat() {}\n"
	expect(t, figuresOf(t, map[string]string{"pkg/a/a_test.go": code, "pkg/a/a.go": code}),
		map[string]float64{"riddles in names of tests, %": 75}, "pkg/a/a_test.go (3)")
}

func TestWideLinesAndLongPagesCount(t *testing.T) {
	wide := strings.Repeat("wide ", 21)
	page := wide + "\n| " + wide + "|\n```\n" + wide + "\n```\n[" + strings.Repeat("x", 100) + "](y)\n" +
		strings.Repeat("é", 50) + " " + strings.Repeat("é", 49) + "\n"
	long := strings.Repeat("word\n", 2501)
	figures := figuresOf(t, map[string]string{
		"a.md": page, "test/bench/report.md": page + long, "long.md": long, "fits.md": long[5:], "CHANGELOG.md": long,
	})
	expect(t, figures, map[string]float64{"lines of Markdown over 100 columns": 1}, "a.md (1)")
	expect(t, figures, map[string]float64{"pages over 2500 words": 1}, "long.md (1)")
	for text, want := range map[string]bool{
		"two words": true, "- two words": true, "see [a](b) there": true, "[a b](c)": true,
		"[a](b),": false, "- [a](b)": false, "[a]: https://example.com": false, "word": false,
	} {
		if breakable(text) != want {
			t.Errorf("%q can be broken: %v, want %v", text, !want, want)
		}
	}
}
