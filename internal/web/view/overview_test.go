package view

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

func overview(f Facts) DriverSummary {
	f.ClusterFacts = f.Indexed()
	all := SummaryOf(f, RowsOf(f)).Drivers
	return all[slices.IndexFunc(all, func(d DriverSummary) bool { return d.Driver == driver })]
}

func TestOverviewCountsWaitingObjects(t *testing.T) {
	since := func(d time.Duration) func(*v1.PersistentVolume) {
		return func(o *v1.PersistentVolume) { o.Status.LastPhaseTransitionTime = ptr.To(ago(d)) }
	}
	kept := newPV("kept", func(o *v1.PersistentVolume) {
		o.Spec.PersistentVolumeReclaimPolicy, o.DeletionTimestamp = v1.PersistentVolumeReclaimRetain, ptr.To(ago(0))
	})
	bound := newPV("bound", func(o *v1.PersistentVolume) { o.Status.Phase = v1.VolumeBound })
	f := cluster(newPV("a", since(59*time.Second)), newPV("b", since(time.Minute)), newPV("c", since(8*24*time.Hour)),
		kept, bound)
	f.AllClaims = explain.Found([]*v1.PersistentVolumeClaim{newClaim("new", func(o *v1.PersistentVolumeClaim) {
		unbound(o)
		o.CreationTimestamp = ago(2 * time.Hour)
	})})
	d := overview(f)
	if d.Bytes != 3<<30 || d.Waiting["Reclaim"] != 3 || d.PVs != 5 || d.Attention != 0 {
		t.Errorf("the overview is %+v", d)
	}
	if want := [...]int{2, 1, 0, 1, 0, 1}; d.Ages != want {
		t.Errorf("ages are %v, want %v", d.Ages, want)
	}
	f.Installed = explain.Found[[]string](nil)
	if d := overview(f); d.Attention == 0 {
		t.Error("the driver is gone, and nothing needs a person")
	}
}

func TestOverviewOfSidecar(t *testing.T) {
	lease := func(name string, change func(*coordinationv1.Lease)) coordinationv1.Lease {
		l := *explained.Lease(name, "csi-0", 0)
		l.Namespace = "storage"
		if change != nil {
			change(&l)
		}
		return l
	}
	braked := func(l *coordinationv1.Lease) { l.Annotations = map[string]string{reclaim.BrakeAnnotation: "x"} }
	name := volumes.LeasesFor([]explain.PV{explain.PVOf(newPV("pv", nil))})[0]
	older := inflight.Located{Entry: inflight.Entry{Begun: now().Add(-time.Hour),
		Requests: []inflight.Request{{DriverVersion: "1.0"}}}}
	newer := inflight.Located{Entry: inflight.Entry{Begun: now(), Requests: []inflight.Request{{DriverVersion: "1.1"}}}}
	silent := inflight.Located{Entry: inflight.Entry{Begun: now(), Requests: []inflight.Request{{}}}}
	other := newer
	older.Driver, newer.Driver, silent.Driver, other.Driver = driver, driver, driver, "other.example.com"
	logs := func(entries ...inflight.Located) explain.Read[explain.InFlightLogs] {
		return explain.Found(explain.InFlightLogs{Entries: entries, Fill: map[string]float64{driver: 0.5}})
	}
	for what, c := range map[string]struct {
		leases                 explain.Read[[]coordinationv1.Lease]
		logs                   explain.Read[explain.InFlightLogs]
		leader, brake, version string
		filled, known          bool
	}{
		"nothing was read": {leases: explain.Failed[[]coordinationv1.Lease](errForbidden),
			logs: explain.Failed[explain.InFlightLogs](errForbidden)},
		"there is none": {leases: explain.Found[[]coordinationv1.Lease](nil), logs: explain.Found(explain.InFlightLogs{}),
			leader: "none", brake: "off", known: true},
		"it leads": {leases: explain.Found([]coordinationv1.Lease{lease(name, nil)}), logs: logs(older, newer),
			leader: "storage/csi-0", brake: "off", version: "1.1", filled: true, known: true},
		"its brake is on": {leases: explain.Found([]coordinationv1.Lease{lease(name, braked)}), logs: logs(newer, older),
			leader: "storage/csi-0", brake: "on", version: "1.1", filled: true, known: true},
		"no entry has a version": {leases: explain.Found[[]coordinationv1.Lease](nil), logs: logs(silent, other),
			leader: "none", brake: "off", filled: true, known: true},
	} {
		f := cluster(newPV("pv", nil))
		f.Leases, f.InFlight = c.leases, c.logs
		d := overview(f)
		if d.Leader != c.leader || d.Brake != c.brake || d.Version != c.version || (d.Fill != nil) != c.filled ||
			d.InFlightKnown != c.known {
			t.Errorf("%s: the overview is %+v", what, d)
		}
	}
}

func TestChangesOfWaitingObjects(t *testing.T) {
	row := func(waits bool, reason string, severity Severity) *Row {
		return &Row{ID: "pv/a", Ref: Ref{Kind: KindPV, Name: "a"}, Waits: waits, Reason: reason, Severity: severity}
	}
	held, attached := row(true, "Held", SeverityWaits), row(true, "Attached", SeverityWaits)
	leak := &Row{Ref: Ref{Kind: KindVolume}, Waits: true}
	for name, c := range map[string]struct {
		before, now *Row
		want        ChangeKind
	}{
		"it begins to wait":        {row(false, "Bound", SeverityNone), held, ChangeBegan},
		"it is new, and waits":     {nil, held, ChangeBegan},
		"it waits on":              {held, row(true, "Held", SeverityWaits), ""},
		"it waits for another":     {held, attached, ChangeReason},
		"it needs a person now":    {held, row(true, "Held", SeverityAttention), ChangeReason},
		"it waits no more":         {held, row(false, "Bound", SeverityNone), ChangeEnded},
		"it is gone":               {held, nil, ChangeGone},
		"it is gone, and rested":   {row(false, "Bound", SeverityNone), nil, ""},
		"it is new, and rests":     {nil, row(false, "Bound", SeverityNone), ""},
		"a leak is suspected":      {nil, leak, ""},
		"a suspected leak is gone": {leak, nil, ""},
	} {
		rows := func(r *Row) map[string]*Row {
			if r == nil {
				return nil
			}
			return map[string]*Row{"pv/a": r}
		}
		got := Changes(nil, rows(c.before), rows(c.now), now())
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || got[0].Kind != c.want ||
			!got[0].Time.Time.Equal(now())) {
			t.Errorf("%s: changes are %+v, want %q", name, got, c.want)
		}
	}
}

func TestChangesOfTheLastHour(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return ptr.To(ago(d)) }
	rows := []Row{
		{ID: "old", Waits: true, Since: at(2 * time.Hour)}, {ID: "young", Waits: true, Since: at(time.Minute)},
		{ID: "middle", Waits: true, Since: at(time.Hour)}, {ID: "timeless", Waits: true}, {ID: "rests", Since: at(0)},
	}
	began := Began(rows, now())
	if len(began) != 2 || began[0].Row.ID != "middle" || began[1].Row.ID != "young" {
		t.Errorf("those that began to wait are %+v", began)
	}
	if later := Changes(began, nil, nil, now().Add(time.Second)); len(later) != 1 || later[0].Row.ID != "young" {
		t.Errorf("a second later, the changes are %+v", later)
	}
	if len(began) != 2 || began[0].Row.ID != "middle" {
		t.Error("earlier changes were overwritten")
	}
	many := map[string]*Row{}
	for i := range 2 * changesMost {
		many[string(rune('a'+i))] = &Row{Waits: true}
	}
	if all := Changes(began, nil, many, now()); len(all) != changesMost || all[0].Row.ID == "middle" {
		t.Errorf("there are %d changes", len(all))
	}
	if none := Began(nil, now()); none == nil || !reflect.DeepEqual(none, Changes(none, nil, nil, now())) {
		t.Error("no change is nil, which means that it was not looked yet")
	}
}

func many(n int) Facts {
	pvs := make([]*v1.PersistentVolume, 0, n)
	claims := make([]*v1.PersistentVolumeClaim, 0, n)
	for i := range n {
		name := fmt.Sprintf("pv-%05d", i)
		pvs = append(pvs, newPV(name, func(o *v1.PersistentVolume) {
			o.Status.Phase, o.Spec.ClaimRef.Name = v1.VolumeBound, name
		}))
		claims = append(claims, newClaim(name, func(o *v1.PersistentVolumeClaim) { o.Spec.VolumeName = name }))
	}
	f := cluster(pvs...)
	f.AllClaims = explain.Found(claims)
	return f
}

// BenchmarkTables measures the cost of one change with ten thousand PVs.
func BenchmarkTables(b *testing.B) {
	f := many(10000)
	for b.Loop() {
		indexed := f
		indexed.ClusterFacts = f.Indexed()
		if rows := RowsOf(indexed); len(rows) != 20000 || len(SummaryOf(indexed, rows).Drivers) != 1 {
			b.Fatal("rows are missing")
		}
	}
}
