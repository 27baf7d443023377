package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The columns of a figure.
const (
	// Ours is csi-reclaimer at its defaults.
	Ours = "ours"
	// Reference is the library's controller at its defaults.
	Reference = "reference"
	// Unthrottled is the library's controller without a limit on its client, and with 100 threads.
	Unthrottled = "reference_unthrottled"
	// Limit is what nothing can exceed, see the figure's load.
	Limit = "limit"
)

func columns() []string { return []string{Ours, Reference, Unthrottled, Limit} }

// Report is what was measured on one machine.
type Report struct {
	Machine  Machine   `json:"machine"`
	Versions Versions  `json:"versions"`
	Figures  []*Figure `json:"figures"`
}

// Versions say what was measured.
type Versions struct {
	Kubernetes string `json:"kubernetes"`
	// Ours is git describe, with "-dirty" where files were changed.
	Ours      string `json:"ours"`
	Reference string `json:"reference"`
	Go        string `json:"go"`
}

// Figure is one number with its runs.
type Figure struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Load says under what it was measured, and what the limit is.
	Load  string `json:"load"`
	Goals []Goal `json:"goals,omitempty"`
	// Runs are the values of all runs by column, in the order in which they were measured.
	Runs map[string][]float64 `json:"runs"`
	// Date, Version and Seed are those of the runs, which may be other than those of figures beside.
	Date    time.Time `json:"date"`
	Version string    `json:"version"`
	Seed    uint64    `json:"seed"`
	// Quick: there were fewer volumes than Load says.
	Quick bool `json:"quick,omitempty"`
	// BusyBefore is how busy the processors were, in percent, before the first run, with an idle control plane: well above
	// 10, something else was going on, and rates and times say little.
	BusyBefore float64 `json:"busyBefore"`
}

// Medians are the figure's values by column; columns that do not apply are left out.
func (f *Figure) Medians() map[string]float64 {
	medians := map[string]float64{}
	for column, runs := range f.Runs {
		if len(runs) > 0 {
			medians[column] = Median(runs)
		}
	}
	return medians
}

// Line is the figure as scripts read it: bench NAME ours=X reference=Y reference_unthrottled=Z limit=W, "-" for what
// does not apply.
func (f *Figure) Line() string {
	medians := f.Medians()
	var b strings.Builder
	b.WriteString("bench " + f.Name)
	for _, column := range columns() {
		b.WriteString(" " + column + "=" + cell(medians, column))
	}
	return b.String()
}

func cell(medians map[string]float64, column string) string {
	value, there := medians[column]
	if !there {
		return "-"
	}
	return number(value)
}

// number prints as many digits as are worth reading.
func number(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// verdict judges all goals of a figure.
func (f *Figure) verdict() string {
	var all []string
	for _, g := range f.Goals {
		_, verdict := g.Judge(f.Medians())
		all = append(all, verdict)
	}
	return strings.Join(all, "; ")
}

func (f *Figure) goals() string {
	var all []string
	for _, g := range f.Goals {
		all = append(all, g.String())
	}
	return strings.Join(all, "; ")
}

// Markdown writes the report as a table, and under it what the figures mean.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Speed and size, measured\n\n")
	b.WriteString("Written by `make bench`; report.json has all runs. Medians; each is of as many runs as the last " +
		"column says, which alternated between the subjects.\n")
	b.WriteString("`reference` is the ProvisionController of " + r.Versions.Reference +
		" at its defaults (5 calls a second, burst 10), `reference_unthrottled` the same without a limit and with 100 " +
		"threads. ")
	b.WriteString("`limit` is what nothing could exceed.\n\n")
	fmt.Fprintf(&b, "%s\nKubernetes %s, csi-reclaimer %s, %s.\n\n", r.Machine, r.Versions.Kubernetes, r.Versions.Ours,
		r.Versions.Go)
	b.WriteString("| figure | unit | ours | reference | reference_unthrottled | limit | goal | result | runs " +
		"|\n|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range r.Figures {
		medians := f.Medians()
		fmt.Fprintf(&b, "| `%s` | %s |", f.Name, f.Unit)
		for _, column := range columns() {
			fmt.Fprintf(&b, " %s |", cell(medians, column))
		}
		fmt.Fprintf(&b, " %s | %s | %s |\n", f.goals(), f.verdict(), f.counts())
	}
	b.WriteString("\n## What was measured\n\n")
	for _, f := range r.Figures {
		quick := ""
		if f.Quick {
			quick = " with fewer volumes (--quick)"
		}
		fmt.Fprintf(&b, "- `%s`: %s Measured%s %s, csi-reclaimer %s, seed %d, processors %.0f %% busy before.\n",
			f.Name, strings.TrimSpace(f.Load), quick, f.Date.UTC().Format("2006-01-02 15:04"), f.Version, f.Seed, f.BusyBefore)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// counts is how many runs there were of each column that has any.
func (f *Figure) counts() string {
	var all []string
	for _, column := range columns() {
		if n := len(f.Runs[column]); n > 0 {
			all = append(all, strconv.Itoa(n))
		}
	}
	if len(all) > 0 && !slices.ContainsFunc(all, func(n string) bool { return n != all[0] }) {
		return all[0]
	}
	return strings.Join(all, ", ")
}

// Add puts figures in, in the place of those of the same name.
func (r *Report) Add(figures ...*Figure) {
	for _, f := range figures {
		if at := slices.IndexFunc(r.Figures, func(old *Figure) bool { return old.Name == f.Name }); at >= 0 {
			r.Figures[at] = f
		} else {
			r.Figures = append(r.Figures, f)
		}
	}
	order := figureOrder()
	slices.SortStableFunc(r.Figures, func(a, b *Figure) int { return order[a.Name] - order[b.Name] })
}

// Read returns the report in a folder. One of another machine or another Kubernetes, or none, is an empty one: figures
// of two are not to stand in one table.
func Read(dir string, machine Machine, versions Versions) (*Report, error) {
	fresh := &Report{Machine: machine, Versions: versions}
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	var old Report
	if err := json.Unmarshal(data, &old); err != nil {
		return nil, fmt.Errorf("read report in %q: %w", dir, err)
	}
	if old.Machine != machine || old.Versions.Kubernetes != versions.Kubernetes ||
		old.Versions.Reference != versions.Reference {
		return fresh, nil
	}
	old.Versions = versions
	return &old, nil
}

// Write writes report.json and report.md into a folder, which is made if it is missing.
func (r *Report) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	var table strings.Builder
	if err := r.Markdown(&table); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	for name, content := range map[string][]byte{"report.json": append(data, '\n'), "report.md": []byte(table.String())} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return nil
}
