//go:build unix

package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

func results(stock, ours []Spec) []Result {
	return []Result{{Suite: suite, Parts: Stock, Kubernetes: "v1.99.7", Commit: "abc", Specs: stock},
		{Suite: suite, Parts: Ours, Kubernetes: "v1.99.7", Commit: "abc", Specs: ours}}
}

func TestSpecThatPassesWithStockPartsAloneIsRegression(t *testing.T) {
	t.Parallel()
	states := []Spec{{State: Passed}, {State: Failed}, {State: LeftOut}, {}}
	for _, stock := range states {
		for _, ours := range states {
			var r []Result
			stock.Name, ours.Name = "A spec", "A spec"
			switch {
			case stock.State == "" && ours.State == "":
				continue
			case ours.State == "":
				r = results([]Spec{stock}, nil)
			case stock.State == "":
				r = results(nil, []Spec{ours})
			default:
				r = results([]Spec{stock}, []Spec{ours})
			}
			found := Compare(r)
			if both := stock.State == Passed && ours.State == Passed; both != (len(found) == 0) {
				t.Errorf("stock %q, ours %q: %+v", stock.State, ours.State, found)
				continue
			}
			want := stock.State == Passed && ours.State != Passed
			if got := len(found) == 1 && found[0].Regression(); got != want {
				t.Errorf("stock %q, ours %q: regression %v, want %v", stock.State, ours.State, got, want)
			}
		}
	}
}

// TestRefusedForceDeletionIsNoRegression has the message of the API server, and others that are near it.
func TestRefusedForceDeletionIsNoRegression(t *testing.T) {
	t.Parallel()
	const policy = `pods "x" is forbidden: ValidatingAdmissionPolicy 'csi-reclaimer-pod-force-delete' with binding ` +
		`'csi-reclaimer-pod-force-delete-enforce' denied request: pod a/x: a force deletion does not wait`
	for reason, want := range map[string]bool{
		policy: true,
		strings.ReplaceAll(policy, "force-delete", "status"):              true,
		strings.ReplaceAll(policy, "force-delete", "gate-required"):       false,
		strings.ReplaceAll(policy, "denied request: pod ", "no such key"): false, // the policy itself fails
		"timed out": false,
	} {
		c := Comparison{Stock: Spec{State: Passed}, Ours: Spec{State: Failed, Reason: reason}}
		if c.Refused() != want || c.Regression() == want {
			t.Errorf("%s: refused %v, regression %v", reason, c.Refused(), c.Regression())
		}
	}
}

func TestPageShowsEachFailure(t *testing.T) {
	t.Parallel()
	page := Page([]Suite{suite, {Name: "Other", Subject: "all"}}, "v1.99.7", results(
		[]Spec{{Name: "A one", State: Passed}, {Name: "A two", State: Failed, Reason: "a|b [x]\nmore"},
			{Name: "A three", State: LeftOut, Reason: "no cloud"}, {Name: "A zero", State: LeftOut, Reason: "no cloud"}},
		[]Spec{{Name: "A one", State: Failed, Reason: "<nil>"}, {Name: "A two", State: Failed, Reason: "other"},
			{Name: "A three", State: LeftOut, Reason: "no cloud"}, {Name: "A zero", State: LeftOut, Reason: "no cloud"}}), "")
	for _, want := range []string{
		"Kubernetes v1.99.7:", "| Other | not run |",
		"| Some | 4 | 1 | 1 | 2 | 0 | 2 | 2 | 0 | abc |\n",
		"## Passed with stock parts alone\n\n| suite | spec | stock | ours |\n|---|---|---|---|\n" +
			"| Some | A one | passed | failed: &lt;nil> |\n",
		"## Failed with stock parts\n\n| suite | spec | stock | ours |\n|---|---|---|---|\n" +
			`| Some | A two | failed: a\|b \[x\] | failed: other |` + "\n",
		"| Some | 2 specs, such as: A three | left out: no cloud | left out: no cloud |\n\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

// TestPageKeepsRowsOfOtherSuites: a run of one suite leaves the rest of the page as it is.
func TestPageKeepsRowsOfOtherSuites(t *testing.T) {
	t.Parallel()
	suites := []Suite{suite, {Name: "Other", Subject: "all"}}
	all := results([]Spec{{Name: "A one", State: Passed}}, []Spec{{Name: "A one", State: Failed, Reason: "late"}})
	page := Page(suites, "v1.99.7", all, "")
	if again := Page(suites, "v1.99.7", nil, page); again != page {
		t.Errorf("without results: %s\nwant %s", again, page)
	}
	if newer := Page(suites, "v1.99.8", nil, page); strings.Contains(newer, "late") {
		t.Errorf("a row of an older Kubernetes: %s", newer)
	}
	all[1].Specs[0].State = Passed
	if passes := Page(suites, "v1.99.7", all, page); strings.Contains(passes, "late") {
		t.Errorf("a row of an earlier run: %s", passes)
	}
}

// TestPageHasEachSuite holds the page in the repository against the list of suites.
func TestPageHasEachSuite(t *testing.T) {
	t.Parallel()
	root := process.RootForTest(t)
	text := must.Get(os.ReadFile(filepath.Join(root, filepath.FromSlash(PagePath))))(t)
	if !strings.HasPrefix(string(text), pageHead) {
		t.Error("the head of the page is another one: run make conformance")
	}
	for _, s := range suites(t) {
		if !strings.Contains(string(text), "\n| "+s.Name+" | ") || !strings.Contains(string(text), s.Subject) {
			t.Errorf("suite %q is not on the page: run make conformance", s.Name)
		}
	}
}
