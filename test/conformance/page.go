package conformance

import (
	"cmp"
	"fmt"
	"regexp"
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

// Regression reports whether the spec passed with stock parts alone, for a reason other than Refused.
func (c Comparison) Regression() bool {
	return c.Stock.State == Passed && c.Ours.State != Passed && !c.Refused()
}

// refusal is a message with which pod safety refuses to delete or evict a pod by force, or to say that it has ended. A
// policy that fails itself has another one.
var refusal = regexp.MustCompile(`'csi-reclaimer-pod-(force-delete|force-evict|status)' with .* denied request: pod `)

// Refused reports whether the spec failed because pod safety refused to let a pod count as ended. It is there to do so.
func (c Comparison) Refused() bool {
	return c.Ours.State == Failed && refusal.MatchString(c.Ours.Reason)
}

// Compare returns each spec that did not pass with both parts, in the order of the results and of their names.
func Compare(results []Result) (all []Comparison) {
	for _, r := range results {
		if stock, ours, has := pairOf(r.Suite, results); has && r.Parts == Ours {
			all = append(all, compare(stock, ours)...)
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
in their place. A spec that fails with both shows a limit of the testbed. Pod safety refuses
to delete a running pod by force, and to say in place of a kubelet that it has ended. So it refuses
the specs that do. A spec that passes with stock parts alone shows a [known
limit](limits-volume-guard.md#pods-that-are-held).

` + "`make conformance` makes this page. `ONLY=REGEXP` runs the suites with such names again, and leaves\n" +
	"the rows of the others. You can also run the specs [with your driver](../how-to/conformance.md).\n" + `
[suite]: https://github.com/kubernetes/kubernetes/tree/master/test/e2e

`

// page is a page of suites.
type page struct {
	strings.Builder
	suites  []Suite
	results []Result
	// kept are rows of an earlier page, by the titles of their sections and the names of their suites.
	kept map[string]map[string][]string
}

// Page is the page of suites, in Markdown. A suite without results keeps its rows of an earlier page of this
// Kubernetes.
func Page(suites []Suite, kubernetes string, results []Result, earlier string) string {
	p := &page{suites: suites, results: results}
	version := fmt.Sprintf("Kubernetes %s:\n\n", kubernetes)
	if strings.Contains(earlier, version) {
		p.kept = rowsOf(earlier)
	}
	p.WriteString(pageHead + version +
		"| suite | specs | stock: passed | failed | left out | ours: passed | failed | left out | minutes | commit |\n" +
		"|---|---|---|---|---|---|---|---|---|---|\n")
	for _, suite := range suites {
		p.WriteString(p.row(suite))
	}
	p.writeSubjects()
	p.writeSpecs("Passed with stock parts alone", Comparison.Regression)
	p.writeSpecs("Refused by pod safety", Comparison.Refused)
	p.writeSpecs("Failed with stock parts", func(c Comparison) bool {
		return !c.Regression() && !c.Refused() && (c.Stock.State == Failed || c.Ours.State == Failed)
	})
	p.writeSpecs("Left out", func(c Comparison) bool {
		return !c.Regression() && c.Stock.State != Failed && c.Ours.State != Failed
	})
	p.WriteString("Read next: [compatibility](compatibility.md), and [known limits](limits.md).\n")
	return p.String()
}

// rowsOf returns the rows of a page by the titles of their sections and their first cells.
func rowsOf(text string) map[string]map[string][]string {
	title, rows := "", map[string]map[string][]string{"": {}}
	for line := range strings.Lines(text) {
		if section, is := strings.CutPrefix(line, "## "); is {
			title = strings.TrimSpace(section)
			rows[title] = map[string][]string{}
		} else if cells := strings.SplitN(line, " | ", 2); len(cells) > 1 {
			name := strings.TrimPrefix(cells[0], "| ")
			rows[title][name] = append(rows[title][name], line)
		}
	}
	return rows
}

// row is the row of a suite in the first table.
func (p *page) row(suite Suite) string {
	if stock, ours, has := pairOf(suite, p.results); has {
		return fmt.Sprintf("| %s | %d | %s | %s | %d | %s |\n", suite.Name, max(len(stock.Specs), len(ours.Specs)),
			counts(stock), counts(ours), (stock.Seconds+ours.Seconds+30)/60, ours.Commit)
	}
	if kept := p.kept[""][suite.Name]; len(kept) > 0 {
		return kept[0]
	}
	return fmt.Sprintf("| %s | not run | | | | | | | | |\n", suite.Name)
}

// pairOf returns the results of a suite with both parts.
func pairOf(suite Suite, results []Result) (stock, ours Result, has bool) {
	found := 0
	for _, r := range results {
		switch {
		case r.Suite.Name != suite.Name:
		case r.Parts == Stock:
			stock, found = r, found+1
		case r.Parts == Ours:
			ours, found = r, found+1
		}
	}
	return stock, ours, found == len(Both())
}

func counts(r Result) string {
	return fmt.Sprintf("%d | %d | %d", r.Count(Passed), r.Count(Failed), r.Count(LeftOut))
}

// writeSubjects writes the parts of ours, each with the suites that judge them.
func (p *page) writeSubjects() {
	p.WriteString("\n## Parts\n\n| suites | ours | nodes |\n|---|---|---|\n")
	for suites := p.suites; len(suites) > 0; {
		first, names := suites[0], []string{}
		for len(suites) > 0 && suites[0].Subject == first.Subject {
			names, suites = append(names, suites[0].Name), suites[1:]
		}
		nodes := "played: no process runs"
		if first.RealNodes {
			nodes = "two kubelets with containerd"
		}
		fmt.Fprintf(p, "| %s | %s | %s |\n", strings.Join(names, ", "), first.Subject, nodes)
	}
	p.WriteString("\n")
}

func (p *page) writeSpecs(title string, in func(Comparison) bool) {
	var rows []string
	for _, suite := range p.suites {
		if stock, ours, has := pairOf(suite, p.results); has {
			rows = append(rows, specRows(slices.DeleteFunc(compare(stock, ours),
				func(c Comparison) bool { return !in(c) }))...)
		} else {
			rows = append(rows, p.kept[title][suite.Name]...)
		}
	}
	head := "| suite | spec | stock | ours |\n|---|---|---|---|\n"
	if len(rows) == 0 {
		head = "No spec.\n"
	}
	fmt.Fprintf(p, "## %s\n\n%s%s\n", title, head, strings.Join(rows, ""))
}

// specRows returns a row for each spec. Specs that are left out for one reason share one.
func specRows(all []Comparison) (rows []string) {
	sharing := map[string]int{} // by the end of the row
	for _, c := range all {
		if c.Stock.State == LeftOut && c.Ours.State == LeftOut {
			sharing[ends(c)]++
		}
	}
	for _, c := range all {
		name := cell(c.Spec)
		switch n := sharing[ends(c)]; {
		case n < 0: // they have a row
			continue
		case n > 1:
			name = fmt.Sprintf("%d specs, such as: %s", n, name)
			sharing[ends(c)] = -1
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |\n", cell(c.Suite), name, ends(c)))
	}
	return rows
}

func ends(c Comparison) string { return end(c.Stock) + " | " + end(c.Ours) }

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
