package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// PagePath is the page of the results, from the root of the repository.
const PagePath = "docs/reference/conformance.md"

// Comparison is a spec that ended in a way that matters with one of the parts.
type Comparison struct {
	Suite, Spec string
	Stock, Ours Spec
}

// Regression reports whether the spec passed with stock parts alone. A spec that is left out with ours alone is one,
// unless the suite names its reason.
func (c Comparison) Regression() bool { return c.Stock.State == Passed && c.Ours.State != Passed }

// Compare returns each spec that did not pass with both parts, in the order of the results and of their names.
func Compare(results []Result) (all []Comparison) {
	for i, stock := range results {
		for _, ours := range results[i:] {
			if stock.Parts == Stock && ours.Parts == Ours && stock.Suite.Name == ours.Suite.Name {
				all = append(all, compare(stock, ours)...)
			}
		}
	}
	return all
}

func compare(stock, ours Result) (all []Comparison) {
	const missing = State("not run")
	names := map[string]*Comparison{}
	at := func(spec Spec) *Comparison {
		if names[spec.Name] == nil {
			names[spec.Name] = &Comparison{Suite: stock.Suite.Name, Spec: spec.Name, Stock: Spec{State: missing},
				Ours: Spec{State: missing}}
		}
		return names[spec.Name]
	}
	for _, spec := range stock.Specs {
		at(spec).Stock = spec
	}
	for _, spec := range ours.Specs {
		at(spec).Ours = spec
	}
	for _, c := range names {
		if c.Stock.State != Passed || c.Ours.State != Passed {
			all = append(all, *c)
		}
	}
	slices.SortFunc(all, func(a, b Comparison) int { return strings.Compare(a.Spec, b.Spec) })
	return all
}

const pageHead = "# Conformance\n" + `
For administrators and vendors of CSI drivers who ask whether this project can take the place of
stock parts. Kubernetes tests each release with its own [end-to-end suite][suite]. Its specs run
twice in the [testbed](../../test/framework/controlplane/README.md): with stock parts, and with ours
in their place. A spec that fails with both shows a limit of the testbed.

` + "`make conformance` makes this page. `ONLY=REGEXP` runs some suites, and makes no page." + `

[suite]: https://github.com/kubernetes/kubernetes/tree/master/test/e2e

`

// Page is the page of results of all suites, in Markdown. Stock and ours of a suite follow each other.
func Page(results []Result) string {
	var b strings.Builder
	b.WriteString(pageHead)
	first := results[0]
	fmt.Fprintf(&b, "Kubernetes %s, csi-reclaimer at commit %s:\n\n", first.Kubernetes, first.Commit)
	b.WriteString("| suite | specs | stock: passed | failed | left out | ours: passed | failed | left out |\n" +
		"|---|---|---|---|---|---|---|---|\n")
	for _, stock := range results {
		for _, ours := range results {
			if stock.Parts == Stock && ours.Parts == Ours && stock.Suite.Name == ours.Suite.Name {
				fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", stock.Suite.Name, max(len(stock.Specs), len(ours.Specs)),
					counts(stock), counts(ours))
			}
		}
	}
	writeSubjects(&b, results)
	all := Compare(results)
	writeSpecs(&b, "Passed with stock parts alone", all, Comparison.Regression)
	writeSpecs(&b, "Failed otherwise", all, func(c Comparison) bool {
		return !c.Regression() && (c.Stock.State == Failed || c.Ours.State == Failed)
	})
	writeSpecs(&b, "Left out", all, func(c Comparison) bool {
		return !c.Regression() && c.Stock.State != Failed && c.Ours.State != Failed
	})
	b.WriteString("Read next: [compatibility](compatibility.md), and [known limits](limits.md).\n")
	return b.String()
}

func counts(r Result) string {
	return fmt.Sprintf("%d | %d | %d", r.Count(Passed), r.Count(Failed), r.Count(LeftOut))
}

func writeSubjects(b *strings.Builder, results []Result) {
	b.WriteString("\n## Parts\n\n| suite | ours for the stock parts |\n|---|---|\n")
	for _, r := range results {
		if r.Parts == Ours {
			fmt.Fprintf(b, "| %s | %s |\n", r.Suite.Name, r.Suite.Subject)
		}
	}
	b.WriteString("\n")
}

func writeSpecs(b *strings.Builder, title string, all []Comparison, in func(Comparison) bool) {
	fmt.Fprintf(b, "## %s\n\n", title)
	head := "| suite | spec | stock | ours |\n|---|---|---|---|\n"
	for _, c := range all {
		if in(c) {
			fmt.Fprintf(b, "%s| %s | %s | %s | %s |\n", head, cell(c.Suite), cell(c.Spec), end(c.Stock), end(c.Ours))
			head = ""
		}
	}
	if head != "" {
		b.WriteString("No spec.\n")
	}
	b.WriteString("\n")
}

// end is how a spec ended, with the reason unless it passed.
func end(s Spec) string {
	if s.State == Passed {
		return string(s.State)
	}
	return fmt.Sprintf("%s: %s", s.State, cell(cmp.Or(s.Reason, "no reason given")))
}

// cell is a text as a cell of a table shows it: its first line, not too long.
func cell(text string) string {
	const longest = 300
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest]) + "…"
	}
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "[", `\[`, "]", `\]`).Replace(text)
}
