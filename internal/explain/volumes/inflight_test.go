package volumes

import (
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
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

func TestExplainClaimWithVolumeInFlight(t *testing.T) {
	always := []string{
		"In flight    volume pvc-c of driver " + driver + ", for 60m, for claim ns/data (UID c)",
		"1Gi; class fast; node n1; parameters pool, tier; with Secret kube-system/pool-key", "!hidden-value",
		"repeated until its outcome is known", "look in the storage system for a volume named pvc-c", removeEntryCommand,
		"CreateVolume, FinishProvisioning (by csi-reclaimer beside " + driver,
	}
	for sentence, c := range map[string]struct {
		change func(*ClaimFacts)
		want   []string
	}{
		"it waits": {func(f *ClaimFacts) { f.openEntries(entry("c")) }, append(always,
			"waits for driver "+driver+" to answer CreateVolume, whose outcome has been unknown for 60m")},
		"its PV is refused": {func(f *ClaimFacts) {
			f.openEntries(entry("c"))
			f.Events = explain.Found([]v1.Event{{Reason: string(provision.ReasonPVRefused), Message: "no volumes on Sundays"},
				{Reason: "ExternalProvisioning", Message: "Waiting for a volume to be created"}})
		}, append(always, "waits for the API server to accept the PV of volume pvc-c, which the driver has created",
			"!to answer CreateVolume")},
		"its class is gone": {func(f *ClaimFacts) {
			f.openEntries(entry("c"))
			f.Class = explain.Found[*storagev1.StorageClass](nil)
		},
			append(always, "waits for StorageClass fast, which does not exist")},
		"it is being deleted": {func(f *ClaimFacts) { f.openEntries(entry("c")); f.terminate(pvc.Finalizer) },
			[]string{"(Unused)", removeEntryCommand, "!is stuck"}},
		"it belongs to an earlier claim of that name": {func(f *ClaimFacts) { f.openEntries(entry("earlier")) },
			[]string{"for claim ns/data (UID earlier)", "BuildRequest, Provision", "waits for driver " + driver +
				" to create the volume"}},
		"the log cannot be read": {func(f *ClaimFacts) { f.InFlight = explain.Failed[explain.InFlightLogs](errForbidden) },
			[]string{"The in-flight log (Leases): forbidden. So it is not known whether the volume is being provisioned.",
				"!Decision"}},
		"its entry cannot be read": {func(f *ClaimFacts) {
			f.InFlight = explain.Found(explain.InFlightLogs{Problems: []inflight.LocatedProblem{
				{Problem: inflight.Problem{Lease: "kube-system/l-1", Annotation: "in-flight.csi-reclaimer.io/pvc-c",
					Volume: "pvc-c", Err: inflight.ErrDecode}, Driver: driver},
			}})
		}, []string{"Wait, InFlightLogUnreadable", "the in-flight log to be readable where",
			"kubectl annotate lease -n kube-system l-1 in-flight.csi-reclaimer.io/pvc-c-"}},
		"the Lease for its entry is a copy": {func(f *ClaimFacts) { f.unreadableShard(driver) },
			[]string{"Wait, InFlightLogUnreadable", "kubectl delete lease -n kube-system l"}},
		"its volume may be in another shard than usual": {func(f *ClaimFacts) {
			f.unreadableShard(driver)
			f.InFlight.Value.Problems[0].Lease = "kube-system/disk-in-flight-7"
		}, []string{"BuildRequest, Provision", "driver " + driver + " to create the volume",
			"the in-flight log to be readable, if flags give its volume another name than pvc-c"}},
		"the Lease of the chunks cannot be read": {func(f *ClaimFacts) {
			f.unreadableShard(driver)
			f.InFlight.Value.Problems[0].Lease = "kube-system/disk-in-flight-topology"
		}, []string{"driver " + driver + " to create the volume", "!readable"}},
		"an entry of another name cannot be read": {func(f *ClaimFacts) {
			f.InFlight = explain.Found(explain.InFlightLogs{Problems: []inflight.LocatedProblem{
				{Problem: inflight.Problem{Lease: "kube-system/l-1", Annotation: "in-flight.csi-reclaimer.io/disk-c",
					Volume: "disk-c", Err: inflight.ErrDecode}, Driver: driver},
			}})
		}, []string{"if flags give its volume another name than pvc-c"}},
		"another claim's entry cannot be read": {func(f *ClaimFacts) {
			f.InFlight = explain.Found(explain.InFlightLogs{Problems: []inflight.LocatedProblem{
				{Problem: inflight.Problem{Lease: "kube-system/l-1", Annotation: "in-flight.csi-reclaimer.io/disk-d",
					Volume: "disk-d", Err: inflight.ErrDecode}, Driver: driver},
			}})
		}, []string{"driver " + driver + " to create the volume", "!another name"}},
		"its PV has another name than usual": {func(f *ClaimFacts) { f.shown("disk-c", false) },
			[]string{"Wait, VolumeStored", "disk-c, to which the claim is not bound yet",
				"waits for kube-controller-manager to bind it to PV disk-c", "!to create the volume"}},
		"its PV of another name is terminating": {func(f *ClaimFacts) { f.shown("disk-c", true) },
			[]string{"Wait, PersistentVolumeNameTaken", "waits for PV disk-c to be gone, which is terminating",
				"!to create the volume"}},
		"its PV has another name, and a shard of another volume cannot be read": {func(f *ClaimFacts) {
			f.shown("disk-c", false)
			f.unreadableShard(driver)
			f.InFlight.Value.Problems[0].Lease = "kube-system/disk-in-flight-7"
		}, []string{"Wait, VolumeStored", "!readable"}},
		"an administrator's PV is for it": {func(f *ClaimFacts) { f.shown("data", false) },
			[]string{"BuildRequest, Provision", "none yet"}},
		"another driver's Lease is a copy": {func(f *ClaimFacts) { f.unreadableShard("another") },
			[]string{"BuildRequest, Provision", "!delete lease"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			f := pending()
			c.change(&f)
			expect(t, ExplainClaim(f).Text(false), c.want...)
		})
	}
}

func TestExplainDeletedClaim(t *testing.T) {
	f := pending()
	f.openEntries(entry("c"))
	last := v1.Event{LastTimestamp: metav1.NewTime(f.Now.Add(-3 * time.Minute)), Reason: "ProvisioningOutcomeUnknown",
		ReportingController: driver, Message: "no quota. " + provision.ReasonOutcomeUnknown.Sentence()}
	newer, others := last, last
	newer.LastTimestamp = metav1.NewTime(f.Now.Add(-time.Minute))
	newer.Message = "Claim ns/data, which is gone, volume pvc-c: no room. CreateVolume was called"
	others.Message = "Claim ns/x, which is gone, volume pvc-c2: of another. CreateVolume was called"
	deleted := DeletedClaimFacts{ClusterFacts: f.ClusterFacts, Events: explain.Found([]v1.Event{last}),
		LeaseEvents: explain.Found([]v1.Event{newer, others})}
	expect(t, ExplainDeletedClaim(deleted, "ns", "data").Text(false), "60s ago, "+driver+
		": ProvisioningOutcomeUnknown: Claim ns/data, which is gone, volume pvc-c: no room", "!of another")
	expect(t, ExplainDeletedClaim(deleted, "ns", "data").Text(false), "3m ago, "+driver+
		": ProvisioningOutcomeUnknown: no quota. CreateVolume was called",
		"Claim ns/data does not exist, and volume pvc-c has been in flight for it for 60m (FinishProvisioning)",
		removeEntryCommand, "it then gets a PV, which is reclaimed by its policy")
	newer.Reason = string(provision.ReasonPVRefused)
	deleted.LeaseEvents = explain.Found([]v1.Event{newer, others})
	deleted.LeaseEvents.Value[1].LastTimestamp = metav1.NewTime(f.Now) // of another volume
	expect(t, ExplainDeletedClaim(deleted, "ns", "data").Text(false), "(PersistentVolumeRefused): The volume exists",
		"the API server to accept the PV of volume pvc-c", "!to answer whether")
	deleted.LeaseEvents = explain.Failed[[]v1.Event](errForbidden)
	expect(t, ExplainDeletedClaim(deleted, "ns", "data").Text(false), "Events of the Lease: forbidden", "no quota",
		"to answer whether volume pvc-c exists")
	expect(t, ExplainDeletedClaim(deleted, "ns", "other").Text(false), "Claim ns/other does not exist.",
		"!In flight")
}

// The explanation must not announce a deletion while the volume may be in flight.
func TestExplainPVWithVolumeInFlight(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*PVFacts)
		want   []string
	}{
		"no entry": {func(*PVFacts) {}, []string{"DeleteVolume, Reclaim", "!In flight"}},
		"an entry": {func(f *PVFacts) { e := entry("c"); e.Volume = "pv"; f.openEntries(e) },
			[]string{"Wait, ProvisioningInFlight", "In flight    volume pv", "waits (ProvisioningInFlight)",
				"the entry of its volume in the in-flight log to be settled"}},
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
		"the log cannot be read": {func(f *PVFacts) { f.InFlight = explain.Failed[explain.InFlightLogs](errForbidden) },
			[]string{"!DeleteVolume", string(reclaim.ReasonAPIReadFailed), "(Leases): forbidden"}},
		"a shard of the log cannot be read": {func(f *PVFacts) { f.unreadableShard(driver) },
			[]string{"Wait, InFlightLogUnreadable", "waits (InFlightLogUnreadable)", "Lease kube-system/l: a copy of another",
				"the in-flight log to be readable where", "kubectl delete lease -n kube-system l"}},
		"a shard of the log for other volumes cannot be": {func(f *PVFacts) {
			f.unreadableShard(driver)
			f.InFlight.Value.Problems[0].Lease = "kube-system/l-1" // the volume's is another
		}, []string{"DeleteVolume, Reclaim"}},
		"a later version wrote it": {func(f *PVFacts) {
			f.unreadableShard(driver)
			f.InFlight.Value.Problems[0].Err = inflight.ErrVersion
		}, []string{"Wait, InFlightLogUnreadable", "Install the later version", "!delete lease"}},
		"a shard of another log cannot be": {func(f *PVFacts) { f.unreadableShard("another") },
			[]string{"DeleteVolume, Reclaim"}},
		"a shard of an unknown driver cannot be": {func(f *PVFacts) { f.unreadableShard("") },
			[]string{"Wait, InFlightLogUnreadable"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			f := released()
			c.change(&f)
			expect(t, ExplainPV(f).Text(false), c.want...)
		})
	}
}

// shown makes a PV with this name, which is the claim's, the only one.
func (w *ClusterFacts) shown(name string, terminating bool) {
	w.PVs = explain.Found([]explain.PV{{PV: volume.PV{Name: name, Driver: driver, Handle: "vol-1",
		Terminating: terminating,
		Claim:       volume.ClaimRef{Namespace: "ns", Name: "data", UID: "c"}}}})
}

// unreadableShard makes one shard of the driver's log unreadable.
func (w *ClusterFacts) unreadableShard(driver string) {
	w.InFlight = explain.Found(
		explain.InFlightLogs{
			Problems: []inflight.LocatedProblem{
				{Problem: inflight.Problem{Lease: "kube-system/l", Err: inflight.ErrCopy}, Driver: driver},
			},
		},
	)
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
	f.InFlight = explain.Failed[explain.InFlightLogs](errForbidden)
	if s := StatusOf(f, ""); len(s.Unread) == 0 || s.Drivers[0].InFlightWords(now()) != "" {
		t.Errorf("the log cannot be read, and it is not said: %+v", s)
	}
}

func TestReleaseKeepsFinalizerOfVolumeInFlight(t *testing.T) {
	facts := StatusFacts{ClusterFacts: released().ClusterFacts, Sidecars: explain.Found[[]coordinationv1.Lease](nil)}
	if p := PlanRelease(facts, driver); len(p.PVs) != 1 || len(p.InFlight) != 0 || len(p.Obstacles) != 0 {
		t.Fatalf("nothing is in flight: %+v", p)
	}
	e := entry("c")
	e.Volume = "pv"
	facts.openEntries(e)
	if p := PlanRelease(facts, driver); len(p.PVs) != 0 || len(p.InFlight) != 1 || p.InFlight[0].Volume != "pv" {
		t.Errorf("its volume is in flight: %+v", p)
	}
	facts.InFlight = explain.Failed[explain.InFlightLogs](errForbidden)
	if p := PlanRelease(facts, driver); len(p.PVs) != 0 || len(p.Obstacles) != 1 {
		t.Errorf("the log cannot be read: %+v", p)
	}
	facts.unreadableShard(driver)
	if p := PlanRelease(facts, driver); len(p.PVs) != 0 || len(p.Obstacles) != 1 {
		t.Errorf("part of the log cannot be read: %+v", p)
	}
	facts.InFlight.Value.Problems[0].Lease = "kube-system/disk-in-flight-topology"
	if p := PlanRelease(facts, driver); len(p.PVs) != 1 || len(p.Obstacles) != 0 {
		t.Errorf("the Lease with the lists of topologies cannot be used: %+v", p)
	}
	facts.unreadableShard("another")
	if p := PlanRelease(facts, driver); len(p.PVs) != 1 || len(p.Obstacles) != 0 {
		t.Errorf("part of another driver's log cannot be read: %+v", p)
	}
}
