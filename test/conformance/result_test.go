package conformance

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestStoreHasResultsOfThatRunAlone(t *testing.T) {
	t.Parallel()
	store := Store(t.TempDir())
	known := Result{Suite: suite, Parts: Ours, Kubernetes: "v1.99.7", Commit: "abc",
		Specs: []Spec{{Name: "A", State: Passed}}}
	if _, has, err := store.load(known.Suite, known.Parts); has || err != nil {
		t.Errorf("an empty store has a result: %v, %v", has, err)
	}
	if err := store.save(known); err != nil {
		t.Fatal(err)
	}
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
		if err := store.save(Result{Suite: suite, Parts: c.parts, Kubernetes: "v1.99.7", Commit: c.commit}); err != nil {
			t.Fatal(err)
		}
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
	all, err := Suites("")
	if err != nil {
		t.Fatal(err)
	}
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
