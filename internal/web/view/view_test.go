package view

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

const driver = "disk.csi.example.com"

var now, ago = explained.Now, explained.Ago

func newPV(name string, change func(*v1.PersistentVolume)) *v1.PersistentVolume {
	o := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Finalizers: []string{volume.Finalizer},
			CreationTimestamp: ago(48 * time.Hour), Annotations: map[string]string{volume.AnnProvisionedBy: driver}},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
			ClaimRef:                      &v1.ObjectReference{Namespace: "ns", Name: "data", UID: "c"},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver,
				VolumeHandle: "vol-" + name}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeReleased, LastPhaseTransitionTime: ptr.To(ago(time.Hour))},
	}
	if change != nil {
		change(o)
	}
	return o
}

func newClaim(name string, change func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	o := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "c", CreationTimestamp: ago(48 * time.Hour),
			Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": driver}},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv", StorageClassName: ptr.To("fast"),
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceStorage: resource.MustParse("2Gi")}}},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound,
			Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("3Gi")}},
	}
	if change != nil {
		change(o)
	}
	return o
}

// cluster has an installed driver and readable objects, and the claims of its PVs are gone.
func cluster(pvs ...*v1.PersistentVolume) Facts {
	by := map[string]*v1.PersistentVolume{}
	var records []explain.PV
	claims := map[volume.ClaimRef]explain.Read[*v1.PersistentVolumeClaim]{}
	for _, o := range pvs {
		by[o.Name] = o
		record := explain.PVOf(o)
		records = append(records, record)
		claims[record.Claim] = explain.Found[*v1.PersistentVolumeClaim](nil)
	}
	f := Facts{
		Object:    func(name string) *v1.PersistentVolume { return by[name] },
		AllClaims: explain.Found[[]*v1.PersistentVolumeClaim](nil),
		ClaimOf: func(string, string) explain.Read[*v1.PersistentVolumeClaim] {
			return explain.Found[*v1.PersistentVolumeClaim](nil)
		},
		Class: func(name string) explain.Read[*storagev1.StorageClass] {
			return explain.Found(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver})
		},
		Users: func(string, string) explain.Read[[]pvc.Pod] { return explain.Found[[]pvc.Pod](nil) },
	}
	f.ClusterFacts = volumes.ClusterFacts{
		Now: now(), PVs: explain.Found(records), Attachments: explain.Found[[]storagev1.VolumeAttachment](nil),
		Installed: explain.Found([]string{driver}), OnNodes: explain.Found[[]string](nil),
		Leases: explain.Found[[]coordinationv1.Lease](nil), InFlight: explain.Found(explain.InFlightLogs{}),
	}
	f.Claims = claims
	f.Pods.Now, f.Fences.Now = now(), now()
	return f
}

func only(t *testing.T, rows []Row, id string) Row {
	t.Helper()
	at := slices.IndexFunc(rows, func(r Row) bool { return r.ID == id })
	if at < 0 {
		t.Fatalf("no row %s in %+v", id, rows)
	}
	return rows[at]
}

func TestRowsOfPVs(t *testing.T) {
	terminating := func(o *v1.PersistentVolume) { o.DeletionTimestamp = ptr.To(ago(time.Minute)) }
	for name, c := range map[string]struct {
		change   func(*v1.PersistentVolume)
		facts    func(*Facts)
		reason   reclaim.Reason
		severity Severity
		since    time.Duration
		// waitsFor is a part of the next step.
		waitsFor string
	}{
		"bound": {
			change: func(o *v1.PersistentVolume) { o.Status.Phase = v1.VolumeBound }, reason: "Bound", severity: SeverityNone},
		"released, about to be deleted": {reason: "Reclaim", severity: SeverityWaits, since: time.Hour,
			waitsFor: "driver " + driver + " to delete the volume"},
		"released, policy Retain": {change: func(o *v1.PersistentVolume) {
			o.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
			o.Finalizers = nil
		}, reason: "PolicyKeepsVolume", severity: SeverityNone},
		"terminating": {change: terminating, reason: "Reclaim", severity: SeverityWaits, since: time.Minute},
		"attached": {facts: func(f *Facts) {
			f.Attachments = explain.Found([]storagev1.VolumeAttachment{attachment("pv", "node")})
		}, reason: "Attached", severity: SeverityWaits, since: time.Hour, waitsFor: "to node node to be deleted"},
		"driver gone": {facts: func(f *Facts) { f.Installed = explain.Found[[]string](nil) },
			reason: "Reclaim", severity: SeverityAttention, since: time.Hour},
		"driver gone, terminating": {change: terminating, facts: func(f *Facts) {
			f.Installed = explain.Found[[]string](nil)
		}, reason: "Reclaim", severity: SeverityAttention, since: time.Minute,
			waitsFor: "driver " + driver + ", which is gone"},
		"kept by a finalizer": {change: func(o *v1.PersistentVolume) {
			terminating(o)
			o.Finalizers = []string{"example.com/mine"}
		}, reason: "DeletionUnprotected", severity: SeverityAttention, since: time.Minute, waitsFor: "example.com/mine"},
		"held": {change: func(o *v1.PersistentVolume) { o.Annotations[volume.HoldAnnotation] = "ask me" },
			reason: "Held", severity: SeverityWaits, since: time.Hour},
		"a fact is not known": {facts: func(f *Facts) {
			f.PVs.Err = nil
			f.InFlight = explain.Failed[explain.InFlightLogs](errForbidden)
		}, reason: "APIReadFailed", severity: SeverityWaits, since: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster(newPV("pv", c.change))
			if c.facts != nil {
				c.facts(&f)
			}
			row := only(t, RowsOf(f), "pv/pv")
			if row.Reason != string(c.reason) || row.Severity != c.severity {
				t.Errorf("reason %s, severity %s, want %s and %s: %+v", row.Reason, row.Severity, c.reason, c.severity, row)
			}
			switch {
			case row.Waits != (c.severity != SeverityNone):
				t.Errorf("waits is %v", row.Waits)
			case c.since == 0 && row.Since != nil, c.since > 0 && (row.Since == nil || now().Sub(row.Since.Time) != c.since):
				t.Errorf("since %v, want %s ago", row.Since, c.since)
			}
			if row.Bytes != 1<<30 || row.Driver != driver || row.Claim != "ns/data" || row.Text == "" ||
				!strings.Contains(row.WaitsFor, c.waitsFor) {
				t.Errorf("row is %+v", row)
			}
		})
	}
}

func TestRowsOfClaims(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*v1.PersistentVolumeClaim)
		facts    func(*Facts)
		severity Severity
		text     string
		bytes    int64
	}{
		"bound": {severity: SeverityNone, bytes: 3 << 30},
		"without a volume": {change: unbound, severity: SeverityWaits, bytes: 2 << 30,
			text: "waits for driver " + driver + " to create the volume"},
		"of a class that is gone": {change: func(o *v1.PersistentVolumeClaim) {
			unbound(o)
			o.Annotations = nil
		}, facts: func(f *Facts) {
			f.Class = func(string) explain.Read[*storagev1.StorageClass] {
				return explain.Found[*storagev1.StorageClass](nil)
			}
		}, severity: SeverityWaits, bytes: 2 << 30, text: "StorageClass fast, which does not exist"},
		"lost": {change: func(o *v1.PersistentVolumeClaim) { o.Status.Phase = v1.ClaimLost }, severity: SeverityAttention,
			bytes: 3 << 30},
		"terminating, in use": {change: func(o *v1.PersistentVolumeClaim) {
			o.DeletionTimestamp, o.Finalizers = ptr.To(ago(time.Minute)), []string{pvc.Finalizer}
		}, facts: func(f *Facts) {
			f.Users = func(namespace, name string) explain.Read[[]pvc.Pod] {
				return explain.Found([]pvc.Pod{{Namespace: namespace, Name: "db", Scheduled: true, Claims: []string{name}}})
			}
		}, severity: SeverityWaits, bytes: 3 << 30, text: "db"},
	} {
		t.Run(name, func(t *testing.T) {
			f := cluster()
			f.AllClaims = explain.Found([]*v1.PersistentVolumeClaim{newClaim("data", c.change)})
			if c.facts != nil {
				c.facts(&f)
			}
			row := only(t, RowsOf(f), "claim/ns/data")
			if row.Severity != c.severity || row.Waits != (c.severity != SeverityNone) || row.Bytes != c.bytes ||
				!strings.Contains(row.Text, c.text) {
				t.Errorf("row is %+v", row)
			}
			if row.Waits && row.Since == nil {
				t.Error("it is not known since when")
			}
		})
	}
}

func TestClaimOfTerminatingPVHasItsDecision(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.PersistentVolume)
		same   bool
	}{
		"terminating": {func(o *v1.PersistentVolume) { o.DeletionTimestamp = ptr.To(ago(time.Minute)) }, true},
		"at rest":     {func(*v1.PersistentVolume) {}, false},
		"terminating, and of an earlier claim": {func(o *v1.PersistentVolume) {
			o.DeletionTimestamp, o.Spec.ClaimRef.UID = ptr.To(ago(time.Minute)), "earlier"
		}, false},
		"terminating, without a claim": {func(o *v1.PersistentVolume) {
			o.DeletionTimestamp, o.Spec.ClaimRef = ptr.To(ago(time.Minute)), nil
		}, false},
	} {
		f := cluster(newPV("pv", func(o *v1.PersistentVolume) { o.Status.Phase = v1.VolumeBound; c.change(o) }))
		f.AllClaims = explain.Found([]*v1.PersistentVolumeClaim{newClaim("data", nil)})
		rows := RowsOf(f)
		claim, pv := only(t, rows, "claim/ns/data"), only(t, rows, "pv/pv")
		if same := claim.Reason == pv.Reason && claim.Text == pv.Text && claim.Severity == pv.Severity; same != c.same ||
			claim.Waits || c.same && claim.Since == nil {
			t.Errorf("%s: the claim is %+v, its PV %+v", name, claim, pv)
		}
	}
}

func TestRowsOfPods(t *testing.T) {
	held := explain.Pod{Pod: objects.Pod{Namespace: "ns", Name: "db-0", UID: "p", Node: "down", Held: true,
		Terminating: true,
		Claims:      []string{"data"}, GraceEnds: now().Add(-time.Hour)}, Phase: v1.PodRunning,
		TerminatingSince: now().Add(-time.Hour)}
	runs := explain.Pod{Pod: objects.Pod{Namespace: "ns", Name: "db-1", UID: "q", Node: "up", Held: true,
		Claims: []string{"data-1"}}, Phase: v1.PodRunning}
	other := explain.Pod{Pod: objects.Pod{Namespace: "ns", Name: "web", UID: "r", Node: "up", Claims: []string{"x"}},
		Phase: v1.PodRunning}
	missing, ended := held, held
	missing.Name, missing.Node = "db-2", "missing"
	ended.Name, ended.Node = "db-3", "up"
	left := runs
	left.Name, left.Node = "db-4", "missing"
	f := cluster()
	f.Pods.Pods = explain.Found([]explain.Pod{held, runs, other, missing, ended, left})
	f.Pods.Nodes = explain.Found(map[string]*v1.Node{"up": newNode("up", true), "down": newNode("down", false)})
	rows := RowsOf(f)
	if row := only(t, rows, "pod/ns/db-0"); !row.Waits || row.Severity != SeverityAttention || row.Since == nil ||
		row.Claim != "ns/data" || row.Node != "down" {
		t.Errorf("a held pod on a lost node: %+v", row)
	}
	for _, name := range []string{"db-2", "db-3"} {
		if row := only(t, rows, "pod/ns/"+name); !row.Waits || row.Severity != SeverityAttention || row.Since == nil {
			t.Errorf("a held pod whose node is missing, or that warns: %+v", row)
		}
	}
	if row := only(t, rows, "pod/ns/db-4"); !row.Waits || row.Text != "Node missing is down." {
		t.Errorf("a pod that runs, on a node that is missing: %+v", row)
	}
	if row := only(t, rows, "pod/ns/db-1"); row.Waits || row.Severity != SeverityNone {
		t.Errorf("a held pod that runs: %+v", row)
	}
	if slices.ContainsFunc(rows, func(r Row) bool { return r.Name == "web" }) {
		t.Error("a pod that is neither held nor on a lost node has a row")
	}
	if row := only(t, rows, "node/down"); row.Severity != SeverityAttention || row.Since == nil {
		t.Errorf("a lost node: %+v", row)
	}
	if slices.ContainsFunc(rows, func(r Row) bool { return r.ID == "node/up" }) {
		t.Error("a node that is Ready has a row")
	}
}

func TestRowsOfFences(t *testing.T) {
	f := cluster()
	fence := &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: "down", UID: "f", CreationTimestamp: ago(time.Hour)},
		Spec: v1alpha1.NodeFenceSpec{Reason: "it is dead"}}
	ended := &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: "back", UID: "g"}}
	ended.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReturned, Status: metav1.ConditionTrue}}
	f.Fences = nodes.ListFacts{Now: now(), Fences: []*v1alpha1.NodeFence{fence, ended}, On: map[string]nodes.Facts{}}
	rows := RowsOf(f)
	if row := only(t, rows, "fence/down"); !row.Waits || row.Since == nil || row.Text == "" {
		t.Errorf("a fence: %+v", row)
	}
	if row := only(t, rows, "fence/back"); row.Waits || row.Severity != SeverityNone {
		t.Errorf("a fence that has ended: %+v", row)
	}
}

func TestRowsOfVolumesInFlight(t *testing.T) {
	f := cluster()
	entry := inflight.Located{Entry: inflight.Entry{Volume: "pvc-c", Begun: now().Add(-time.Hour),
		Claim: volume.ClaimRef{Namespace: "ns", Name: "data", UID: "c"}}}
	entry.Driver = driver
	f.InFlight = explain.Found(explain.InFlightLogs{Entries: []inflight.Located{entry}})
	if row := only(t, RowsOf(f), "inflight/pvc-c"); !row.Waits || row.Severity != SeverityAttention ||
		row.Claim != "ns/data" || now().Sub(row.Since.Time) != time.Hour {
		t.Errorf("an entry whose claim is gone: %+v", row)
	}
	f.ClaimOf = func(string, string) explain.Read[*v1.PersistentVolumeClaim] {
		return explain.Failed[*v1.PersistentVolumeClaim](errForbidden)
	}
	if row := only(t, RowsOf(f), "inflight/pvc-c"); row.Severity != SeverityWaits {
		t.Errorf("an entry whose claim cannot be read: %+v", row)
	}
}

func TestWaitingOrder(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return ptr.To(ago(d)) }
	rows := []Row{
		{ID: "young", Waits: true, Severity: SeverityWaits, Since: at(time.Minute)},
		{ID: "timeless", Waits: true, Severity: SeverityWaits},
		{ID: "old", Waits: true, Severity: SeverityWaits, Since: at(time.Hour)},
		{ID: "urgent", Waits: true, Severity: SeverityAttention, Since: at(time.Second)},
		{ID: "settled", Severity: SeverityNone},
		{ID: "leak", Ref: Ref{Kind: KindVolume}, Waits: true, Severity: SeverityAttention},
	}
	var ids []string
	for _, row := range Waiting(rows) {
		ids = append(ids, row.ID)
	}
	if want := []string{"urgent", "old", "young", "timeless"}; !slices.Equal(ids, want) {
		t.Errorf("order is %v, want %v", ids, want)
	}
}

// TestRowsOfLocks has a pod that waits for a lock, and a held pod whose gate waits for something else.
func TestRowsOfLocks(t *testing.T) {
	gated := func(name, claim string) explain.Pod {
		return explain.Pod{Pod: objects.Pod{Namespace: "ns", Name: name, UID: types.UID(name), Held: true, Gated: true,
			Claims: []string{claim}}, Created: now().Add(-time.Hour)}
	}
	f := cluster()
	f.Pods.Pods = explain.Found([]explain.Pod{gated("next", "data"), gated("early", "missing"),
		{Pod: objects.Pod{Namespace: "ns", Name: "first", UID: "first", Node: "up", Claims: []string{"data"}},
			Phase: v1.PodRunning}})
	f.Pods.Nodes = explain.Found(map[string]*v1.Node{"up": newNode("up", true)})
	claim := newClaim("data", func(o *v1.PersistentVolumeClaim) {
		o.Annotations[singlenode.LockAnnotation], o.Finalizers = "first first", []string{singlenode.Finalizer}
	})
	f.Locks = &locks.Facts{ListFacts: f.Pods, Claims: explain.Found([]locks.Claim{locks.ClaimOf(claim)}),
		Namespaces: explain.Found(map[string]map[string]string{"ns": {singlenode.Label: singlenode.AllValue}}),
		Classes:    explain.Found(map[string]*storagev1.StorageClass{})}
	rows := RowsOf(f)
	if row := only(t, rows, "lock/ns/data"); !row.Waits || row.Since == nil || now().Sub(row.Since.Time) != time.Hour ||
		row.WaitsFor != "pod first to end" {
		t.Errorf("a lock that a pod waits for: %+v", row)
	}
	if row := only(t, rows, "pod/ns/early"); !row.Waits || row.WaitsFor != "claim missing to be created" {
		t.Errorf("a pod whose claim is missing: %+v", row)
	}
	if slices.ContainsFunc(rows, func(r Row) bool { return r.Name == "next" && r.Waits }) {
		t.Error("a pod that waits for a lock is listed beside the lock")
	}
	if ids := slices.CompactFunc(slices.Clone(rows), func(x, y Row) bool { return x.ID == y.ID }); len(ids) != len(rows) {
		t.Errorf("an object has two rows: %+v", rows)
	}
}

func TestRowsOfLeaks(t *testing.T) {
	f := cluster()
	f.Leaks = []leaks.Report{{Driver: driver, Completed: now(), Suspected: 1, SuspectedBytes: 5, Volumes: []leaks.Found{
		{Handle: "vol-1", Bytes: 5, Suspected: true, Reason: leaks.Reasons()[0], FirstSeen: now().Add(-time.Hour)},
		{Handle: "vol-2", Bytes: 7},
	}}}
	rows := RowsOf(f)
	if row := only(t, rows, "volume/"+driver+"/vol-1"); row.Bytes != 5 || row.Severity != SeverityAttention ||
		row.Since == nil {
		t.Errorf("a suspect: %+v", row)
	}
	if len(rows) != 1 {
		t.Errorf("rows are %+v", rows)
	}
	summary := SummaryOf(f, rows)
	if len(summary.Leaks) != 1 || summary.Leaks[0].Bytes != 5 || summary.Leaks[0].Headline == "" {
		t.Errorf("summary is %+v", summary.Leaks)
	}
}

func TestRowsOfOneDriver(t *testing.T) {
	other := newPV("other", func(o *v1.PersistentVolume) {
		o.Spec.CSI.Driver, o.Annotations[volume.AnnProvisionedBy] = "other.example.com", "other.example.com"
	})
	f := cluster(newPV("pv", nil), other)
	f.AllClaims = explain.Found([]*v1.PersistentVolumeClaim{newClaim("a", nil), newClaim("b",
		func(o *v1.PersistentVolumeClaim) {
			o.Annotations["volume.kubernetes.io/storage-provisioner"] = "other.example.com"
		})})
	f.Leaks = []leaks.Report{{Driver: "other.example.com", Volumes: []leaks.Found{{Handle: "x", Suspected: true}}}}
	f.Driver = driver
	var ids []string
	for _, row := range RowsOf(f) {
		ids = append(ids, row.ID)
	}
	if want := []string{"claim/ns/a", "pv/pv"}; !slices.Equal(ids, want) {
		t.Errorf("rows are %v, want %v", ids, want)
	}
}

func TestRowOrderAndIDs(t *testing.T) {
	f := cluster(newPV("b", nil), newPV("a", nil))
	f.AllClaims = explain.Found([]*v1.PersistentVolumeClaim{newClaim("data", nil)})
	rows := RowsOf(f)
	if !slices.IsSortedFunc(rows, func(x, y Row) int { return strings.Compare(x.ID, y.ID) }) {
		t.Errorf("rows are not sorted: %+v", rows)
	}
	if compact := slices.CompactFunc(slices.Clone(rows), func(x, y Row) bool { return x.ID == y.ID }); len(compact) != 3 {
		t.Errorf("%d IDs, want 3", len(compact))
	}
}

func TestRowsWithFailedReads(t *testing.T) {
	none := errForbidden
	f := cluster()
	f.PVs = explain.Failed[[]explain.PV](none)
	f.AllClaims = explain.Failed[[]*v1.PersistentVolumeClaim](none)
	f.Pods.Pods = explain.Failed[[]explain.Pod](none)
	f.Pods.Nodes = explain.Failed[map[string]*v1.Node](none)
	if rows := RowsOf(f); len(rows) != 0 {
		t.Errorf("rows are %+v", rows)
	}
	if s := SummaryOf(f, nil); s.Drivers == nil {
		t.Error("JSON has null for the drivers")
	}
}

// TestRowsOfFormerPlugins has volumes that no program can delete since Kubernetes removed their plugin.
func TestRowsOfFormerPlugins(t *testing.T) {
	const gone = "Kubernetes removed the in-tree plugin rbd"
	terminating := func(o *v1.PersistentVolume) { o.DeletionTimestamp = ptr.To(ago(time.Hour)) }
	for name, c := range map[string]struct {
		change    func(*v1.PersistentVolume)
		minor     int
		attention bool
	}{
		"terminating":               {terminating, 31, true},
		"released":                  {nil, 31, true},
		"terminating, plugin there": {terminating, 30, false},
		"version unknown":           {terminating, 0, false},
		"bound":                     {func(o *v1.PersistentVolume) { o.Status.Phase = v1.VolumeBound }, 31, false},
		"terminating, policy Retain": {func(o *v1.PersistentVolume) {
			terminating(o)
			o.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}, 31, false},
	} {
		f := cluster(newPV("pv", func(o *v1.PersistentVolume) {
			o.Annotations[volume.AnnProvisionedBy], o.Finalizers = "kubernetes.io/rbd", []string{intree.Finalizer}
			o.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{RBD: &v1.RBDPersistentVolumeSource{RBDImage: "x"}}
			if c.change != nil {
				c.change(o)
			}
		}))
		f.Minor = c.minor
		row := only(t, RowsOf(f), "pv/pv")
		if (row.Severity == SeverityAttention && strings.HasPrefix(row.Text, gone) && row.Waits &&
			row.WaitsFor == "a person, because "+gone) != c.attention {
			t.Errorf("%s: the row is %+v", name, row)
		}
	}
}
