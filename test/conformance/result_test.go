package conformance

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestStoreHasResultsOfThatRunAlone(t *testing.T) {
	t.Parallel()
	store := Store(t.TempDir())
	known := Result{Suite: suite, Parts: Ours, Kubernetes: "v1.99.7", Commit: "abc",
		Specs: []Spec{{Name: "A", State: Passed}}}
	if _, has, err := store.load(known.Suite, known.Parts); has || err != nil {
		t.Errorf("an empty store has a result: %v, %v", has, err)
	}
	must.OK(t, store.save(known))
	got, has, err := store.load(known.Suite, known.Parts)
	if err != nil || !has || got.Commit != known.Commit || !slices.Equal(got.Specs, known.Specs) {
		t.Errorf("%+v, %v, %v, want %+v", got, has, err, known)
	}
	for name, c := range map[string]struct {
		change func(*Result)
		same   bool
	}{
		"the same":             {func(*Result) {}, true},
		"another Kubernetes":   {func(r *Result) { r.Kubernetes = "v1.99.8" }, false},
		"the other parts":      {func(r *Result) { r.Parts = Stock }, false},
		"another focus":        {func(r *Result) { r.Suite.Focus = "B" }, false},
		"other specs left out": {func(r *Result) { r.Suite.LeftOut = nil }, false},
	} {
		want := known
		c.change(&want)
		if got.of(want) != c.same {
			t.Errorf("%s: the result counts: %v, want %v", name, !c.same, c.same)
		}
	}
}

// TestKnownResultsAreOfBothParts: a suite with results of one commit with stock parts, and of another with ours, has
// no comparison.
func TestKnownResultsAreOfBothParts(t *testing.T) {
	t.Parallel()
	store, suites := Store(t.TempDir()), []Suite{suite}
	for i, c := range []struct {
		parts  Parts
		commit string
		known  int
	}{{Stock, "abc", 0}, {Ours, "abc", 2}, {Ours, "def", 0}, {Stock, "def", 2}} {
		must.OK(t, store.save(Result{Suite: suite, Parts: c.parts, Kubernetes: "v1.99.7", Commit: c.commit}))
		if results, err := store.Known(suites, "v1.99.7"); err != nil || len(results) != c.known {
			t.Errorf("%d: %d results, %v", i, len(results), err)
		}
		if results, err := store.Known(suites, "v1.99.8"); err != nil || len(results) > 0 {
			t.Errorf("%d: of another Kubernetes: %+v, %v", i, results, err)
		}
	}
}

// suites are those of the page.
func suites(t *testing.T) []Suite {
	t.Helper()
	all := must.Get(Suites(""))(t)
	return all
}

func TestSuitesHaveNamesAndFocusOfTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range suites(t) {
		for _, name := range []string{s.slug(), s.Focus} {
			if name == "" || seen[name] {
				t.Errorf("%q is there twice, or empty", name)
			}
			seen[name] = true
		}
		if s.Subject == "" {
			t.Errorf("%s: no subject", s.Name)
		}
		s.whyLeftOut("") // panics if an expression is invalid
	}
}

func TestLineIsRedrawnOnTerminalAlone(t *testing.T) {
	t.Parallel()
	for terminal, want := range map[bool][]string{true: {"\r", "1 of 3 specs, 0 failed", "2 of 3 specs, 1 failed"},
		false: {"Some, ours\n"}} {
		var out bytes.Buffer
		line := NewLine(&out, terminal)
		line.begin(Result{Suite: suite, Parts: Ours})
		line.show(done{Total: 3, Completed: 1})
		line.show(done{Total: 3, Completed: 1, Failed: 1})
		line.end()
		if strings.Count(out.String(), "\n") != 1 {
			t.Errorf("terminal %v: %q, want one line", terminal, out.String())
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("terminal %v: %q, want %q in it", terminal, out.String(), text)
			}
		}
	}
}

var suite = Suite{Name: "Some", Focus: `^A `, LeftOut: map[string]string{`slow$`: "it takes hours"}}

// ginkgo is a report of specs, each in JSON, of which Ginkgo meant to run some.
func ginkgo(will string, specs ...string) string {
	return `[{"PreRunStats":{"SpecsThatWillRun":` + will + `},"SpecReports":[` + strings.Join(specs, ",") + `]}]`
}

func it(name, state, more string) string {
	return `{"ContainerHierarchyTexts":["A"],"LeafNodeType":"It","LeafNodeText":"` + name + `","State":"` + state + `"` +
		more + `}`
}

const begun = `,"NumAttempts":1`

func TestReportHasEachSpecOfFocus(t *testing.T) {
	t.Parallel()
	specs, err := readReport(strings.NewReader(ginkgo("4",
		it("panics", "panicked", begun),
		it("fails", "failed", begun+`,"Failure":{"Message":"expected a PV"}`),
		it("passes", "passed", begun),
		it("needs a cloud", "skipped", begun+`,"Failure":{"Message":"no cloud"}`),
		it("is slow", "skipped", ""),
		strings.ReplaceAll(it("is slow", "skipped", ""), `["A"]`, `["B"]`), // outside of the focus
		`{"LeafNodeType":"BeforeSuite","State":"passed"}`)), suite)
	if err != nil {
		t.Fatal(err)
	}
	want := []Spec{{"A fails", Failed, "expected a PV"}, {"A is slow", LeftOut, "it takes hours"},
		{"A needs a cloud", LeftOut, "no cloud"}, {"A panics", Failed, "panicked"}, {"A passes", Passed, ""}}
	if len(specs) != len(want) {
		t.Fatalf("%+v, want %+v", specs, want)
	}
	for i := range want {
		if specs[i] != want[i] {
			t.Errorf("%+v, want %+v", specs[i], want[i])
		}
	}
}

// TestReportWithoutResultsIsError has reports that must not count as results: a spec would be missing unseen.
func TestReportWithoutResultsIsError(t *testing.T) {
	t.Parallel()
	passed := it("passes", "passed", begun)
	for name, c := range map[string]struct{ report, want string }{
		"a spec is missing": {ginkgo("2", passed, it("waits", "skipped", "")), "1 of 2 specs"},
		"no spec":           {ginkgo("0", it("waits", "skipped", "")), "no spec"},
		"half a file":       {ginkgo("1", passed)[:40], "read report"},
		"the suite's beginning": {ginkgo("1",
			`{"LeafNodeType":"BeforeSuite","State":"failed","Failure":{"Message":"no node"}}`), "no node"},
		"interrupted": {strings.Replace(ginkgo("2", passed), "{", `{"SpecialSuiteFailureReasons":["Interrupted"],`, 1),
			"Interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			specs, err := readReport(strings.NewReader(c.report), suite)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v, want an error with %q", specs, err, c.want)
			}
		})
	}
}
