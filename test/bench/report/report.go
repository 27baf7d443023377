package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Report holds the figures of one machine.
type Report struct {
	Machine  Machine   `json:"machine"`
	Versions Versions  `json:"versions"`
	Figures  []*Figure `json:"figures"`

	names []string // of all figures, in the order of the report
}

// Versions are the versions of the measured programs.
type Versions struct {
	Kubernetes string `json:"kubernetes"`
	// Ours is git describe, with "-dirty" where files were changed.
	Ours         string `json:"ours"`
	Reference    string `json:"reference"`
	ReferenceV13 string `json:"referenceV13,omitempty"`
	Go           string `json:"go"`
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

// Read returns the report in a folder, of the figures that are named. One of another machine or another Kubernetes, or
// none, is an empty one: figures of two are not to stand in one table.
func Read(dir string, machine Machine, versions Versions, names []string) (*Report, error) {
	fresh := &Report{Machine: machine, Versions: versions, names: names}
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
	if old.Machine != machine || !old.comparable(versions) {
		return fresh, nil
	}
	old.Versions, old.names = versions, names
	old.Figures = slices.DeleteFunc(old.Figures, func(f *Figure) bool { return !slices.Contains(names, f.Name) })
	return &old, nil
}

// comparable reports whether earlier figures can stand beside figures of these versions.
func (r *Report) comparable(versions Versions) bool {
	v13 := r.has(ReferenceV13) || r.has(UnthrottledV13)
	return r.Versions.Kubernetes == versions.Kubernetes && r.Versions.Reference == versions.Reference &&
		(!v13 || r.Versions.ReferenceV13 == versions.ReferenceV13)
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
