package main

import (
	"context"
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

const sample = "test/mutation/testdata/sample"

// root is the repository's.
var root = filepath.Join("..", "..")

// sampled returns the mutants of the sample package.
func sampled(t *testing.T) *build {
	t.Helper()
	b, err := generate(t.Context(), root, []scope{
		{folder: sample, files: "sample.go", funcs: "decide"},
		{folder: sample, files: "sample.go", funcs: "tracker.*", statements: true},
		{folder: sample, files: "sample.go", funcs: "names", elements: true},
	}, []edit{
		{pkg: sample, name: "the first name counts", at: []place{{node: "s == name", instead: "s != name"}}},
		{pkg: sample, in: "tracker.learn", name: "what is noted is forgotten", at: []place{
			{node: "return t.ready", before: "if ON { t.ready = false }"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGenerate(t *testing.T) {
	var got []string
	for _, m := range sampled(t).mutants {
		got = append(got, strings.TrimPrefix(m.name(), sample+":"))
	}
	want := []string{
		"decide/case f.held",
		`decide/case f.bound && f.uses > 0 || f.phase == ""`,
		"decide/decision: without Timed",
		`decide/without f.phase == "" ||`,
		"decide/without f.bound &&",
		"decide/without f.bound && f.uses > 0 ||",
		"decide/without f.uses > 0 &&",
		`decide/switch p: case "Released"`,
		`decide/switch p: case "Failed"`,
		`decide/switch p: case "Available"`,
		"tracker.learn/without t.sent[name] = true",
		"tracker.learn/without t.wake(name)",
		"tracker.learn/if err != nil {return false} → never",
		"tracker.learn/return t.ready && !contains(names(), name) → false",
		"tracker.learn/without t.ready &&",
		"tracker.learn/without !contains(names(), name) &&",
		"tracker.learn/what is noted is forgotten",
		"tracker.forget/without delete(t.sent, name)",
		"names/[]string: without \"a\"",
		"names/[]string: without \"b\"",
		"contains/the first name counts",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Each mutant of the sample changes its functions' results. Without an active mutant the results stay the same.
func TestOneMutantIsActive(t *testing.T) {
	b := sampled(t)
	folder := t.TempDir()
	path := must.Get(filepath.Abs(filepath.Join(root, sample, "sample.go")))(t)
	// A program of its own, since a package in testdata has no tests of its own.
	write := func(name, text string) {
		must.OK(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	write("go.mod", "module sample\n\ngo 1.25\n")
	write("sample.go", asProgram(string(b.texts[path])))
	write("switches.go", asProgram(switches("sample", len(b.mutants))))
	write("main.go", program)
	binary := filepath.Join(folder, "sample")
	compile := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	compile.Dir = folder
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	say := func(n int) string {
		cmd := exec.CommandContext(t.Context(), binary)
		cmd.Env = append(os.Environ(), variable+"="+strconv.Itoa(n))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("mutant %d: %v\n%s", n, err, out)
		}
		return string(out)
	}
	plain := say(0)
	if want := "[wait true][keep false][keep false][none false][delete false][delete false][ false]" +
		"false false 1 1 false true false 1 [a b] true false\n"; plain != want {
		t.Errorf("without a mutant: got\n%s, want\n%s", plain, want)
	}
	for _, m := range b.mutants {
		if say(m.number) == plain {
			t.Errorf("mutant %q changes nothing", m.name())
		}
	}
}

func asProgram(text string) string { return strings.Replace(text, "package sample", "package main", 1) }

const program = `package main

import (
	"errors"
	"fmt"
)

func main() {
	for _, f := range []facts{
		{held: true}, {bound: true, uses: 1, phase: "x"}, {}, {bound: true, phase: "x"},
		{phase: "Released"}, {phase: "Failed", uses: 1}, {phase: "Available"},
	} {
		d := decide(f)
		fmt.Printf("[%s %v]", d.Action, d.Timed)
	}
	woken := 0
	t := &tracker{sent: map[string]bool{}, wake: func(string) { woken++ }}
	fmt.Print(t.learn("x", errors.New("no")), t.learn("x", nil), len(t.sent), woken, " ")
	t.ready = true
	fmt.Print(t.learn("x", errors.New("no")), t.learn("x", nil), t.learn("a", nil), " ")
	t.forget("x", &log{})
	fmt.Print(len(t.sent), " ")
	fmt.Println(names(), contains([]string{"z"}, "z"), contains([]string{"y"}, "z"))
}
`

// make mutants runs the mutants. This test shows that each compiles, and that no table is stale.
func TestMutantsCompile(t *testing.T) {
	b := must.Get(generate(t.Context(), root, scopes, edits))(t)
	if _, err := excuse(b.mutants, exceptions); err != nil {
		t.Error(err)
	}
	for i := range scopes {
		if !slices.ContainsFunc(b.mutants, func(m *mutant) bool { return m.scope == &scopes[i] }) {
			t.Errorf("scope %+v has no mutants", scopes[i])
		}
	}
	if err := b.check(); err != nil {
		t.Error(err)
	}
	for _, s := range scopes {
		for pattern := range strings.FieldsSeq(s.funcs) {
			if !b.has(s.folder, pattern) {
				t.Errorf("scope %+v: the package has no function %s", s, pattern)
			}
		}
	}
}

// has returns whether a package has a function.
func (b *build) has(folder, pattern string) bool {
	for _, src := range b.sources {
		if !strings.HasSuffix(filepath.ToSlash(src.folder), "/"+folder) {
			continue
		}
		for _, f := range src.files {
			if slices.ContainsFunc(f.functions(), func(fn *ast.FuncDecl) bool { return matches(pattern, functionName(fn)) }) {
				return true
			}
		}
	}
	return false
}

func TestStaleTablesAreRefused(t *testing.T) {
	for name, e := range map[string]edit{
		"no node":       {pkg: sample, in: "contains", name: "n", at: []place{{node: "gone", zero: true}}},
		"no function":   {pkg: sample, in: "gone", name: "n", at: []place{{node: "true", zero: true}}},
		"two functions": {pkg: sample, name: "n", at: []place{{node: "false", zero: true}}},
	} {
		if _, err := generate(context.Background(), root, nil, []edit{e}); err == nil ||
			!strings.Contains(err.Error(), `edit "n"`) {
			t.Errorf("%s: got %v, want an error", name, err)
		}
	}
	if _, err := excuse(sampled(t).mutants, []exception{{name: "gone"}}); err == nil {
		t.Error("an exception without a mutant is no error")
	}
}

// The report names the place of a surviving mutant and the tests that ran.
func TestReportOfSurvivingMutant(t *testing.T) {
	for _, m := range sampled(t).mutants {
		if m.what == "case f.held" && m.at != "sample.go:23" {
			t.Errorf("%s is at %s", m.name(), m.at)
		}
	}
	suites := []*suite{{name: "pkg/a"}, {name: "pkg/b", live: "TestThePolicy"}}
	for want, r := range map[string]*runner{
		"no test fails in pkg/a, pkg/b -run TestThePolicy":                     {},
		"no test fails in pkg/a, pkg/b -run TestThePolicy -skip " + exhaustive: {options: options{quick: true}},
	} {
		if got := r.asked(suites, true); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := (&runner{}).asked(suites[:1], false); got != "no test gets there in pkg/a" {
		t.Errorf("got %q", got)
	}
}

func TestPromise(t *testing.T) {
	said := "\nworld \"orders\": P2: DeleteVolume is sent\n   1. a user\n"
	if got := promise(said); got != "P2: DeleteVolume is sent" {
		t.Errorf("found %q", got)
	}
	if got := promise("world   states\n"); got != "the program ends" {
		t.Errorf("found %q where nothing is broken", got)
	}
}

// TestExhaustiveMatchesProductTests: a renamed test of all combinations would run first, and a mutant could hold it up.
// With --quick, an ordinary test that matches would notice no mutant.
func TestExhaustiveMatchesProductTests(t *testing.T) {
	matching := regexp.MustCompile(`(?m)^func (Test\w*(?:` + exhaustive + `)\w*)\(`)
	// The product of package provision takes milliseconds.
	for engine, want := range map[string]string{
		"fencing": "TestNoClusterExceedsPolicyLimits TestPictureMatchesDecisions " +
			"TestPromisesInEveryCombinationOfFenceAndAgent TestPromisesInEveryCombinationOfFenceAndNode",
		"intree": "TestPromisesInEveryCombinationOfReads TestPromisesInEveryCombinationOfStates",
		"podsafety": "TestPictureMatchesDecisions TestPromisesInEveryCombinationOfNodeFacts " +
			"TestPromisesInEveryCombinationOfPodFacts",
		"reclaim": "TestEveryCombinationOfPVRulesAndPast TestNoVolumeIsGivenUpInFlight TestPictureMatchesDecisions " +
			"TestRandomFacts TestRandomPVs",
		"singlenode": "TestNoCombinationFreesNeededLock TestNoCombinationOfClaimsLetsAPodRun " +
			"TestNoCombinationOfTheNamespaceLetsAPodRun TestNoCombinationOfUsersLetsAPodRun TestPictureMatchesDecisions",
		"statefulset": "TestNoCombinationOfObjectsBreaksAPromise TestNoCombinationOfReadsBreaksAPromise " +
			"TestPictureMatchesDecisions",
	} {
		files := must.Get(filepath.Glob(filepath.Join(root, "internal", "engine", engine, "*_test.go")))(t)
		var got []string
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(t)
			for _, match := range matching.FindAllSubmatch(text, -1) {
				got = append(got, string(match[1]))
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != want {
			t.Errorf("of %s, %s match, want %s", engine, got, want)
		}
	}
}
