package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Markdown writes the figures as a table, then the goals, then the meaning of each figure.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Speed and size, measured\n\n")
	b.WriteString("`make bench` writes this page; report.json has all runs. Each value is a median, with the smallest and " +
		"the largest run beside it. Runs alternate between the subjects.\n")
	b.WriteString("`reference` is the ProvisionController of " + r.Versions.Reference +
		", which csi-reclaimer requires, at its defaults (5 calls a second, burst 10); `reference_unthrottled` is the same " +
		"without a limit and with 100 threads. ")
	b.WriteString(r.v13())
	b.WriteString("`limit` is what the same set-up does without a subject, or what the driver allows: see each figure.\n")
	b.WriteString("The API server writes an audit log only where requests are counted or timed by it; etcd never waits " +
		"for the disk.\n\n")
	fmt.Fprintf(&b, "%s\nKubernetes %s, csi-reclaimer %s, %s.\n\n", r.Machine, r.Versions.Kubernetes, r.Versions.Ours,
		r.Versions.Go)
	r.table(&b)
	r.goals(&b)
	r.loads(&b)
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
	return uses + ": `reference_v13` and `reference_v13_unthrottled` are the same two with " + r.Versions.ReferenceV13 +
		". "
}

// table writes the values of all figures. A column without any is left out.
func (r *Report) table(b *strings.Builder) {
	shown := slices.DeleteFunc(columns(), func(column string) bool { return !r.has(column) })
	b.WriteString("| figure | unit | " + strings.Join(shown, " | ") + " | runs |\n" +
		strings.Repeat("|---", len(shown)+3) + "|\n")
	for _, f := range r.Figures {
		fmt.Fprintf(b, "| `%s` | %s |", f.Name, f.Unit)
		for _, column := range shown {
			fmt.Fprintf(b, " %s |", f.cell(column))
		}
		fmt.Fprintf(b, " %s |\n", f.counts())
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

// loads writes the meaning of each figure, grouped by the date of the measurement.
func (r *Report) loads(b *strings.Builder) {
	b.WriteString("\n## What was measured\n")
	last := ""
	for _, f := range r.Figures {
		quick := ""
		if f.Quick {
			quick = " with fewer volumes (--quick)"
		}
		taken := fmt.Sprintf("Measured%s %s, csi-reclaimer %s, seed %d, processors %.0f %% busy before:", quick,
			f.Date.UTC().Format("2006-01-02 15:04"), f.Version, f.Seed, f.BusyBefore)
		if taken != last {
			fmt.Fprintf(b, "\n%s\n\n", taken)
		}
		last = taken
		fmt.Fprintf(b, "- `%s`: %s\n", f.Name, strings.TrimSpace(f.Load))
	}
}
