package conformance

import (
	"strings"
	"testing"
)

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
