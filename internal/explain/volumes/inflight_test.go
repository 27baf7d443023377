package volumes

import (
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

// entry is an open entry of the driver's log, begun an hour ago, for the claim ns/data with this UID.
func entry(uid types.UID) inflight.Located {
	name := "pvc-" + string(uid)
	return inflight.Located{
		Entry: inflight.Entry{
			Volume: name, Claim: volume.ClaimRef{Namespace: "ns", Name: "data", UID: uid}, Begun: now().Add(-time.Hour),
			Requests: []inflight.Request{{
				Node: "n1", Secret: &v1.SecretReference{Namespace: "kube-system", Name: "pool-key"},
				Create: &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30},
					Parameters: map[string]string{"pool": "hidden-value", "tier": "x"}},
				PV: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec: v1.PersistentVolumeSpec{StorageClassName: "fast"}},
			}},
		},
		Location: inflight.Location{Lease: types.NamespacedName{Namespace: "kube-system", Name: "disk-in-flight-3"},
			Annotation: "in-flight.csi-reclaimer.io/" + name, Driver: driver},
	}
}

// openEntries fills the log with these entries.
func (w *ClusterFacts) openEntries(entries ...inflight.Located) {
	w.InFlight = explain.Found(explain.InFlightLogs{Entries: entries})
}

// removeEntryCommand removes the entry of the claim with UID c.
const removeEntryCommand = "kubectl reclaim settle pvc-c"

// kept is said of an entry whose volume has a PV, or may have one, for this reason.
func kept(why string) []string {
	return []string{"In flight    volume pvc-c", "Keep volume pvc-c in the storage system: " + why + ". If the driver " +
		"can no longer answer, this only ends the tries to create it: " + removeEntryCommand, "!delete it there"}
}

// onNode makes an entry one of the log of node n1.
func onNode(e inflight.Located) inflight.Located {
	e.Node = &volume.Node{Name: "n1", Segments: map[string]string{"node": "n1"}}
	return e
}

// onlyAt is a PV of the driver whose volume is on this node.
func onlyAt(name, node string) *v1.PersistentVolume {
	f := released()
	f.onNodes(node)
	f.PV.Name = name
	return f.PV
}

// apart is said of an entry of node n1 if the PV of the volume's name is of node n2.
var apart = []string{"Keep the volume of PV pvc-c, which is at node=n2. If the driver of node n1 can no longer " +
	"answer: look on that node for another volume named pvc-c. If there is none, or after you delete it there: " +
	removeEntryCommand, "!only ends the tries"}

// bindTo binds the claim to this PV, of which only the name is known.
func (f *ClaimFacts) bindTo(pv string) {
	f.Claim.Spec.VolumeName, f.Claim.Status.Phase = pv, v1.ClaimBound
	f.PV = explain.Found[*PVFacts](nil)
}

func TestExplainClaimWithVolumeInFlight(t *testing.T) {
	always := []string{
		"In flight    volume pvc-c of driver " + driver + ", for 60m, for claim ns/data (UID c)",
		"1Gi; class fast; node n1; parameters pool, tier; with Secret kube-system/pool-key", "!hidden-value",
		"repeated until its outcome is known", "look in the storage system for a volume named pvc-c", removeEntryCommand,
		"CreateVolume, FinishProvisioning (by csi-reclaimer beside " + driver,
	}
	explained.Table(t, pending, claimText, map[string]explained.Row[ClaimFacts]{
		"it waits": {func(f *ClaimFacts) { f.openEntries(entry("c")) }, append(always,
			"waits for driver "+driver+" to answer CreateVolume, whose outcome has been unknown for 60m")},
		"its PV is refused": {func(f *ClaimFacts) {
			f.openEntries(entry("c"))
			f.Events = explain.Found([]v1.Event{{Reason: string(provision.ReasonPVRefused), Message: "no volumes on Sundays"},
				{Reason: "ExternalProvisioning", Message: "Waiting for a volume to be created"}})
		}, append(always, "waits for the API server to accept the PV of volume pvc-c, which the driver has created",
			"!to answer CreateVolume")},
		"it is bound": {func(f *ClaimFacts) {
			f.openEntries(entry("c"))
			f.bindTo("pvc-c")
		}, kept("claim ns/data is bound to it")},
		"it is bound, and PVs cannot be read": {func(f *ClaimFacts) {
			f.openEntries(entry("c"))
			f.bindTo("pvc-c")
			explained.Forbid(&f.PVs)
			f.PV = explain.Failed[*PVFacts](errForbidden)
		}, kept("claim ns/data is bound to it")},
		"it is bound to another PV": {func(f *ClaimFacts) {
			f.openEntries(entry("c"))
			f.bindTo("other")
		}, []string{"after you delete it there: " + removeEntryCommand, "!Keep volume"}},
		"it is bound to the volume of another node": {func(f *ClaimFacts) {
			f.openEntries(onNode(entry("c")))
			f.bindTo("pvc-c")
			f.PV = explain.Found(&PVFacts{PV: onlyAt("pvc-c", "n2")})
		}, apart},
		"it is bound to the volume of its node": {func(f *ClaimFacts) {
			f.openEntries(onNode(entry("c")))
			f.bindTo("pvc-c")
			f.PV = explain.Found(&PVFacts{PV: onlyAt("pvc-c", "n1")})
		}, kept("claim ns/data is bound to it")},
		"only the list shows the volume of another node": {func(f *ClaimFacts) {
			f.openEntries(onNode(entry("c")))
			f.bindTo("pvc-c")
			f.PVs = explain.Found([]explain.PV{explain.PVOf(onlyAt("pvc-c", "n2"))})
		}, apart},
		"the volume of another node and its own have PVs": {func(f *ClaimFacts) {
			f.openEntries(onNode(entry("c")))
			f.PVs = explain.Found([]explain.PV{explain.PVOf(onlyAt("pvc-c", "n2")),
				explain.PVOf(onlyAt("pvc-c-apart-0011aabb", "n1"))})
		}, kept("PV pvc-c-apart-0011aabb names it")},
		"its PV is listed, and it is not bound yet": {func(f *ClaimFacts) {
			f.openEntries(entry("c"))
			f.shown("pvc-c", false)
		}, kept("PV pvc-c names it")},
		"its volume got its PV under another name": {func(f *ClaimFacts) {
			f.openEntries(entry("c"))
			f.shown("pvc-c-apart-0011aabb", false)
		}, kept("PV pvc-c-apart-0011aabb names it")},
		"PVs cannot be read": {func(f *ClaimFacts) { f.openEntries(entry("c")); explained.Forbid(&f.PVs) },
			kept("PVs could not be read, and one may name it")},
		"PVs were not read": {func(f *ClaimFacts) { f.openEntries(entry("c")); explained.Skip(&f.PVs) },
			kept("PVs could not be read, and one may name it")},
		"its class is gone": {func(f *ClaimFacts) {
			f.openEntries(entry("c"))
			explained.Remove(&f.Class)
		},
			append(always, "waits for StorageClass fast, which does not exist")},
		"it is being deleted": {func(f *ClaimFacts) { f.openEntries(entry("c")); f.terminate(pvc.Finalizer) },
			[]string{"(Unused)", removeEntryCommand, "!is stuck"}},
		"it belongs to an earlier claim of that name": {func(f *ClaimFacts) { f.openEntries(entry("earlier")) },
			[]string{"for claim ns/data (UID earlier)", "BuildRequest, Provision", "waits for driver " + driver +
				" to create the volume"}},
		"the log cannot be read": {func(f *ClaimFacts) { explained.Forbid(&f.InFlight) },
			[]string{"The in-flight log (Leases): forbidden. So it is not known whether the volume is being provisioned.",
				"!Decision"}},
		"its entry cannot be read": {func(f *ClaimFacts) { f.entryUnreadable("pvc-c") },
			[]string{"Wait, InFlightLogUnreadable", "the in-flight log to be readable where",
				"still no PV names it (kubectl get pv)",
				"kubectl annotate lease -n kube-system l-1 in-flight.csi-reclaimer.io/pvc-c-"}},
		"neither its entry nor PVs can be read": {func(f *ClaimFacts) {
			f.entryUnreadable("pvc-c")
			explained.Forbid(&f.PVs)
		}, []string{"Keep the volume of annotation in-flight.csi-reclaimer.io/pvc-c of Lease kube-system/l-1",
			"PVs could not be read, and one may name it", "!delete it there",
			"kubectl annotate lease -n kube-system l-1 in-flight.csi-reclaimer.io/pvc-c-"}},
		"the Lease for its entry is a copy": {func(f *ClaimFacts) { f.shardUnreadable(driver, "l") },
			[]string{"Wait, InFlightLogUnreadable", "kubectl delete lease -n kube-system l"}},
		"its volume may be in another shard than usual": {func(f *ClaimFacts) {
			f.shardUnreadable(driver, "disk-in-flight-7")
		}, []string{"BuildRequest, Provision", "driver " + driver + " to create the volume",
			"the in-flight log to be readable, if flags give its volume another name than pvc-c"}},
		"the Lease of the chunks cannot be read": {func(f *ClaimFacts) {
			f.shardUnreadable(driver, "disk-in-flight-topology")
		}, []string{"driver " + driver + " to create the volume", "!readable"}},
		"an entry of another name cannot be read": {func(f *ClaimFacts) { f.entryUnreadable("disk-c") },
			[]string{"if flags give its volume another name than pvc-c"}},
		"another claim's entry cannot be read": {func(f *ClaimFacts) { f.entryUnreadable("disk-d") },
			[]string{"driver " + driver + " to create the volume", "!another name"}},
		"its PV has another name than usual": {func(f *ClaimFacts) { f.shown("disk-c", false) },
			[]string{"Wait, VolumeStored", "disk-c, to which the claim is not bound yet",
				"waits for kube-controller-manager to bind it to PV disk-c", "!to create the volume"}},
		"its PV of another name is terminating": {func(f *ClaimFacts) { f.shown("disk-c", true) },
			[]string{"Wait, PersistentVolumeNameTaken", "waits for PV disk-c to be gone, which is terminating",
				"!to create the volume"}},
		"its PV has another name, and a shard of another volume cannot be read": {func(f *ClaimFacts) {
			f.shown("disk-c", false)
			f.shardUnreadable(driver, "disk-in-flight-7")
		}, []string{"Wait, VolumeStored", "!readable"}},
		"an administrator's PV is for it": {func(f *ClaimFacts) { f.shown("data", false) },
			[]string{"BuildRequest, Provision", "none yet"}},
		"another driver's Lease is a copy": {func(f *ClaimFacts) { f.shardUnreadable("another", "l") },
			[]string{"BuildRequest, Provision", "!delete lease"}},
	})
}

func TestExplainDeletedClaim(t *testing.T) {
	f := pending()
	f.openEntries(entry("c"))
	last := v1.Event{LastTimestamp: metav1.NewTime(f.Now.Add(-3 * time.Minute)), Reason: "ProvisioningOutcomeUnknown",
		ReportingController: driver, Message: "no quota. " + provision.ReasonOutcomeUnknown.Sentence()}
	newer, others := last, last
	newer.LastTimestamp = metav1.NewTime(f.Now.Add(-time.Minute))
	newer.Message = "Claim ns/data, which is bound or gone, volume pvc-c: no room. CreateVolume was called"
	others.Message = "Claim ns/x, which is bound or gone, volume pvc-c2: of another. CreateVolume was called"
	deleted := DeletedClaimFacts{ClusterFacts: f.ClusterFacts, Events: explain.Found([]v1.Event{last}),
		LeaseEvents: explain.Found([]v1.Event{newer, others})}
	expect(t, ExplainDeletedClaim(deleted, "ns", "data").Wrapped(false, 0), "60s ago, "+driver+
		": ProvisioningOutcomeUnknown: Claim ns/data, which is bound or gone, volume pvc-c: no room", "!of another")
	expect(t, ExplainDeletedClaim(deleted, "ns", "data").Wrapped(false, 0), "3m ago, "+driver+
		": ProvisioningOutcomeUnknown: no quota. CreateVolume was called",
		"Claim ns/data does not exist, and volume pvc-c has been in flight for it for 60m (FinishProvisioning)",
		removeEntryCommand, "it then gets a PV, which is reclaimed by its policy")
	explained.Forbid(&deleted.PVs)
	expect(t, ExplainDeletedClaim(deleted, "ns", "data").Wrapped(false, 0),
		kept("PVs could not be read, and one may name it")...)
	deleted.shown("pvc-c", false)
	expect(t, ExplainDeletedClaim(deleted, "ns", "data").Wrapped(false, 0), kept("PV pvc-c names it")...)
	explained.Clear(&deleted.PVs)
	newer.Reason = string(provision.ReasonPVRefused)
	deleted.LeaseEvents = explain.Found([]v1.Event{newer, others})
	deleted.LeaseEvents.Value[1].LastTimestamp = metav1.NewTime(f.Now) // of another volume
	expect(t, ExplainDeletedClaim(deleted, "ns", "data").Wrapped(false, 0), "(PersistentVolumeRefused): The volume exists",
		"the API server to accept the PV of volume pvc-c", "!to answer whether")
	explained.Forbid(&deleted.LeaseEvents)
	expect(t, ExplainDeletedClaim(deleted, "ns", "data").Wrapped(false, 0), "Events of the Lease: forbidden", "no quota",
		"to answer whether volume pvc-c exists")
	expect(t, ExplainDeletedClaim(deleted, "ns", "other").Wrapped(false, 0), "Claim ns/other does not exist.",
		"!In flight")
}

// The explanation must not announce a deletion while the volume may be in flight.
func TestExplainPVWithVolumeInFlight(t *testing.T) {
	explained.Table(t, released, pvText, map[string]explained.Row[PVFacts]{
		"no entry": {func(*PVFacts) {}, []string{"DeleteVolume, Reclaim", "!In flight"}},
		"an entry": {func(f *PVFacts) { e := entry("c"); e.Volume = "pv"; f.openEntries(e) },
			[]string{"Wait, ProvisioningInFlight", "In flight    volume pv", "waits (ProvisioningInFlight)",
				"the entry of its volume in the in-flight log to be settled",
				"Keep volume pv in the storage system: PV pv names it", "!delete it there"}},
		"an entry of another node": {func(f *PVFacts) {
			e := onNode(entry("c"))
			e.Volume = "pv"
			f.openEntries(e)
			f.PV.Spec.NodeAffinity = onlyAt("pv", "n2").Spec.NodeAffinity
		}, []string{"DeleteVolume, Reclaim", "!In flight"}},
		"an entry, and the list of PVs lacks the PV": {func(f *PVFacts) {
			e := entry("c")
			e.Volume = "pv"
			f.openEntries(e)
			f.bound()
			explained.Clear(&f.PVs)
		}, []string{"Keep volume pv in the storage system: PV pv names it", "!delete it there"}},
		"its entry cannot be read, and its policy is Retain": {func(f *PVFacts) {
			f.entryUnreadable("pv")
			f.policy(v1.PersistentVolumeReclaimRetain)
			f.terminate(time.Minute)
			explained.Clear(&f.PVs)
		}, []string{"Wait, InFlightLogUnreadable", "Keep the volume of annotation in-flight.csi-reclaimer.io/pv of Lease " +
			"kube-system/l-1 in the storage system: PV pv names it. This only removes the entry: kubectl annotate lease -n " +
			"kube-system l-1 in-flight.csi-reclaimer.io/pv-", "!delete it there"}},
		"an entry of the volume that got its PV under another name": {func(f *PVFacts) {
			e := entry("c")
			e.Volume, f.PV.Name = "p", "p-apart-0011aabb"
			f.openEntries(e)
		},
			[]string{"Wait, ProvisioningInFlight"}},
		"an entry of another driver": {func(f *PVFacts) {
			e := entry("c")
			e.Volume, e.Driver = "pv",
				"another"
			f.openEntries(e)
		}, []string{"DeleteVolume, Reclaim", "!In flight"}},
		"an entry of another volume": {func(f *PVFacts) { f.openEntries(entry("c")) },
			[]string{"DeleteVolume, Reclaim", "!In flight"}},
		"the log cannot be read": {func(f *PVFacts) { explained.Forbid(&f.InFlight) },
			[]string{"!DeleteVolume", string(reclaim.ReasonAPIReadFailed), "(Leases): forbidden"}},
		"a shard of the log cannot be read": {func(f *PVFacts) { f.shardUnreadable(driver, "l") },
			[]string{"Wait, InFlightLogUnreadable", "waits (InFlightLogUnreadable)", "Lease kube-system/l: a copy of another",
				"the in-flight log to be readable where", "kubectl delete lease -n kube-system l"}},
		"a shard of the log for other volumes cannot be": {func(f *PVFacts) {
			f.shardUnreadable(driver, "l-1") // the volume's is another
		}, []string{"DeleteVolume, Reclaim"}},
		"a later version wrote it": {func(f *PVFacts) {
			f.shardUnreadable(driver, "l")
			f.InFlight.Value.Problems[0].Err = inflight.ErrVersion
		}, []string{"Wait, InFlightLogUnreadable", "install the later version", "!delete lease"}},
		"a shard of another log cannot be": {func(f *PVFacts) { f.shardUnreadable("another", "l") },
			[]string{"DeleteVolume, Reclaim"}},
		"a shard of an unknown driver cannot be": {func(f *PVFacts) { f.shardUnreadable("", "l") },
			[]string{"Wait, InFlightLogUnreadable"}},
	})
}

// shown makes a PV with this name, which is the claim's, the only one.
func (w *ClusterFacts) shown(name string, terminating bool) {
	w.PVs = explain.Found([]explain.PV{{PV: volume.PV{Name: name, Driver: driver, Handle: "vol-1",
		Terminating: terminating,
		Claim:       volume.ClaimRef{Namespace: "ns", Name: "data", UID: "c"}}}})
}

// unreadable gives a driver's log one problem.
func (w *ClusterFacts) unreadable(driver string, p inflight.Problem) {
	w.InFlight = explain.Found(explain.InFlightLogs{Problems: []inflight.LocatedProblem{{Problem: p, Driver: driver}}})
}

// shardUnreadable makes one shard of the driver's log unreadable. The shard l may be for any volume.
func (w *ClusterFacts) shardUnreadable(driver, lease string) {
	w.unreadable(driver, inflight.Problem{Lease: "kube-system/" + lease, Err: inflight.ErrCopy})
}

// entryUnreadable makes the entry of a volume unreadable.
func (w *ClusterFacts) entryUnreadable(volume string) {
	w.unreadable(driver, inflight.Problem{Lease: "kube-system/l-1", Volume: volume, Err: inflight.ErrDecode,
		Annotation: "in-flight.csi-reclaimer.io/" + volume})
}

func TestStatusOfVolumesInFlight(t *testing.T) {
	f := StatusFacts{ClusterFacts: released().ClusterFacts}
	older, other := entry("d"), entry("e")
	older.Begun, other.Driver = now().Add(-3*time.Hour), "without-pvs.example.com"
	f.openEntries(entry("c"), older, other)
	f.InFlight.Value.Problems = []inflight.LocatedProblem{{Problem: inflight.Problem{Lease: "kube-system/l",
		Err: inflight.ErrCopy}}}
	s := StatusOf(f, "")
	if len(s.Drivers) != 2 || s.Drivers[0].InFlightWords(now()) != "2 (3h, pvc-d)" ||
		s.Drivers[1].InFlightWords(now()) != "1 (60m, pvc-e)" {
		t.Errorf("%+v", s.Drivers)
	}
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "Lease kube-system/l: a copy") {
		t.Errorf("warnings: %q", s.Warnings)
	}
	f.InFlight.Value.Problems[0].Lease = "kube-system/l-topology"
	if s := StatusOf(f, ""); len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "New volumes with long lists") {
		t.Errorf("without the lists of topologies: %q", s.Warnings)
	}
	if one := StatusOf(f, driver); len(one.Drivers) != 1 {
		t.Errorf("of one driver: %+v", one.Drivers)
	}
	explained.Forbid(&f.InFlight)
	if s := StatusOf(f, ""); len(s.Unread) == 0 || s.Drivers[0].InFlightWords(now()) != "" {
		t.Errorf("the log cannot be read, and it is not said: %+v", s)
	}
}
