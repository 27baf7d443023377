package volumes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func inFlightOf(e inflight.Located) explain.InFlight {
	shown := explain.InFlight{
		Volume: e.Volume, Driver: e.Driver, Claim: e.Claim.Namespace + "/" + e.Claim.Name, ClaimUID: string(e.Claim.UID),
		Since: metav1.NewTime(e.Begun), Lease: e.Lease.String(), Annotation: e.Annotation,
	}
	for _, r := range e.Requests {
		q := explain.InFlightRequest{
			Bytes:      r.Create.GetCapacityRange().GetRequiredBytes(),
			Parameters: slices.Sorted(maps.Keys(r.Create.GetParameters())),
			Node:       r.Node, Class: r.PV.Spec.StorageClassName,
		}
		if source := r.Create.GetVolumeContentSource(); source.GetSnapshot() != nil {
			q.Source = "snapshot " + source.GetSnapshot().GetSnapshotId()
		} else if source.GetVolume() != nil {
			q.Source = "volume " + source.GetVolume().GetVolumeId()
		}
		if r.Secret != nil {
			q.Secret = r.Secret.Namespace + "/" + r.Secret.Name
		}
		shown.Requests = append(shown.Requests, q)
	}
	return shown
}

func requestWords(q explain.InFlightRequest) string {
	words := []string{resource.NewQuantity(q.Bytes, resource.BinarySI).String()}
	add := func(what, value string) {
		if value != "" {
			words = append(words, what+" "+value)
		}
	}
	add("class", q.Class)
	add("node", q.Node)
	add("from", q.Source)
	add("parameters", strings.Join(q.Parameters, ", "))
	add("with Secret", q.Secret)
	return strings.Join(words, "; ")
}

// bond is a PV that was read by itself, or that a claim names, and the words for it. The zero value is none.
type bond struct {
	pv    volume.PV
	words string
}

func bondOf(pv volume.PV) bond { return bond{pv, "PV " + pv.Name + " names it"} }

// find returns a PV that fits. The list of PVs may be older than known.
func (w ClusterFacts) find(fits func(volume.PV) bool, known bond) (_ bond, found bool) {
	if known.pv.Name != "" && fits(known.pv) {
		return known, true
	}
	for _, pv := range w.PVs.Value {
		if fits(pv.PV) {
			return bondOf(pv.PV), true
		}
	}
	return bond{}, false
}

// keeps returns why a volume must stay in the storage system, empty if no PV names it. names reports whether a PV does.
func (w ClusterFacts) keeps(names func(volume.PV) bool, known bond) string {
	by, found := w.find(names, known)
	if !found && !w.PVs.OK() {
		return "PVs could not be read, and one may name it"
	}
	return by.words
}

// addInFlight adds the entries as facts, and advice on each.
func addInFlight(s *explain.Explanation, w ClusterFacts, entries []inflight.Located, known bond) {
	explain.NoteUnread(s, w.InFlight, "The in-flight log (Leases)", "whether the volume is being provisioned")
	for _, e := range entries {
		shown := inFlightOf(e)
		s.InFlight = append(s.InFlight, shown)
		s.AddFact("In flight", "volume %s of driver %s, for %s, for claim %s (UID %s)", e.Volume, e.Driver,
			explain.Age(w.Now, e.Begun), shown.Claim, e.Claim.UID)
		for _, q := range shown.Requests {
			s.AddFact("Request", "CreateVolume, repeated until its outcome is known: %s", requestWords(q))
		}
		s.AddFact("Entry", "annotation %s of Lease %s", e.Annotation, shown.Lease)
		if why := w.keeps(e.Names, known); why != "" {
			s.Advise("Keep volume %s in the storage system: %s. If the driver can no longer answer, this only ends the "+
				"tries to create it: kubectl reclaim settle %s", e.Volume, why, e.Volume)
			continue
		}
		if other, found := w.find(e.Apart, known); found {
			s.Advise("Keep the volume of PV %s, which is at %s. If the driver of node %s can no longer answer: look on that "+
				"node for another volume named %s. If there is none, or after you delete it there: kubectl reclaim settle %s",
				other.pv.Name, other.pv.Affinity, e.Node.Name, e.Volume, e.Volume)
			continue
		}
		where := "in the storage system"
		if e.Node != nil {
			where = "on node " + e.Node.Name
		}
		s.Advise("If the driver can no longer answer: look %s for a volume named %s. If there is none, or after you delete "+
			"it there: kubectl reclaim settle %s", where, e.Volume, e.Volume)
	}
}

func adviseOnLog(s *explain.Explanation, w ClusterFacts, problems []inflight.LocatedProblem, known bond) {
	for _, p := range problems {
		namespace, name, _ := strings.Cut(p.Lease, "/")
		kept := ""
		if p.Annotation != "" {
			kept = w.keeps(func(pv volume.PV) bool { return p.Of(pv.Name) }, known)
		}
		switch {
		case errors.Is(p.Err, inflight.ErrVersion):
			s.Advise("Lease %s was written by a version that is not known here. Use kubectl reclaim of the version of "+
				"csi-reclaimer. After a downgrade, install the later version again, and let it finish its volumes", p.Lease)
		case kept != "":
			s.Advise("Keep the volume of annotation %s of Lease %s in the storage system: %s. This only removes the entry: "+
				"kubectl annotate lease -n %s %s %s-", p.Annotation, p.Lease, kept, namespace, name, p.Annotation)
		case p.Annotation != "":
			s.Advise("Look in the storage system for the volume of annotation %s of Lease %s. If it exists, and still no PV "+
				"names it (kubectl get pv), delete it there. Then: kubectl annotate lease -n %s %s %s-", p.Annotation, p.Lease,
				namespace, name, p.Annotation)
		default:
			s.Advise("If Lease %s was restored from a backup, applied again, or belongs to no in-flight log: "+
				"kubectl delete lease -n %s %s", p.Lease, namespace, name)
		}
	}
}

// finishProvisioning returns the next step for an entry, as a sidecar that has just started decides it.
func (w ClusterFacts) finishProvisioning(e inflight.Located, claim provision.Claim) decision {
	var requests []provision.Request
	for _, r := range e.Requests {
		requests = append(requests, provision.Request{Node: r.Node, MayReschedule: r.MayReschedule})
	}
	f := provision.Facts{
		MayAct: true, Claim: claim, Log: provision.LogOpen, VersionNoted: true, Confirmed: true,
		PV:     w.provisionedPV(e.Volume, claim.UID, e.Driver),
		Record: provision.Inherited(e.Claim.UID, requests, w.Now),
	}
	return provisioningDecision(provision.Decide(f, w.Now, 0), e.Driver)
}

func provisioningDecision(d provision.Decision, driver string) decision {
	return decision{Decision: explain.Decision{By: "csi-reclaimer beside " + driver, Action: d.Action.String(),
		Reason: string(d.Reason), Text: d.Reason.Sentence()}, waits: d.Action == provision.Wait}
}

// volumeName returns the name of the volume that a claim without an entry has or gets. shown means that a PV of the
// list has it. Otherwise it is the usual name, because the flags of the program that forms it are not known here.
func (w ClusterFacts) volumeName(claim types.UID, driver string) (name string, shown bool) {
	for _, pv := range w.PVs.Value {
		if pv.Claim.UID == claim && request.IsVolumeName(pv.Name, claim) && (pv.Driver == "" || pv.Driver == driver) {
			return pv.Name, true
		}
	}
	return "pvc-" + string(claim), false
}

// provisionedPV returns the PV of the volume's name, according to the list of PVs.
func (w ClusterFacts) provisionedPV(name string, claim types.UID, driver string) provision.PV {
	if !w.PVs.OK() {
		return provision.PV{}
	}
	found := provision.PV{Known: true, Read: w.Now}
	if pv, exists := w.Indexed().FindPV(name); exists {
		found.Exists, found.OfClaim, found.OfDriver = true, pv.Claim.UID == claim, pv.Driver == "" || pv.Driver == driver
		found.Handle, found.Terminating = pv.Handle, pv.Terminating
	}
	return found
}

// claimFacts converts a claim with the name of its volume for the engine; nil means that the claim is gone.
func claimFacts(o *v1.PersistentVolumeClaim, gone volume.ClaimRef, pv string) provision.Claim {
	if o == nil {
		return provision.Claim{Namespace: gone.Namespace, Name: gone.Name, UID: gone.UID, Ours: true, Gone: true,
			PVName: pv}
	}
	return provision.Claim{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Ours: true,
		SelectedNode: o.Annotations[volume.AnnSelectedNode],
		Terminating:  o.DeletionTimestamp != nil, VolumeName: o.Spec.VolumeName, PVName: pv,
	}
}

// DeletedClaimFacts holds the results of all reads about a claim that does not exist.
type DeletedClaimFacts struct {
	ClusterFacts
	// Events holds the Events about the claim of the first entry, and LeaseEvents the Events about the entry's Lease,
	// both with the latest last.
	Events, LeaseEvents explain.Read[[]v1.Event]
}

// ExplainDeletedClaim is a pure function that explains a claim that does not exist by its entries in the in-flight
// log. If the log has none, it only says that the claim does not exist.
func ExplainDeletedClaim(w DeletedClaimFacts, namespace, name string) explain.Explanation {
	what := fmt.Sprintf("Claim %s/%s", namespace, name)
	s := explain.Explanation{Object: "claim " + namespace + "/" + name}
	s.AddFact("Phase", "the claim does not exist")
	entries := w.entriesOf(namespace, name)
	addInFlight(&s, w.ClusterFacts, entries, bond{})
	if len(entries) == 0 {
		s.AddEvents(w.Events, w.Now)
		s.Headline = what + " does not exist."
		return s
	}
	s.AddEvents(w.eventsOf(entries[0].Volume), w.Now)
	explain.NoteUnread(&s, w.LeaseEvents, "Events of the Lease",
		"which Events csi-reclaimer wrote after the claim was gone")
	d := w.finishProvisioning(entries[0], claimFacts(nil, entries[0].Claim, entries[0].Volume))
	s.Decision = &d.Decision
	why, text := d.Reason, d.Text
	if wasRefused(w.eventsOf(entries[0].Volume)) {
		why, text = string(provision.ReasonPVRefused), provision.ReasonPVRefused.Sentence()
		s.AddWait("the API server to accept the PV of volume %s, which is then reclaimed by its policy", entries[0].Volume)
	} else {
		s.AddWait("driver %s to answer whether volume %s exists; it then gets a PV, which is reclaimed by its policy",
			entries[0].Driver, entries[0].Volume)
	}
	s.Headline = fmt.Sprintf("%s does not exist, and volume %s has been in flight for it for %s (%s): %s.",
		what, entries[0].Volume, explain.Age(w.Now, entries[0].Begun), why, explain.WithoutPeriod(text))
	return s
}

// eventsOf returns the Events of a deleted claim, which are on the claim or on the Lease, with the latest last.
func (w DeletedClaimFacts) eventsOf(volume string) explain.Read[[]v1.Event] {
	all := w.Events
	all.Value = slices.Clone(all.Value)
	for _, e := range w.LeaseEvents.Value {
		if strings.Contains(e.Message, " volume "+volume+": ") {
			all.Value = append(all.Value, e)
		}
	}
	explain.SortEvents(all.Value)
	return all
}

// wasRefused reports whether csi-reclaimer's last Event about a volume in flight says that the API server refuses its
// PV, so that the driver has answered. It ignores Events of other programs, such as the PV controller.
func wasRefused(sorted explain.Read[[]v1.Event]) bool {
	for _, e := range slices.Backward(sorted.Value) {
		if reason := provision.Reason(e.Reason); reason.Sentence() != "" {
			return reason == provision.ReasonPVRefused
		}
	}
	return false
}

// entriesOf returns the entries for claims of this namespace and name, with any UID.
func (w ClusterFacts) entriesOf(namespace, name string) []inflight.Located {
	return w.InFlight.Value.Matching(func(e inflight.Located) bool {
		return e.Claim.Namespace == namespace &&
			e.Claim.Name == name
	})
}
