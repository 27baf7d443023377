package explain

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// InFlightLogs holds the in-flight logs of a cluster, and is a [reclaim.InFlight] that does not change after its read.
type InFlightLogs struct {
	Entries []inflight.Located
	// Problems lists the parts of the logs that cannot be read.
	Problems []inflight.LocatedProblem
	// Fill is the used part of the fullest Lease of each driver's log, where 1 is full.
	Fill map[string]float64
}

// Of returns the log of one driver. A shard that does not name its driver may belong to any driver, so it is included.
func (l InFlightLogs) Of(driver string) InFlightLogs {
	return InFlightLogs{
		Entries: slices.DeleteFunc(slices.Clone(l.Entries), func(e inflight.Located) bool { return e.Driver != driver }),
		Problems: slices.DeleteFunc(slices.Clone(l.Problems),
			func(p inflight.LocatedProblem) bool { return p.Driver != driver && p.Driver != "" }),
	}
}

// InFlight returns the state of the volume of a PV in the logs. problem is the first unreadable part that may concern
// it.
func (l InFlightLogs) InFlight(pv string) (state volume.InFlight, problem string) {
	if unreadable := l.unreadable(pv); len(unreadable) > 0 {
		return volume.InFlightUnreadable, unreadable[0].String()
	}
	if len(l.matching(func(e inflight.Located) bool { return e.Of(pv) })) > 0 {
		return volume.InFlightOpen, ""
	}
	return volume.InFlightSettled, ""
}

// Follow does nothing, because the logs do not change after their read.
func (InFlightLogs) Follow(func(volume string)) {}

// unreadable returns the unreadable parts that may concern the volume of a PV.
func (l InFlightLogs) unreadable(pv string) (all []inflight.LocatedProblem) {
	for _, p := range l.Problems {
		if p.Of(pv) {
			all = append(all, p)
		}
	}
	return all
}

// unreadableElsewhere returns the unreadable parts that concern a claim's volume only if its name is not the usual one.
func (l InFlightLogs) unreadableElsewhere(claim types.UID, usual string) (all []inflight.LocatedProblem) {
	for _, p := range l.Problems {
		if !p.Of(usual) && (p.OfShard() || request.IsVolumeName(p.Volume, claim)) {
			all = append(all, p)
		}
	}
	return all
}

func (l InFlightLogs) matching(fits func(inflight.Located) bool) (all []inflight.Located) {
	for _, e := range l.Entries {
		if fits(e) {
			all = append(all, e)
		}
	}
	return all
}

// InFlight is an entry of the in-flight log: a volume whose CreateVolume may have been called and has no known
// outcome.
type InFlight struct {
	Volume string `json:"volume"`
	Driver string `json:"driver"`
	// Claim is the namespace and name of the claim that the volume is for; ClaimUID is its UID.
	Claim    string      `json:"claim"`
	ClaimUID string      `json:"claimUID"`
	Since    metav1.Time `json:"since"`
	// Lease is the namespace and name of the Lease that holds the entry; Annotation is its key there.
	Lease      string `json:"lease"`
	Annotation string `json:"annotation"`
	// Requests are the requests that csi-reclaimer repeats until it knows the outcome.
	Requests []InFlightRequest `json:"requests"`
}

// InFlightRequest is the printable part of a CreateVolume request. It holds no secrets, and of parameters only the
// names.
type InFlightRequest struct {
	Bytes      int64    `json:"bytes"`
	Parameters []string `json:"parameters,omitempty"`
	// Node is the node that the scheduler selected for the claim, empty if it selected none.
	Node string `json:"node,omitempty"`
	// Source is the snapshot or volume that the data comes from, empty for an empty volume.
	Source string `json:"source,omitempty"`
	// Secret is the namespace and name of the Secret for the request, empty if it uses none.
	Secret string `json:"secret,omitempty"`
	Class  string `json:"class,omitempty"`
}

func inFlightOf(e inflight.Located) InFlight {
	shown := InFlight{
		Volume: e.Volume, Driver: e.Driver, Claim: e.Claim.Namespace + "/" + e.Claim.Name, ClaimUID: string(e.Claim.UID),
		Since: metav1.NewTime(e.Begun), Lease: e.Lease.String(), Annotation: e.Annotation,
	}
	for _, r := range e.Requests {
		q := InFlightRequest{
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

func (q InFlightRequest) text() string {
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

// addInFlight adds the entries as facts, and advice on each.
func (s *Explanation) addInFlight(w ClusterFacts, entries []inflight.Located) {
	NoteUnread(s, w.InFlight, "The in-flight log (Leases)", "whether the volume is being provisioned")
	for _, e := range entries {
		shown := inFlightOf(e)
		s.InFlight = append(s.InFlight, shown)
		s.AddFact("In flight", "volume %s of driver %s, for %s, for claim %s (UID %s)", e.Volume, e.Driver,
			Age(w.Now, e.Begun), shown.Claim, e.Claim.UID)
		for _, q := range shown.Requests {
			s.AddFact("Request", "CreateVolume, repeated until its outcome is known: %s", q.text())
		}
		s.AddFact("Entry", "annotation %s of Lease %s", e.Annotation, shown.Lease)
		s.Advise("If the driver can no longer answer: look in the storage system for a volume named %s. If there is "+
			"none, or after you delete it there: kubectl reclaim settle %s", e.Volume, e.Volume)
	}
}

func (s *Explanation) adviseOnLog(problems []inflight.LocatedProblem) {
	for _, p := range problems {
		namespace, name, _ := strings.Cut(p.Lease, "/")
		switch {
		case errors.Is(p.Err, inflight.ErrVersion):
			s.Advise("Lease %s was written by a version that is not known here. Install the later version of csi-reclaimer "+
				"again, and let it finish its volumes", p.Lease)
		case p.Annotation != "":
			s.Advise("Look in the storage system for the volume of annotation %s of Lease %s. If there is none, or after you "+
				"delete it there: kubectl annotate lease -n %s %s %s-", p.Annotation, p.Lease, namespace, name, p.Annotation)
		default:
			s.Advise("If Lease %s was restored from a backup, applied again, or belongs to no in-flight log: "+
				"kubectl delete lease -n %s %s", p.Lease, namespace, name)
		}
	}
}

// finishProvisioning returns the next step for an entry, as a sidecar that has just started decides it.
func (w ClusterFacts) finishProvisioning(e inflight.Located, claim provision.Claim) Decision {
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

func provisioningDecision(d provision.Decision, driver string) Decision {
	return Decision{
		By: "csi-reclaimer beside " + driver, Action: d.Action.String(), Reason: string(d.Reason), Text: d.Reason.Sentence(),
		waits: d.Action == provision.Wait,
	}
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
	if pv, exists := w.indexed().FindPV(name); exists {
		found.Exists, found.OfClaim, found.OfDriver = true, pv.Claim.UID == claim, pv.Driver == "" || pv.Driver == driver
		found.Handle, found.Terminating = pv.Handle, pv.Terminating
	}
	return found
}

// claimFacts converts a claim with the name of its volume for the engine; nil means that the claim is gone.
func claimFacts(o *v1.PersistentVolumeClaim, gone volume.ClaimRef, volume string) provision.Claim {
	if o == nil {
		return provision.Claim{Namespace: gone.Namespace, Name: gone.Name, UID: gone.UID, Ours: true, Gone: true,
			PVName: volume}
	}
	return provision.Claim{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Ours: true,
		SelectedNode: o.Annotations[annSelectedNode],
		Terminating:  o.DeletionTimestamp != nil, VolumeName: o.Spec.VolumeName, PVName: volume,
	}
}

// DeletedClaimFacts holds the results of all reads about a claim that does not exist.
type DeletedClaimFacts struct {
	ClusterFacts
	// Events holds the Events about the claim of the first entry, and LeaseEvents the Events about the entry's Lease,
	// both with the latest last.
	Events, LeaseEvents Read[[]v1.Event]
}

// ExplainDeletedClaim is a pure function that explains a claim that does not exist by its entries in the in-flight
// log. If the log has none, it only says that the claim does not exist.
func ExplainDeletedClaim(w DeletedClaimFacts, namespace, name string) Explanation {
	what := fmt.Sprintf("Claim %s/%s", namespace, name)
	s := Explanation{Object: "claim " + namespace + "/" + name}
	s.AddFact("Phase", "the claim does not exist")
	entries := w.entriesOf(namespace, name)
	s.addInFlight(w.ClusterFacts, entries)
	if len(entries) == 0 {
		s.AddEvents(w.Events, w.Now)
		s.Headline = what + " does not exist."
		return s
	}
	s.AddEvents(w.eventsOf(entries[0].Volume), w.Now)
	NoteUnread(&s, w.LeaseEvents, "Events of the Lease", "which Events csi-reclaimer wrote after the claim was gone")
	d := w.finishProvisioning(entries[0], claimFacts(nil, entries[0].Claim, entries[0].Volume))
	s.Decision = &d
	why, text := d.Reason, d.Text
	if wasRefused(w.eventsOf(entries[0].Volume)) {
		why, text = string(provision.ReasonPVRefused), provision.ReasonPVRefused.Sentence()
		s.AddWait("the API server to accept the PV of volume %s, which is then reclaimed by its policy", entries[0].Volume)
	} else {
		s.AddWait("driver %s to answer whether volume %s exists; it then gets a PV, which is reclaimed by its policy",
			entries[0].Driver, entries[0].Volume)
	}
	s.Headline = fmt.Sprintf("%s does not exist, and volume %s has been in flight for it for %s (%s): %s.",
		what, entries[0].Volume, Age(w.Now, entries[0].Begun), why, withoutPeriod(text))
	return s
}

// eventsOf returns the Events of a deleted claim, which are on the claim or on the Lease, with the latest last.
func (w DeletedClaimFacts) eventsOf(volume string) Read[[]v1.Event] {
	all := w.Events
	all.Value = slices.Clone(all.Value)
	for _, e := range w.LeaseEvents.Value {
		if strings.Contains(e.Message, " volume "+volume+": ") {
			all.Value = append(all.Value, e)
		}
	}
	SortEvents(all.Value)
	return all
}

// wasRefused reports whether csi-reclaimer's last Event about a volume in flight says that the API server refuses its
// PV, so that the driver has answered. It ignores Events of other programs, such as the PV controller.
func wasRefused(sorted Read[[]v1.Event]) bool {
	for _, e := range slices.Backward(sorted.Value) {
		if reason := provision.Reason(e.Reason); reason.Sentence() != "" {
			return reason == provision.ReasonPVRefused
		}
	}
	return false
}

// entriesOf returns the entries for claims of this namespace and name, with any UID.
func (w ClusterFacts) entriesOf(namespace, name string) []inflight.Located {
	return w.InFlight.Value.matching(func(e inflight.Located) bool {
		return e.Claim.Namespace == namespace &&
			e.Claim.Name == name
	})
}
