package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Result is how the specs of a suite ended with these parts.
type Result struct {
	Suite Suite
	Parts Parts
	// Kubernetes is its version, Commit the version of this tree.
	Kubernetes, Commit string
	Seconds            int
	Specs              []Spec
}

// Count returns how many specs ended in a state.
func (r Result) Count(state State) (n int) {
	for _, spec := range r.Specs {
		if spec.State == state {
			n++
		}
	}
	return n
}

// Store keeps results in a folder, so that an interrupted run goes on where it was.
type Store string

func (s Store) file(suite Suite, parts Parts, extension string) string {
	return filepath.Join(string(s), fmt.Sprintf("%s-%s.%s", suite.slug(), parts, extension))
}

// of reports whether two results are of the same specs and Kubernetes, at any commit.
func (r Result) of(other Result) bool {
	return reflect.DeepEqual(r.Suite, other.Suite) && r.Parts == other.Parts && r.Kubernetes == other.Kubernetes
}

// Known returns the results of suites that earlier runs have saved, each with those of both parts at one commit.
func (s Store) Known(suites []Suite, kubernetes string) (results []Result, err error) {
	for _, suite := range suites {
		var pair []Result
		for _, parts := range Both() {
			r, has, err := s.load(suite, parts)
			if err != nil {
				return nil, err
			}
			if has && r.of(Result{Suite: suite, Parts: parts, Kubernetes: kubernetes}) {
				pair = append(pair, r)
			}
		}
		if len(pair) == len(Both()) && pair[0].Commit == pair[1].Commit {
			results = append(results, pair...)
		}
	}
	return results, nil
}

// load returns the result of an earlier run, if there was one.
func (s Store) load(suite Suite, parts Parts) (r Result, has bool, err error) {
	text, err := os.ReadFile(s.file(suite, parts, "json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, false, fmt.Errorf("read result: %w", err)
	}
	return r, true, nil
}

// save writes a result at once or not at all.
func (s Store) save(r Result) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	file := s.file(r.Suite, r.Parts, "json")
	if err := os.WriteFile(file+".next", text, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".next", file)
}

// State is how a spec ended.
type State string

const (
	Passed  State = "passed"
	Failed  State = "failed"
	LeftOut State = "left out"
)

// Spec is one spec of a suite. Reason says why it failed, or was left out.
type Spec struct {
	Name   string
	State  State
	Reason string `json:",omitempty"`
}

// ginkgoReport is the part of Ginkgo's report (types.Report) that is read here.
type ginkgoReport struct {
	SpecialSuiteFailureReasons []string
	PreRunStats                struct{ SpecsThatWillRun int }
	SpecReports                []ginkgoSpec
}

type ginkgoSpec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	NumAttempts             int
	Failure                 struct{ Message string }
}

func (g ginkgoSpec) name() string {
	return strings.Join(append(g.ContainerHierarchyTexts, g.LeafNodeText), " ")
}

// readReport returns the specs of a suite from Ginkgo's report in JSON. A report that lacks specs is an error: the run
// was interrupted, could not begin, or its focus matches none.
func readReport(from io.Reader, suite Suite) ([]Spec, error) {
	var reports []ginkgoReport
	if err := json.NewDecoder(from).Decode(&reports); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	var specs []Spec
	ran, will := 0, 0
	for _, report := range reports {
		will += report.PreRunStats.SpecsThatWillRun
		for _, g := range report.SpecReports {
			spec, has := g.spec(suite)
			switch {
			case g.LeafNodeType != "It" && spec.State == Failed:
				return nil, fmt.Errorf("%s failed: %s", g.LeafNodeType, spec.Reason)
			case g.LeafNodeType != "It" || !has:
				continue
			}
			specs = append(specs, spec)
			if g.attempted() {
				ran++
			}
		}
		if len(report.SpecialSuiteFailureReasons) > 0 && ran < will {
			return nil, fmt.Errorf("the suite ended early: %s", strings.Join(report.SpecialSuiteFailureReasons, "; "))
		}
	}
	switch {
	case will == 0:
		return nil, errors.New("no spec has such a name: the focus is to be corrected")
	case ran != will:
		return nil, fmt.Errorf("%d of %d specs were run", ran, will)
	}
	slices.SortFunc(specs, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	return specs, nil
}

// attempted reports whether a spec was begun. Ginkgo also reports each spec that the focus leaves out, as skipped.
func (g ginkgoSpec) attempted() bool { return g.NumAttempts > 0 || g.Failure.Message != "" }

// spec returns the result of a spec, unless the suite does not have it.
func (g ginkgoSpec) spec(suite Suite) (spec Spec, has bool) {
	spec = Spec{Name: g.name(), Reason: g.Failure.Message}
	if !g.attempted() {
		spec.Reason, has = suite.whyLeftOut(spec.Name)
		spec.State = LeftOut
		return spec, has
	}
	switch g.State {
	case "passed":
		spec.State = Passed
	case "skipped", "pending":
		spec.State = LeftOut
	default: // such as panicked, timedout and interrupted
		spec.State = Failed
		if spec.Reason == "" {
			spec.Reason = g.State
		}
	}
	return spec, true
}
