package volumes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// StatusFacts holds the results of all reads about a whole cluster.
type StatusFacts struct {
	ClusterFacts
	// Claims holds the claims that ClaimsToRead names, by the PV's claimRef. The Value is nil if the claim is gone.
	Claims map[volume.ClaimRef]explain.Read[*v1.PersistentVolumeClaim]
	// Admission holds the admission policies that protect PVs.
	Admission explain.Read[admission.Coverage]
	// Sidecars holds the Leases with the label of a driver's csi-reclaimer, which only a release needs.
	Sidecars explain.Read[[]coordinationv1.Lease]
}

type Status struct {
	Drivers []DriverStatus `json:"drivers"`
	// Warnings need a person's attention.
	Warnings []string `json:"warnings,omitempty"`
	// Unread lists the reads that failed, and the questions they leave open.
	Unread []string `json:"unread,omitempty"`
}

// DriverStatus summarizes the PVs of one driver.
type DriverStatus struct {
	Driver string `json:"driver"`
	// Role is "in-tree" for an in-tree plugin, and "other" for a provisioner without CSI.
	Role string `json:"role"`
	PVs  int    `json:"pvs"`
	// Protected and Unprotected count the claimed PVs with policy Delete, except those of a provisioner without CSI.
	Protected   int `json:"protected"`
	Unprotected int `json:"unprotected"`
	Terminating int `json:"terminating"`
	// Waiting counts, by reason, the PVs whose deletion is held back.
	Waiting map[string]int `json:"waiting,omitempty"`
	// Oldest is the PV that has been terminating longest, nil if none is.
	Oldest *Oldest `json:"oldestTerminating,omitempty"`
	// InFlight counts the driver's entries in the in-flight log. OldestInFlight is the oldest of them, nil if it has
	// none.
	InFlight       int             `json:"inFlight"`
	OldestInFlight *OldestInFlight `json:"oldestInFlight,omitempty"`
	// Admission reports whether the admission policy protects the driver's PVs: yes, no, or empty if it is not in force
	// or was not read.
	Admission string `json:"admission,omitempty"`
}

type Oldest struct {
	PV string `json:"pv"`
	// Claim is the namespace and name of the PV's claim, empty for none.
	Claim string      `json:"claim,omitempty"`
	Since metav1.Time `json:"since"`
}

type OldestInFlight struct {
	Volume string `json:"volume"`
	// Claim is the namespace and name of the entry's claim.
	Claim string      `json:"claim"`
	Since metav1.Time `json:"since"`
}

// ClaimsToRead is a pure function that returns the claims that decide the status of a driver, or of all drivers if
// driver is empty.
func (f StatusFacts) ClaimsToRead(driver string) (claims []volume.ClaimRef) {
	f.ClusterFacts = f.Indexed()
	for _, pv := range f.PVs.Value {
		if driver != "" && pv.Owner() != driver {
			continue
		}
		if f.decide(pv, explain.Read[*v1.PersistentVolumeClaim]{}).needsClaim {
			claims = append(claims, pv.Claim)
		}
	}
	return claims
}

// StatusOf is a pure function that summarizes the PVs of a cluster by driver. If driver is set, it only counts that
// driver's PVs.
func StatusOf(f StatusFacts, driver string) Status {
	f.ClusterFacts = f.Indexed()
	f.SiblingClaims = f.Claims
	rows := map[string]*DriverStatus{}
	row := func(owner string) *DriverStatus {
		if rows[owner] == nil {
			rows[owner] = f.newRow(owner)
		}
		return rows[owner]
	}
	for _, pv := range f.PVs.Value {
		owner := pv.Owner()
		if owner == "" || driver != "" && owner != driver {
			continue
		}
		row(owner).add(pv, f.decide(pv, f.Claims[pv.Claim]))
	}
	for _, e := range f.InFlight.Value.Entries {
		if driver == "" || e.Driver == driver {
			row(e.Driver).addInFlight(e)
		}
	}
	s := Status{Drivers: make([]DriverStatus, 0, len(rows))} // JSON has a list, not null
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		s.Drivers = append(s.Drivers, *rows[name])
	}
	s.Warnings = f.warnings(s.Drivers)
	s.Unread = f.unread()
	return s
}

func (f StatusFacts) newRow(driver string) *DriverStatus {
	row := &DriverStatus{Driver: driver, Role: "in-tree"}
	switch {
	case explain.InTree(driver):
	case !explain.CSIName(driver), f.by.foreign[driver] && f.presenceOf(driver) != presenceInstalled:
		row.Role = "other"
	default:
		role, guessed := f.RoleOf(driver)
		row.Role = role.String()
		if guessed {
			row.Role += "?"
		}
		if a := f.Admission.Value; a.InForce {
			row.Admission = "no"
			if len(a.Lists[driver]) > 0 {
				row.Admission = "yes"
			}
		}
	}
	return row
}

func (d *DriverStatus) add(pv explain.PV, its decision) {
	d.PVs++
	switch {
	case pv.Policy != volume.PolicyDelete || pv.Claim.UID == "" || foreign(pv):
	case its.protected:
		d.Protected++
	default:
		d.Unprotected++
	}
	if its.waits {
		if d.Waiting == nil {
			d.Waiting = map[string]int{}
		}
		d.Waiting[its.Reason]++
	}
	if !pv.Terminating {
		return
	}
	d.Terminating++
	since := metav1.Unix(pv.TerminatingSince, 0)
	if d.Oldest == nil || since.Before(&d.Oldest.Since) {
		d.Oldest = &Oldest{PV: pv.Name, Since: since}
		if pv.Claim.Name != "" {
			d.Oldest.Claim = pv.Claim.Namespace + "/" + pv.Claim.Name
		}
	}
}

func (d *DriverStatus) addInFlight(e inflight.Located) {
	d.InFlight++
	if d.OldestInFlight == nil || e.Begun.Before(d.OldestInFlight.Since.Time) {
		d.OldestInFlight = &OldestInFlight{Volume: e.Volume, Claim: e.Claim.Namespace + "/" + e.Claim.Name,
			Since: metav1.NewTime(e.Begun)}
	}
}

func (f StatusFacts) warnings(drivers []DriverStatus) (all []string) {
	for _, problem := range f.InFlight.Value.Problems {
		what := "Part of an in-flight log cannot be read, so that volumes of these names are neither provisioned nor deleted"
		if !problem.HidesEntries() {
			what = "New volumes with long lists of topologies wait for this Lease, which may be deleted only while " +
				"csi-reclaimer runs"
		}
		all = append(all, explain.Sentence("%s: %s", what, problem.Problem))
	}
	for _, d := range drivers {
		if command := f.releaseBrakeCommand(d.Driver); command != "" {
			all = append(all, explain.Sentence("Deletions of %s are stopped by the brake. Check that the volumes should be "+
				"deleted; then: %s", d.Driver, command))
		}
		all = append(all, f.idleBrakes(d.Driver)...)
		if warning := f.contested(d.Driver); warning != "" {
			all = append(all, warning)
		}
		if explain.CSIName(d.Driver) && d.Terminating > 0 && f.presenceOf(d.Driver) == presenceGone {
			all = append(all, explain.Sentence("Driver %s is gone, and %s of it %s terminating: kubectl reclaim explain pv/%s",
				d.Driver, plural.Count(d.Terminating, "PV"), plural.Verb(d.Terminating, "is", "are"), d.Oldest.PV))
		}
	}
	return all
}

func (f StatusFacts) unread() []string {
	var s explain.Explanation
	explain.NoteUnread(&s, f.Attachments, "VolumeAttachments", "which volumes are attached")
	explain.NoteUnread(&s, f.Installed, "CSIDrivers", "which drivers are installed")
	explain.NoteUnread(&s, f.OnNodes, "CSINodes", "which drivers the nodes run")
	explain.NoteUnread(&s, f.Leases, "Leases", "whether a brake is on")
	explain.NoteUnread(&s, f.Sidecars, "Leases of csi-reclaimer", "whether it runs on a node")
	explain.NoteUnread(&s, f.InFlight, "The in-flight log (Leases)", "which volumes are being provisioned")
	explain.NoteUnread(&s, f.Admission, "The admission policies", "which drivers they protect")
	claims := 0
	for _, read := range f.Claims {
		if read.Err != nil {
			claims++
		}
	}
	if claims > 0 {
		s.Unread = append(s.Unread, fmt.Sprintf("%s. So it is not known whether they are gone.",
			plural.Count(claims, "claim")))
	}
	return s.Unread
}

// WaitingWords formats Waiting by descending count, as "Attached 2, Held 1".
func (d DriverStatus) WaitingWords() string {
	reasons := slices.SortedFunc(maps.Keys(d.Waiting), func(a, b string) int {
		return cmp.Or(cmp.Compare(d.Waiting[b], d.Waiting[a]), cmp.Compare(a, b))
	})
	words := make([]string, 0, len(reasons))
	for _, reason := range reasons {
		words = append(words, fmt.Sprintf("%s %d", reason, d.Waiting[reason]))
	}
	return strings.Join(words, ", ")
}

// OldestWords formats Oldest as "3d, shop/data (pvc-8a5c0f1e…)", with the whole name of the PV if wide is set or the PV
// has no claim. It is empty if no PV is terminating.
func (d DriverStatus) OldestWords(now time.Time, wide bool) string {
	switch {
	case d.Oldest == nil:
		return ""
	case d.Oldest.Claim == "":
		return explain.Age(now, d.Oldest.Since.Time) + ", " + d.Oldest.PV
	}
	pv := d.Oldest.PV
	if !wide {
		pv = explain.ShortName(pv)
	}
	return fmt.Sprintf("%s, %s (%s)", explain.Age(now, d.Oldest.Since.Time), d.Oldest.Claim, pv)
}

// InFlightWords formats the number of volumes in flight, with age and name of the oldest, as "2 (3h, pvc-1)".
func (d DriverStatus) InFlightWords(now time.Time) string {
	if d.OldestInFlight == nil {
		return ""
	}
	return fmt.Sprintf("%d (%s, %s)", d.InFlight, explain.Age(now, d.OldestInFlight.Since.Time), d.OldestInFlight.Volume)
}

// Standing is the decision on one PV, claim or in-flight log entry in a view of the whole cluster.
type Standing struct {
	Decision decision
	// Waits: the object is due for deletion or creation, which is held back for now. Attention: a person has to act on
	// it.
	Waits, Attention bool
	// Text explains the decision to people, or names another obstacle.
	Text string
	// WaitsFor is the first condition that has to be met. Only StandingOf sets it; for a PV, see WaitsForPV.
	WaitsFor string
}

// VisitPVs calls visit with the decision on each PV of the cluster, and has no other effect.
func (f StatusFacts) VisitPVs(visit func(explain.PV, Standing)) {
	f.ClusterFacts = f.Indexed()
	f.SiblingClaims = f.Claims
	gone := map[string]bool{}
	for _, pv := range f.PVs.Value {
		owner := pv.Owner()
		if _, known := gone[owner]; !known {
			gone[owner] = explain.CSIName(owner) && f.presenceOf(owner) == presenceGone
		}
		d := f.decide(pv, f.Claims[pv.Claim])
		s := Standing{Decision: d, Waits: d.waits || pv.Terminating, Text: d.Text}
		s.Attention = s.Waits && warns(d)
		if gone[owner] && (pv.Terminating || pv.Deletable()) {
			s.Waits, s.Attention = true, true
			if s.Text = f.ifGone(d, owner).Text; s.Text == d.Text {
				s.Text = "Driver " + owner + " is gone: nothing happens to the PV. " + d.Text
			}
		}
		if f.pluginKeeps(pv) {
			s.Waits, s.Attention, s.Text = true, true, f.pluginGone(pv)+". "+intree.ReasonPluginGone.Sentence()
		}
		visit(pv, s)
	}
}

// StandingOf is a pure function that decides on a claim, without its PV and Events. Facts that are not indexed are
// indexed in each call.
func StandingOf(f ClaimFacts) Standing {
	e, d, known := f.explain()
	s := Standing{Decision: d, Text: e.Headline}
	s.Waits = f.Claim.DeletionTimestamp != nil || f.Claim.Spec.VolumeName == "" || f.Claim.Status.Phase == v1.ClaimLost
	s.Attention = s.Waits && (known && warns(d) || len(stuck(e.Finalizers)) > 0) ||
		f.Claim.Status.Phase == v1.ClaimLost
	if len(e.WaitsFor) > 0 {
		s.WaitsFor = e.WaitsFor[0]
	}
	return s
}

// WaitsForPV is a pure function that returns, in short, the first condition that keeps a PV in the cluster, or the next
// step of the decision d; empty if neither is known. The facts must be indexed.
func (f StatusFacts) WaitsForPV(o *v1.PersistentVolume, d decision) string {
	its, pv := PVFacts{ClusterFacts: f.ClusterFacts, PV: o}, explain.PVOf(o)
	owner := pv.Owner()
	if explain.CSIName(owner) && f.presenceOf(owner) == presenceGone {
		return "driver " + owner + ", which is gone"
	}
	if f.pluginKeeps(pv) {
		return "a person, because " + f.pluginGone(pv)
	}
	var s explain.Explanation
	if addReasonWaits(&s, its, pv, d); len(s.WaitsFor) == 0 && pv.Terminating {
		s.Finalizers = its.finalizersOf(o, owner, pv.Driver, its.pluginGone(pv))
		addFinalizerWaits(&s, its)
	}
	switch {
	case len(s.WaitsFor) > 0:
		return s.WaitsFor[0]
	case d.Action == reclaim.DeleteVolume.String():
		return "driver " + owner + " to delete the volume"
	case d.Action != "" && d.Action != reclaim.Wait.String():
		return d.By + ": " + d.Action
	}
	return ""
}

// StandingOfEntry is a pure function that decides on an entry of an in-flight log. claim is the result of reading the
// entry's claim, with a nil Value if the claim is gone. Facts that are not indexed are indexed in each call.
func (w ClusterFacts) StandingOfEntry(e inflight.Located, claim explain.Read[*v1.PersistentVolumeClaim]) Standing {
	if !claim.OK() {
		d := decision{}.undecided(false)
		return Standing{Decision: d, Waits: true, Text: d.Text}
	}
	o := claim.Value
	if o != nil && o.UID != e.Claim.UID {
		o = nil
	}
	d := w.finishProvisioning(e, claimFacts(o, e.Claim, e.Volume))
	return Standing{Decision: d, Waits: true, Text: d.Text, Attention: warns(d) || o == nil}
}

// warns reports whether a decision's reason has severity Warning in its engine's table. A decision without an Action
// lacks a fact that could not be read, which is no reason to call a person.
func warns(d decision) bool {
	reason := d.Reason
	if d.Action == "" {
		return false
	}
	for _, about := range []reasons.About{
		reclaim.Reason(reason).About(), intree.Reason(reason).About(), provision.Reason(reason).About(),
		inuse.Reason(reason).About(),
	} {
		if about.Sentence != "" {
			return about.Severity == reasons.Warning
		}
	}
	return false
}

// BrakeOn reports whether a driver's brake is on, as far as the Leases were read.
func (w ClusterFacts) BrakeOn(driver string) bool {
	return w.Indexed().releaseBrakeCommand(driver) != ""
}
