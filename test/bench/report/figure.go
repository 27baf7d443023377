package report

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The columns of a figure.
const (
	// Ours is csi-reclaimer at its defaults.
	Ours = "ours"
	// Reference is the controller of v10 of the library at its defaults. csi-reclaimer requires that version.
	Reference = "reference"
	// Unthrottled is the controller of v10 of the library without a limit on its client, and with 100 threads.
	Unthrottled = "reference_unthrottled"
	// ReferenceV13 and UnthrottledV13 are the same with v13, the version that external-provisioner 6.4 requires.
	ReferenceV13   = "reference_v13"
	UnthrottledV13 = "reference_v13_unthrottled"
	// Limit is the figure of the same set-up without a subject, or the driver's limit: see the figure's load.
	Limit = "limit"
)

func columns() []string {
	return []string{Ours, Reference, Unthrottled, ReferenceV13, UnthrottledV13, Limit}
}

// Figure is one number with its runs.
type Figure struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Load describes the load of the measurement, and the limit.
	Load  string `json:"load"`
	Goals []Goal `json:"goals,omitempty"`
	// Runs are the values of all runs by column, in the order in which they were measured.
	Runs map[string][]float64 `json:"runs"`
	Measurement
}

// Measurement is how the figures of a family were measured. A report keeps the figures of a family until they are
// measured again, so other families may have other machines and versions.
type Measurement struct {
	Date     time.Time `json:"date"`
	Machine  Machine   `json:"machine"`
	Versions Versions  `json:"versions"`
	Seed     uint64    `json:"seed"`
	// Quick means fewer volumes than the loads of the figures say.
	Quick bool `json:"quick,omitempty"`
	// BusyBefore is how busy the processors were, in percent, before the first run, with an idle control plane: well above
	// 10, something else was going on, and rates and times say little.
	BusyBefore float64 `json:"busyBefore"`
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

// equal reports whether both are one measurement.
func (m Measurement) equal(other Measurement) bool {
	at := m.Date.Equal(other.Date)
	m.Date, other.Date = time.Time{}, time.Time{}
	return at && m == other
}

// String describes it in one line.
func (m Measurement) String() string {
	quick := ""
	if m.Quick {
		quick = " with fewer volumes (--quick)"
	}
	library := m.Versions.Reference
	if m.Versions.ReferenceV13 != "" {
		library += " and " + m.Versions.ReferenceV13
	}
	return fmt.Sprintf("Measured%s %s on %s, with csi-reclaimer %s, %s, Kubernetes %s and %s; seed %d, processors "+
		"%.0f %% busy before", quick, m.Date.UTC().Format("2006-01-02 15:04"), m.Machine, m.Versions.Ours, m.Versions.Go,
		m.Versions.Kubernetes, library, m.Seed, m.BusyBefore)
}

// Check is an error for each figure without a value of ours, and for each value that is no measurement: not a number,
// infinite or negative. A measurement that measured nothing has failed.
func Check(figures []*Figure) error {
	var all []error
	for _, f := range figures {
		if len(f.Runs[Ours]) == 0 {
			all = append(all, fmt.Errorf("figure %s: nothing was measured for %s", f.Name, Ours))
		}
		for column, runs := range f.Runs {
			for _, value := range runs {
				if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
					all = append(all, fmt.Errorf("figure %s: %s measured %v", f.Name, column, value))
				}
			}
		}
	}
	return errors.Join(all...)
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

// Line is the figure as scripts read it: bench NAME, and COLUMN=VALUE for each column, such as ours=1.00. VALUE is a
// median, or "-" for what does not apply.
func (f *Figure) Line() string {
	medians := f.Medians()
	var b strings.Builder
	b.WriteString("bench " + f.Name)
	for _, column := range columns() {
		value := "-"
		if median, measured := medians[column]; measured {
			value = number(median)
		}
		b.WriteString(" " + column + "=" + value)
	}
	return b.String()
}

// cell is the median of a column, with the smallest and the largest value where they differ from it.
func (f *Figure) cell(column string) string {
	runs := f.Runs[column]
	if len(runs) == 0 {
		return "-"
	}
	median, least, most := number(Median(runs)), number(slices.Min(runs)), number(slices.Max(runs))
	if least == most {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, least, most)
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

// counts returns the number of runs of each column with runs.
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
