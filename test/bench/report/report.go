package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Report holds figures, each with its measurement.
type Report struct {
	Figures []*Figure `json:"figures"`

	names []string // of all figures, in the order of the report
}

// Add adds figures, and replaces figures of the same name.
func (r *Report) Add(figures ...*Figure) {
	for _, f := range figures {
		if at := slices.IndexFunc(r.Figures, func(old *Figure) bool { return old.Name == f.Name }); at >= 0 {
			r.Figures[at] = f
		} else {
			r.Figures = append(r.Figures, f)
		}
	}
	slices.SortStableFunc(r.Figures, func(a, b *Figure) int {
		return slices.Index(r.names, a.Name) - slices.Index(r.names, b.Name)
	})
}

// Read returns the report in a folder, of the figures that are named: an empty one if there is none.
func Read(dir string, names []string) (*Report, error) {
	r := &Report{names: names}
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("read report in %q: %w", dir, err)
	}
	r.Figures = slices.DeleteFunc(r.Figures, func(f *Figure) bool { return !slices.Contains(names, f.Name) })
	return r, nil
}

// Judge holds all figures against these goals, by figure, whatever their goals were when they were measured.
func (r *Report) Judge(goals map[string][]Goal) {
	for _, f := range r.Figures {
		f.Goals = goals[f.Name]
	}
}

// has reports whether a figure has a value in the column.
func (r *Report) has(column string) bool {
	return slices.ContainsFunc(r.Figures, func(f *Figure) bool { return len(f.Runs[column]) > 0 })
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

// Median returns the middle of the values, the mean of the two in the middle where their number is even, and NaN of
// none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Percentile returns the smallest of the values that at least p percent of them do not exceed (nearest rank), and NaN
// of none. p is between 0 and 100.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
