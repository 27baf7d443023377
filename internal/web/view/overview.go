package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
)

// DriverSummary is a driver's row of the overview. A value that is empty, nil or not Known is unknown.
type DriverSummary struct {
	volumes.DriverStatus
	// Waiting counts the waiting objects by reason, as the page's tables have them.
	Waiting map[string]int `json:"waiting,omitempty"`
	// Attention counts the waiting objects that need a person.
	Attention int `json:"attention"`
	// Bytes is the total size of the volumes that are about to be deleted.
	Bytes int64 `json:"bytes"`
	// Ages counts the waiting objects by age, in the intervals that AgeSteps end. The last count is for older objects.
	Ages [len(AgeSteps) + 1]int `json:"ages"`
	// Leader is the pod that leads as NAMESPACE/NAME, several if it is not known which, or "none". Brake is "on" or "off".
	Leader string `json:"leader,omitempty"`
	Brake  string `json:"brake,omitempty"`
	// Version is the driver's vendor version in its latest entry of the in-flight log, the only watched object with it.
	Version string `json:"version,omitempty"`
	// InFlightKnown: the in-flight logs were read. Fill is the used part of the fullest Lease of the driver's log, where
	// 1 is full; nil if the driver has no log.
	InFlightKnown bool     `json:"inFlightKnown"`
	Fill          *float64 `json:"fill,omitempty"`
}

// AgeSteps end the intervals of DriverSummary.Ages, in seconds.
var AgeSteps = [...]int64{60, 600, 3600, 24 * 3600, 7 * 24 * 3600}

const (
	none = "none"
	on   = "on"
	off  = "off"
)

// driversOf returns the rows of the overview, sorted by driver.
func driversOf(f Facts, s volumes.Status, rows []Row) []DriverSummary {
	all := map[string]*DriverSummary{}
	of := func(driver string) *DriverSummary {
		if all[driver] == nil {
			all[driver] = &DriverSummary{DriverStatus: volumes.DriverStatus{Driver: driver}}
		}
		return all[driver]
	}
	for _, status := range s.Drivers {
		of(status.Driver).DriverStatus = status
	}
	for _, row := range Waiting(rows) {
		if row.Driver != "" {
			of(row.Driver).add(row, f.Now)
		}
	}
	for driver, d := range all {
		if f.Leases.OK() && explain.CSIName(driver) {
			d.Leader, d.Brake = cmp.Or(strings.Join(f.LeadersOf(driver), ", "), none), off
			if f.BrakeOn(driver) {
				d.Brake = on
			}
		}
		d.addLog(f.ClusterFacts)
	}
	sorted := make([]DriverSummary, 0, len(all)) // JSON has a list, not null
	for _, driver := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, *all[driver])
	}
	return sorted
}

// add counts a waiting object.
func (d *DriverSummary) add(row Row, now time.Time) {
	if d.Waiting == nil {
		d.Waiting = map[string]int{}
	}
	d.Waiting[row.Reason]++
	if row.Severity == SeverityAttention {
		d.Attention++
	}
	if row.Kind == KindPV && row.Policy == string(v1.PersistentVolumeReclaimDelete) {
		d.Bytes += row.Bytes
	}
	if row.Since == nil {
		return
	}
	age := int64(now.Sub(row.Since.Time).Seconds())
	step := slices.IndexFunc(AgeSteps[:], func(end int64) bool { return age < end })
	if step < 0 {
		step = len(AgeSteps)
	}
	d.Ages[step]++
}

func (d *DriverSummary) addLog(w volumes.ClusterFacts) {
	d.InFlightKnown = w.InFlight.OK()
	if fill, has := w.InFlight.Value.Fill[d.Driver]; has {
		d.Fill = &fill
	}
	var latest time.Time
	for _, e := range w.InFlight.Value.Entries {
		if e.Driver != d.Driver || e.Begun.Before(latest) {
			continue
		}
		for _, r := range e.Requests {
			if r.DriverVersion != "" {
				d.Version, latest = r.DriverVersion, e.Begun
			}
		}
	}
}

// Change is a change of a waiting object in the last hour.
type Change struct {
	Time metav1.Time `json:"time"`
	Kind ChangeKind  `json:"kind"`
	// Row is the object after the change, or as it was last if it is gone.
	Row Row `json:"row"`
}

// ChangeKind is a kind of change.
type ChangeKind string

// ChangeBegan: the object has begun to wait. ChangeReason: it waits for another reason, or needs a person now.
// ChangeEnded: it no longer waits. ChangeGone: it waited, and is gone.
const (
	ChangeBegan  ChangeKind = "began"
	ChangeReason ChangeKind = "reason"
	ChangeEnded  ChangeKind = "ended"
	ChangeGone   ChangeKind = "gone"
)

const (
	changesAge  = time.Hour
	changesMost = 50
)

// Began is a pure function that returns the objects that have begun to wait within the last hour, the oldest first. It
// is what is known of that hour at the first look.
func Began(rows []Row, now time.Time) []Change {
	all := []Change{}
	for _, row := range Waiting(rows) {
		if row.Since != nil {
			all = append(all, Change{*row.Since, ChangeBegan, row})
		}
	}
	return recent(all, now)
}

// Changes is a pure function that adds the changes between two looks at the rows, by ID, to earlier changes, and drops
// those that are older than an hour.
func Changes(earlier []Change, before, now map[string]*Row, at time.Time) []Change {
	all := slices.Clone(earlier)
	for _, id := range slices.Sorted(maps.Keys(now)) {
		if old, row := before[id], now[id]; old != row {
			if kind := changeOf(old, row); kind != "" {
				all = append(all, Change{metav1.NewTime(at), kind, *row})
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if old := before[id]; now[id] == nil && inWaiting(old) {
			all = append(all, Change{metav1.NewTime(at), ChangeGone, *old})
		}
	}
	return recent(all, at)
}

// changeOf returns the change of a row, empty for none that counts. old is nil for a new row.
func changeOf(old, row *Row) ChangeKind {
	was, is := old != nil && inWaiting(old), inWaiting(row)
	switch {
	case is && !was:
		return ChangeBegan
	case was && !is:
		return ChangeEnded
	case was && (old.Reason != row.Reason || old.Severity != row.Severity):
		return ChangeReason
	}
	return ""
}

func recent(all []Change, now time.Time) []Change {
	all = slices.DeleteFunc(all, func(c Change) bool { return now.Sub(c.Time.Time) > changesAge })
	slices.SortStableFunc(all, func(a, b Change) int { return a.Time.Compare(b.Time.Time) })
	return all[max(0, len(all)-changesMost):]
}
