package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

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
