package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Markdown writes the figures as a table, then the goals, then the measurements with the meaning of each figure.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Speed and size, measured\n\n")
	b.WriteString("`make bench` writes this page; report.json has all runs. Each value is a median, with the smallest " +
		"and the largest run beside it. Runs alternate between the subjects. A row keeps its values until its family is " +
		"measured again: the last column has its measurement, with machine and versions. Compare rows of different " +
		"measurements only if both are the same.\n")
	b.WriteString("`reference` is the ProvisionController of v10 of sig-storage-lib-external-provisioner, which " +
		"csi-reclaimer requires, at its defaults (5 calls a second, burst 10); `reference_unthrottled` is the same " +
		"without a limit and with 100 threads. ")
	b.WriteString(r.v13())
	b.WriteString("`limit` is what the same set-up does without a subject, or what the driver allows: see each figure.\n")
	b.WriteString("The API server writes an audit log only where requests are counted or timed by it; etcd never waits " +
		"for the disk.\n\n")
	all := r.measurements()
	r.table(&b, all)
	r.goals(&b)
	r.loads(&b, all)
	_, err := io.WriteString(w, b.String())
	return err
}

// v13 says which library external-provisioner uses today, and where its values are.
func (r *Report) v13() string {
	const uses = "external-provisioner 6.4 uses v13.1.0 of the library ([go.mod]" +
		"(https://github.com/kubernetes-csi/external-provisioner/blob/v6.4.0/go.mod))"
	if !r.has(ReferenceV13) && !r.has(UnthrottledV13) {
		return uses + ", which this report has no values of. "
	}
	return uses + ": `reference_v13` and `reference_v13_unthrottled` are the same two with v13. "
}

// measurements returns those of all figures, in the order of the figures.
func (r *Report) measurements() (all []Measurement) {
	for _, f := range r.Figures {
		if !slices.ContainsFunc(all, f.equal) {
			all = append(all, f.Measurement)
		}
	}
	return all
}

// table writes the values of all figures. A column without any is left out.
func (r *Report) table(b *strings.Builder, all []Measurement) {
	shown := slices.DeleteFunc(columns(), func(column string) bool { return !r.has(column) })
	b.WriteString("| figure | unit | " + strings.Join(shown, " | ") + " | runs | measurement |\n" +
		strings.Repeat("|---", len(shown)+4) + "|\n")
	for _, f := range r.Figures {
		fmt.Fprintf(b, "| `%s` | %s |", f.Name, f.Unit)
		for _, column := range shown {
			fmt.Fprintf(b, " %s |", f.cell(column))
		}
		n := 1 + slices.IndexFunc(all, f.equal)
		fmt.Fprintf(b, " %s | [%d](#measurement-%d) |\n", f.counts(), n, n)
	}
}

// goals writes the goals of all figures that have some, and how many are reached.
func (r *Report) goals(b *strings.Builder) {
	var rows strings.Builder
	reached, all := 0, 0
	for _, f := range r.Figures {
		for _, goal := range f.Goals {
			met, verdict := goal.Judge(f.Medians())
			fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", f.Name, goal, f.cell(Ours), verdict)
			all++
			if met {
				reached++
			}
		}
	}
	if all == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Goals\n\n%d of %d goals are reached.\n\n", reached, all)
	b.WriteString("| figure | goal | ours | result |\n|---|---|---|---|\n" + rows.String())
}

// loads writes each measurement, and the meaning of its figures.
func (r *Report) loads(b *strings.Builder, all []Measurement) {
	b.WriteString("\n## What was measured\n")
	for i, m := range all {
		fmt.Fprintf(b, "\n### Measurement %d\n\n%s:\n\n", i+1, m)
		for _, f := range r.Figures {
			if f.equal(m) {
				fmt.Fprintf(b, "- `%s`: %s\n", f.Name, strings.TrimSpace(f.Load))
			}
		}
	}
}
