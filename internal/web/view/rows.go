package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// Facts holds the results of all reads about a whole cluster. The zero value of each field is unknown.
type Facts struct {
	volumes.StatusFacts
	// Driver limits the rows to one driver; empty means all.
	Driver string
	// Object returns the PV of this name, nil if the list lacks it.
	Object func(name string) *v1.PersistentVolume
	// AllClaims holds all claims of the cluster. ClaimOf returns one of them, with a nil Value if it is gone.
	AllClaims explain.Read[[]*v1.PersistentVolumeClaim]
	ClaimOf   func(namespace, name string) explain.Read[*v1.PersistentVolumeClaim]
	// Class returns a StorageClass, with a nil Value if it is gone.
	Class func(name string) explain.Read[*storagev1.StorageClass]
	Users func(namespace, name string) explain.Read[[]pvc.Pod]
	// Pods holds the pods that may have a row, and all Nodes of the cluster.
	Pods   pods.ListFacts
	Fences nodes.ListFacts
	// Locks holds the facts about the locks of claims; nil shows none.
	Locks *locks.Facts
	Leaks []leaks.Report
}

// Known returns whether each kind that decides on rows and their reasons was read, in a fixed order.
func (f Facts) Known() []bool {
	return []bool{f.PVs.OK(), f.AllClaims.OK(), f.Pods.Pods.OK(), f.Pods.Nodes.OK(), f.Pods.Fences.OK(), f.InFlight.OK(),
		f.Attachments.OK(), f.Installed.OK(), f.OnNodes.OK()}
}

// RowsOf is a pure function that returns the rows of all tables, sorted by ID.
func RowsOf(f Facts) []Row {
	f.ClusterFacts = f.Indexed()
	rows := make([]Row, 0, len(f.PVs.Value)+len(f.AllClaims.Value))
	rows = f.pvRows(rows)
	rows = f.claimRows(rows)
	rows = f.podRows(rows)
	rows = f.fenceRows(rows)
	rows = f.nodeRows(rows)
	rows = f.lockRows(rows)
	rows = f.inFlightRows(rows)
	rows = f.leakRows(rows)
	for i := range rows {
		row := &rows[i]
		row.ID = row.Ref.ID()
		if row.Severity != SeverityNone {
			row.Docs = DocsOf(row.Kind, row.Driver, row.Reason)
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.ID, b.ID) })
	return rows
}

// SummaryOf is a pure function that returns the overview. rows are those of RowsOf.
func SummaryOf(f Facts, rows []Row) Summary {
	s := Summary{Status: volumes.StatusOf(f.StatusFacts, f.Driver)}
	s.Drivers = driversOf(f, s.Status, rows)
	for _, report := range f.Leaks {
		s.Leaks = append(s.Leaks, LeakSummary{Driver: report.Driver, Headline: report.Headline(),
			Suspected: report.Suspected, Bytes: report.SuspectedBytes})
	}
	return s
}

func (f Facts) counts(driver string) bool { return f.Driver == "" || f.Driver == driver }

func (f Facts) pvRows(rows []Row) []Row {
	f.VisitPVs(func(pv explain.PV, s volumes.Standing) {
		if f.counts(pv.Owner()) {
			o := f.Object(pv.Name)
			row := pvRow(pv, s, o)
			if row.Waits && o != nil {
				row.WaitsFor = f.WaitsForPV(o, s.Decision)
			}
			rows = append(rows, row)
		}
	})
	return rows
}

// pvRow returns the row of a PV. o is the full object, nil if it is unknown.
func pvRow(pv explain.PV, s volumes.Standing, o *v1.PersistentVolume) Row {
	row := Row{
		Ref: Ref{Kind: KindPV, Name: pv.Name}, Driver: pv.Owner(), Policy: pv.PolicyName(),
		Waits: s.Waits || pv.Deletable(), Reason: s.Decision.Reason, Text: s.Text, Severity: severity(s),
	}
	if row.Waits && row.Severity == SeverityNone {
		row.Severity = SeverityWaits
	}
	if pv.Claim.Name != "" {
		row.Claim = pv.Claim.Namespace + "/" + pv.Claim.Name
	}
	if pv.Terminating {
		at := metav1.Unix(pv.TerminatingSince, 0)
		row.Terminating = &at
	}
	if o != nil {
		row.Phase = phaseOf(o)
		size := o.Spec.Capacity[v1.ResourceStorage]
		row.Bytes = size.Value()
	}
	if row.Waits {
		row.Since = row.Terminating
		if o != nil && row.Since == nil {
			row.Since = o.Status.LastPhaseTransitionTime
		}
	}
	return row
}

func phaseOf(o *v1.PersistentVolume) string {
	return string(cmp.Or(o.Status.Phase, v1.VolumePending))
}

func severity(s volumes.Standing) Severity {
	switch {
	case s.Attention:
		return SeverityAttention
	case s.Waits:
		return SeverityWaits
	}
	return SeverityNone
}

func (f Facts) claimRows(rows []Row) []Row {
	terminating := map[string]Row{}
	for _, row := range rows {
		if row.Kind == KindPV && row.Terminating != nil {
			terminating[row.Name] = row
		}
	}
	for _, claim := range f.AllClaims.Value {
		row := f.claimRow(claim)
		if pv, is := terminating[row.PV]; is && !row.Waits && f.isClaimOf(claim, row.PV) {
			row.Reason, row.Text, row.Severity, row.Since = pv.Reason, pv.Text, pv.Severity, pv.Since
		}
		if f.counts(row.Driver) {
			rows = append(rows, row)
		}
	}
	return rows
}

func (f Facts) isClaimOf(claim *v1.PersistentVolumeClaim, pv string) bool {
	o := f.Object(pv)
	return o != nil && o.Spec.ClaimRef != nil && o.Spec.ClaimRef.UID == claim.UID
}

// claimRow returns the row of a claim. Only claims that wait need a decision of their own. A bound claim gets the
// decision of its PV while the PV is terminating, because the data goes with it.
func (f Facts) claimRow(o *v1.PersistentVolumeClaim) Row {
	row := Row{Ref: Ref{Kind: KindClaim, Namespace: o.Namespace, Name: o.Name}, Phase: string(o.Status.Phase),
		PV: o.Spec.VolumeName, Severity: SeverityNone, Terminating: o.DeletionTimestamp}
	size, bound := o.Status.Capacity[v1.ResourceStorage]
	if !bound {
		size = o.Spec.Resources.Requests[v1.ResourceStorage]
	}
	row.Bytes = size.Value()
	facts := volumes.ClaimFacts{ClusterFacts: f.ClusterFacts, Claim: o}
	if class := objects.ClaimClass(o); class != "" {
		facts.Class = f.Class(class)
	}
	if pv := f.Object(o.Spec.VolumeName); pv != nil {
		facts.PV = explain.Found(&volumes.PVFacts{PV: pv})
	}
	row.Driver = facts.Driver()
	if o.DeletionTimestamp == nil && o.Spec.VolumeName != "" && o.Status.Phase == v1.ClaimBound {
		return row
	}
	facts.Pods = f.Users(o.Namespace, o.Name)
	s := volumes.StandingOf(facts)
	row.Waits, row.Reason, row.Text, row.Severity = s.Waits, s.Decision.Reason, s.Text, severity(s)
	row.WaitsFor = s.WaitsFor
	if row.Since = o.DeletionTimestamp; row.Since == nil {
		row.Since = &o.CreationTimestamp
	}
	return row
}

// podRows adds the pods that need attention: held pods, and pods on nodes that are down.
func (f Facts) podRows(rows []Row) []Row {
	for _, pod := range pods.ListOf(f.Pods, true).Pods {
		row := Row{Ref: Ref{Kind: KindPod, Namespace: pod.Namespace, Name: pod.Name}, Phase: pod.Status, Node: pod.Node,
			Terminating: pod.TerminatingSince, Reason: pod.Reason, Text: pod.WaitsFor, Severity: SeverityNone}
		if len(pod.Claims) > 0 {
			row.Claim = pod.Namespace + "/" + pod.Claims[0]
			row.Driver = f.driverOf(pod.Namespace, pod.Claims[0])
		}
		if row.Waits = pod.TerminatingSince != nil || pod.NodeDown; row.Waits {
			row.Severity, row.WaitsFor = SeverityWaits, cmp.Or(pod.WaitsFor, "node "+pod.Node+" to become Ready")
			if since := pod.Since(); !since.IsZero() {
				row.Since = &metav1.Time{Time: since}
			}
		}
		if pod.NodeDown && row.Text == "" {
			row.Text = "Node " + pod.Node + " is down."
		}
		if row.Waits && (pod.Warns || pod.Held && pod.TerminatingSince != nil && pod.NodeDown) {
			row.Severity = SeverityAttention
		}
		rows = append(rows, row)
	}
	return rows
}

func (f Facts) fenceRows(rows []Row) []Row {
	ended := map[string]bool{}
	for _, fence := range f.Fences.Fences {
		ended[fence.Name] = explain.FenceEnded(fence)
	}
	for _, fence := range nodes.ListOf(f.Fences).Fences {
		row := Row{Ref: Ref{Kind: KindFence, Name: fence.Node}, Phase: fence.Phase, Node: fence.Node,
			Waits: !ended[fence.Node], Reason: fence.Reason, Text: cmp.Or(fence.WaitsFor, fence.Because),
			Severity: SeverityNone, Since: &fence.Since}
		if row.Waits {
			row.Severity, row.WaitsFor = SeverityWaits, fence.WaitsFor
		}
		if fence.Held != nil && *fence.Held > 0 && fence.Covers == "" && fence.Attempts > 0 {
			row.Severity = SeverityAttention
		}
		rows = append(rows, row)
	}
	return rows
}

func (f Facts) nodeRows(rows []Row) []Row {
	for name, node := range f.Pods.Nodes.Value {
		ready, since := readyOf(node)
		if ready {
			continue
		}
		row := Row{Ref: Ref{Kind: KindNode, Name: name}, Phase: "NotReady", Node: name, Waits: true, Reason: "NodeDown",
			Text: "Node " + name + " is not ready. The state of its pods is not known.", Severity: SeverityAttention}
		if !since.IsZero() {
			row.Since = &metav1.Time{Time: since}
		}
		rows = append(rows, row)
	}
	return rows
}

func readyOf(node *v1.Node) (ready bool, since time.Time) {
	if c := explain.ReadyOf(node); c != nil {
		return c.Status == v1.ConditionTrue, c.LastTransitionTime.Time
	}
	return false, time.Time{}
}

func (f Facts) inFlightRows(rows []Row) []Row {
	for _, e := range f.InFlight.Value.Entries {
		if f.counts(e.Driver) {
			rows = append(rows, f.inFlightRow(e))
		}
	}
	return rows
}

func (f Facts) inFlightRow(e inflight.Located) Row {
	s := f.StandingOfEntry(e, f.ClaimOf(e.Claim.Namespace, e.Claim.Name))
	since := metav1.NewTime(e.Begun)
	row := Row{Ref: Ref{Kind: KindInFlight, Name: e.Volume}, Driver: e.Driver, Waits: true, Reason: s.Decision.Reason,
		Text: s.Text, Severity: severity(s), Since: &since, Claim: e.Claim.Namespace + "/" + e.Claim.Name,
		WaitsFor: "driver " + e.Driver + " to answer CreateVolume"}
	for _, r := range e.Requests {
		row.Bytes = max(row.Bytes, r.Create.GetCapacityRange().GetRequiredBytes())
	}
	return row
}

// maxLeaks limits the suspects of one driver that have rows.
const maxLeaks = 10000

// leakRows adds the suspected leaks, whose names contain the driver because two drivers may use the same handle.
func (f Facts) leakRows(rows []Row) []Row {
	for _, report := range f.Leaks {
		if !f.counts(report.Driver) {
			continue
		}
		for i, v := range report.Volumes {
			if i == maxLeaks {
				break
			}
			if v.Suspected {
				rows = append(rows, leakRow(report.Driver, v))
			}
		}
	}
	return rows
}

func leakRow(driver string, v leaks.Found) Row {
	row := Row{Ref: Ref{Kind: KindVolume, Name: driver + "/" + v.Handle}, Driver: driver, Waits: true,
		Reason: string(v.Reason), Severity: SeverityAttention, Bytes: v.Bytes,
		Text: fmt.Sprintf("%s kubectl reclaim leaks --driver=%s", v.Reason.Sentence(), driver)}
	if !v.FirstSeen.IsZero() {
		row.Since = &metav1.Time{Time: v.FirstSeen}
	}
	return row
}
