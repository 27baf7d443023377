package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
)

// Waiting returns the rows of the objects that wait, as the page's table of that name has them: those that need a
// person come first, then those that have waited longest.
func Waiting(rows []Row) []Row {
	waiting := []Row{}
	for _, row := range rows {
		if inWaiting(&row) {
			waiting = append(waiting, row)
		}
	}
	slices.SortFunc(waiting, func(a, b Row) int {
		return cmp.Or(cmp.Compare(urgency(a), urgency(b)), compareSince(a, b), cmp.Compare(a.ID, b.ID))
	})
	return waiting
}

func inWaiting(row *Row) bool { return row.Waits && row.Kind != KindVolume }

func urgency(r Row) int {
	if r.Severity == SeverityAttention {
		return 0
	}
	return 1
}

// compareSince sorts rows without a time last.
func compareSince(a, b Row) int {
	at := func(r Row) time.Time {
		if r.Since == nil {
			return time.Unix(1<<40, 0)
		}
		return r.Since.Time
	}
	return at(a).Compare(at(b))
}

// lockRows adds the locks that pods wait for or that a person has to look at, and the pods with the gate that wait for
// something else.
func (f Facts) lockRows(rows []Row) []Row {
	if f.Locks == nil {
		return rows
	}
	l := locks.ListOf(*f.Locks)
	for _, lock := range l.Locks {
		row := Row{Ref: Ref{Kind: KindLock, Namespace: lock.Namespace, Name: lock.Claim}, Node: lock.Node,
			Claim: lock.Namespace + "/" + lock.Claim, Driver: f.driverOf(lock.Namespace, lock.Claim),
			Reason: lock.Reason, Text: lock.Text, WaitsFor: lock.WaitsFor, Since: lock.Since, Severity: SeverityNone}
		if len(lock.Waiting) > 0 {
			row.Waits, row.Severity, row.Since = true, SeverityWaits, &lock.Waiting[0].Since
		}
		if lock.Attention() {
			row.Waits, row.Severity = true, SeverityAttention
		}
		rows = append(rows, row)
	}
	return f.gatedRows(rows, l.GatedPods)
}

// gatedRows adds pods with the gate that do not wait for a lock, in place of their rows as held pods.
func (f Facts) gatedRows(rows []Row, gated []locks.GatedPod) []Row {
	held := map[Ref]int{}
	for i, row := range rows {
		if row.Kind == KindPod {
			held[row.Ref] = i
		}
	}
	for _, pod := range gated {
		if pod.WaitsForLock() {
			continue
		}
		row := Row{Ref: Ref{Kind: KindPod, Namespace: pod.Namespace, Name: pod.Name}, Waits: true, Reason: pod.Reason,
			Text: pod.Text, WaitsFor: pod.WaitsFor, Since: &pod.Since, Severity: SeverityWaits}
		if pod.Claim != "" {
			row.Claim, row.Driver = pod.Namespace+"/"+pod.Claim, f.driverOf(pod.Namespace, pod.Claim)
		}
		if pod.Attention() {
			row.Severity = SeverityAttention
		}
		if i, has := held[row.Ref]; has {
			rows[i] = row
			continue
		}
		rows = append(rows, row)
	}
	return rows
}

// driverOf returns the driver of the PV to which a claim is bound, empty if it is unknown. The facts must be indexed.
func (f Facts) driverOf(namespace, claim string) string {
	o := f.ClaimOf(namespace, claim).Value
	if o == nil {
		return ""
	}
	pv, _ := f.FindPV(o.Spec.VolumeName)
	return pv.Owner()
}
