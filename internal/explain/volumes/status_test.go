package volumes

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

// twoDrivers is a cluster with PVs of two drivers.
func twoDrivers() StatusFacts {
	base := released()
	f := StatusFacts{ClusterFacts: base.ClusterFacts,
		Claims:    map[volume.ClaimRef]explain.Read[*v1.PersistentVolumeClaim]{},
		Admission: explain.Found(admission.Coverage{}), Sidecars: explain.Found[[]coordinationv1.Lease](nil)}
	explained.Clear(&f.PVs)
	add := func(name string, change func(*v1.PersistentVolume)) {
		o := base.PV.DeepCopy()
		o.Name, o.UID, o.Spec.CSI.VolumeHandle = name, types.UID(name), name
		change(o)
		f.PVs.Value = append(f.PVs.Value, explain.PVOf(o))
	}
	bound := func(o *v1.PersistentVolume) { o.Status.Phase = v1.VolumeBound }
	going := func(d time.Duration) func(*v1.PersistentVolume) {
		return func(o *v1.PersistentVolume) { at := ago(d); o.DeletionTimestamp = &at }
	}
	add("bound", bound)
	add("unprotected", func(o *v1.PersistentVolume) { bound(o); o.Finalizers = nil })
	add("kept", func(o *v1.PersistentVolume) { o.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain })
	add("held", func(o *v1.PersistentVolume) { o.Annotations[volume.HoldAnnotation] = "" })
	add("old", func(o *v1.PersistentVolume) { bound(o); going(72 * time.Hour)(o) })
	add("new", func(o *v1.PersistentVolume) { bound(o); going(time.Hour)(o) })
	add("asks", func(*v1.PersistentVolume) {})
	add("other", func(o *v1.PersistentVolume) { bound(o); o.Annotations["pv.kubernetes.io/provisioned-by"] = "b" })
	return f
}

func TestStatusOfEachDriver(t *testing.T) {
	f := twoDrivers()
	asked := f.ClaimsToRead("")
	if len(asked) != 1 || len(f.ClaimsToRead("b")) != 0 {
		t.Fatalf("claims that are to be read: %v", asked)
	}
	f.Claims[asked[0]] = explain.Found[*v1.PersistentVolumeClaim](nil)
	s := StatusOf(f, "")
	if len(s.Drivers) != 2 || s.Drivers[0].Driver != "b" || s.Drivers[1].Driver != driver {
		t.Fatalf("drivers %+v", s.Drivers)
	}
	d := s.Drivers[1]
	if d.PVs != 7 || d.Protected != 5 || d.Unprotected != 1 || d.Terminating != 2 || d.Role != "owner?" {
		t.Errorf("%+v", d)
	}
	if got := d.WaitingWords(); got != "TerminatingBound 2, Held 1" {
		t.Errorf("waiting: %q", got)
	}
	if got := d.OldestWords(now(), false); got != "3d, ns/data (old)" {
		t.Errorf("oldest: %q", got)
	}
	if len(s.Warnings) != 0 || len(s.Unread) != 0 {
		t.Errorf("warnings %q, unread %q", s.Warnings, s.Unread)
	}
	if s := StatusOf(f, "b"); len(s.Drivers) != 1 || s.Drivers[0].PVs != 1 ||
		s.Drivers[0].OldestWords(now(), false) != "" {
		t.Errorf("one driver: %+v", s)
	}
}

func TestStatusWarnings(t *testing.T) {
	explained.Table(t, twoDrivers, statusText, map[string]explained.Row[StatusFacts]{
		"all is well": {func(*StatusFacts) {}, []string{`!warnings`, "!unread"}},
		"the policy is not in force": {func(f *StatusFacts) {
			f.Admission = explain.Found(admission.Coverage{Lists: map[string][]string{driver: {"x"}}})
		}, []string{`!"admission"`}},
		"the policy may not be read": {func(f *StatusFacts) { explained.Forbid(&f.Admission) },
			[]string{"The admission policies: forbidden"}},
		"the policy knows one driver": {func(f *StatusFacts) { f.admits(driver, "x") },
			[]string{`"admission":"yes"`, `"admission":"no"`}},
		"a driver is braked": {func(f *StatusFacts) { f.brake("x") },
			[]string{"stopped by the brake", "kubectl annotate lease"}},
		"the brake's annotation is on the Lease of the provisioner beside a companion": {func(f *StatusFacts) {
			f.PVs.Value[0].HasCompanionFinalizer = true
			f.brake("x")
		}, []string{"!stopped by the brake", "disk-csi-example-com has no effect", "set it with --role"}},
		"a leader beside a provisioner shows its role": {func(f *StatusFacts) {
			f.lease("disk-csi-example-com-reclaimer", "y", 0)
			f.brake("x")
		}, []string{"!stopped by the brake", "disk-csi-example-com has no effect"}},
		"a companion is braked": {func(f *StatusFacts) {
			f.Role = volume.RoleCompanion
			f.lease("disk-csi-example-com-reclaimer", "", 0, reclaim.BrakeAnnotation, "")
		}, []string{"stopped by the brake", "disk-csi-example-com-reclaimer csi-reclaimer.io/brake-", "!no effect"}},
		"the Lease of a former namespace has the brake's annotation": {func(f *StatusFacts) {
			f.lease("disk-csi-example-com", "x", time.Hour, reclaim.BrakeAnnotation, "")
			f.Leases.Value[0].Namespace = "former"
			f.renewed("x", 0)
		}, []string{"!stopped by the brake", "Lease former/disk-csi-example-com has no effect", "in its own namespace"}},
		"Leases of one name are held in two namespaces": {func(f *StatusFacts) {
			f.renewed("x", 0)
			f.renewed("y", 0)
			f.Leases.Value[1].Namespace = "shop"
		}, []string{"not known which pod leads for " + driver, "kube-system/disk-csi-example-com (by x) and " +
			"shop/disk-csi-example-com (by y)"}},
		"one of them has the label of csi-reclaimer": {func(f *StatusFacts) {
			f.brake("y")
			f.Leases.Value[0].Namespace = "shop"
			f.renewed("x", 0)
			f.Leases.Value[1].Labels = map[string]string{objects.DriverLabel: driver}
		}, []string{"!not known which pod leads", "!stopped by the brake", "Lease shop/disk-csi-example-com has no effect"}},
		"a driver is gone": {func(f *StatusFacts) { f.uninstall() }, []string{"Driver " + driver +
			" is gone, and 2 PVs of it are terminating: kubectl reclaim explain pv/old", "!Driver b"}},
		"claims may not be read": {func(f *StatusFacts) {
			f.Claims[f.ClaimsToRead("")[0]] = explain.Failed[*v1.PersistentVolumeClaim](errForbidden)
		}, []string{"1 claim. So it is not known"}},
		"a companion works beside one": {func(f *StatusFacts) { f.PVs.Value[7].HasCompanionFinalizer = true },
			[]string{`"role":"companion?"`, `"role":"owner?"`}},
		"the role of all is set": {func(f *StatusFacts) { f.Role = volume.RoleCompanion },
			[]string{`"role":"companion"`, "!?"}},
		"an in-tree plugin has PVs, too": {func(f *StatusFacts) { addInTree(f) },
			[]string{`"driver":"kubernetes.io/plugin"`, `"role":"in-tree"`}},
	})
}

// admits makes an admission object list a driver.
func (f *StatusFacts) admits(driver, by string) {
	f.Admission = explain.Found(admission.Coverage{InForce: true, Lists: map[string][]string{driver: {by}}})
}

func addInTree(f *StatusFacts) {
	its := released()
	withTwin(&its)
	f.PVs.Value = append(f.PVs.Value, explain.PVOf(its.PV))
}

func statusText(f StatusFacts) string { return explained.JSON(StatusOf(f, "")) }

// Programs iterate over the lists.
func TestEmptyStatusIsAnEmptyJSONList(t *testing.T) {
	f := StatusFacts{ClusterFacts: ClusterFacts{PVs: explain.Found[[]explain.PV](nil)}}
	for _, value := range []any{StatusOf(f, ""), PlanRelease(f, driver)} {
		expect(t, explained.JSON(value), "[]", "!null")
	}
}

func TestPlanRelease(t *testing.T) {
	both := func(f *StatusFacts) { f.PVs.Value[0].HasCompanionFinalizer = true }
	unlogged := func(f *StatusFacts) { f.InFlight.Value.Fill = map[string]float64{} }
	cases := map[string]struct {
		change func(*StatusFacts)
		pvs    int
		want   []string
	}{
		"all that carry a finalizer of ours": {func(*StatusFacts) {}, 6, []string{"!obstacles", `"abandoned":["old","new"]`,
			`"role":"owner"`}},
		"a driver that has none": {func(f *StatusFacts) { explained.Clear(&f.PVs) }, 0,
			[]string{"!obstacles"}},
		"the sidecar still leads": {func(f *StatusFacts) { f.renewed("pod-1", time.Second) }, 6,
			[]string{"pod-1 holds Lease kube-system/disk-csi-example-com", "--replicas=0"}},
		"the sidecar led a minute ago": {func(f *StatusFacts) { f.renewed("pod-1", time.Minute) }, 6, []string{"!obstacles"}},
		"the sidecar has given its Lease up": {func(f *StatusFacts) { f.renewed("", time.Second) }, 6,
			[]string{"!obstacles"}},
		"a sidecar leads on each of two nodes": {func(f *StatusFacts) {
			f.sidecar("disk-csi-example-com-node-1", "pod-1", time.Second)
			f.sidecar("disk-csi-example-com-node-2", "pod-2", time.Second)
			f.sidecar("disk-csi-example-com-node-3", "pod-3", time.Minute)
		}, 6, []string{"still runs on 2 nodes for " + driver + ": kube-system/pod-1, kube-system/pod-2. Stop it"}},
		"a sidecar leads on each of many nodes": {func(f *StatusFacts) {
			for i := range 5 {
				f.sidecar(fmt.Sprint("disk-csi-example-com-node-", i), fmt.Sprint("pod-", i), time.Second)
			}
		}, 6, []string{"on 5 nodes", "pod-2 and 2 more. Stop it"}},
		"the Leases of nodes may not be read": {func(f *StatusFacts) { explained.Forbid(&f.Sidecars) },
			6, []string{"may still run", "which may list leases", "whether it runs on a node"}},
		"the Leases of nodes were not read": {func(f *StatusFacts) { explained.Skip(&f.Sidecars) },
			6, []string{"may still run"}},
		"the Leases of the cluster may not be read": {func(f *StatusFacts) { explained.Forbid(&f.Leases) },
			6, []string{"may still run", "whether a brake is on"}},
		"an admission policy lists the driver": {func(f *StatusFacts) { f.admits(driver, "mutatingadmissionpolicy/x") },
			6, []string{"!obstacles", `"listedBy":["mutatingadmissionpolicy/x"]`}},
		"an admission policy lists another one": {func(f *StatusFacts) { f.admits("b", "mutatingadmissionpolicy/x") },
			6, []string{"!obstacles", "!listedBy"}},
		"nothing but finalizers, which an external-provisioner adds, too": {unlogged, 6,
			[]string{"set --role=owner if it has been"}},
		"nothing but finalizers, and the role is owner": {func(f *StatusFacts) { unlogged(f); f.Role = volume.RoleOwner },
			6, []string{"!obstacles"}},
		"the Lease of another driver shows nothing": {func(f *StatusFacts) {
			unlogged(f)
			f.lease("disk-csi-example-com", "the provisioner", time.Hour)
		}, 6, []string{"set --role=owner if it has been"}},
		"its former Lease shows it": {func(f *StatusFacts) {
			unlogged(f)
			f.lease("disk-csi-example-com", "pod-1", time.Hour)
			f.Leases.Value[len(f.Leases.Value)-1].Labels = map[string]string{objects.DriverLabel: driver}
		}, 6, []string{"!obstacles"}},
		"an admission policy of role companion may list the driver": {func(f *StatusFacts) {
			unlogged(f)
			f.admits(driver, "mutatingadmissionpolicy/x")
		}, 6, []string{"set --role=owner if it has been"}},
		"both finalizers, role unknown": {both, 1, []string{"set --role=owner"}},
		"both are there, and the role is owner": {func(f *StatusFacts) { both(f); f.Role = volume.RoleOwner },
			6, []string{"!obstacles"}},
		"both are there, and the role is companion": {func(f *StatusFacts) {
			both(f)
			f.Role = volume.RoleCompanion
			f.renewed("the provisioner", time.Second)
		}, 1, []string{"!obstacles", `"pvs":["bound"]`}},
		"only the companion's finalizers are there": {func(f *StatusFacts) {
			for i := range f.PVs.Value[:7] {
				f.PVs.Value[i].HasFinalizer = false
			}
			both(f)
		}, 1, []string{`"role":"companion"`, "!obstacles"}},
		"the companion's on one PV, the owner's on others": {func(f *StatusFacts) {
			both(f)
			f.PVs.Value[0].HasFinalizer = false
		},
			1, []string{"set --role=owner"}},
		"both on one PV, and none on others": {func(f *StatusFacts) {
			for i := range f.PVs.Value[1:7] {
				f.PVs.Value[1+i].HasFinalizer = false
			}
			both(f)
		}, 1, []string{"set --role=owner"}},
		"a volume whose policy keeps it is not abandoned": {func(f *StatusFacts) {
			f.PVs.Value[4].Policy = volume.PolicyRetain
		}, 6,
			[]string{`"abandoned":["new"]`}},
		"a PV without a claim is left out": {func(f *StatusFacts) { f.PVs.Value[4].Claim.UID = "" }, 6,
			[]string{`"abandoned":["new"]`}},
		"a volume is in flight": {func(f *StatusFacts) {
			e := entry("c")
			e.Volume = "bound"
			f.openEntries(e)
		}, 5, []string{"!obstacles", `"inFlight":[{"volume":"bound"`}},
		"the in-flight log cannot be read": {func(f *StatusFacts) { explained.Forbid(&f.InFlight) }, 0,
			[]string{`"obstacles":["the in-flight log cannot be read`, "!part of"}},
		"part of the log cannot be read": {func(f *StatusFacts) { f.shardUnreadable(driver, "l") }, 0,
			[]string{`"obstacles":["part of the in-flight log cannot be read`}},
		"the Lease with the lists of topologies cannot be used": {func(f *StatusFacts) {
			f.shardUnreadable(driver, "disk-in-flight-topology")
		}, 6, []string{"!obstacles"}},
		"part of another driver's log cannot be read": {func(f *StatusFacts) { f.shardUnreadable("another", "l") }, 6,
			[]string{"!obstacles"}},
		"the companion still leads": {func(f *StatusFacts) {
			f.Role = volume.RoleCompanion
			f.lease("disk-csi-example-com-reclaimer", "pod-2", time.Second)
		}, 0, []string{"pod-2 holds"}},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			f := twoDrivers()
			c.change(&f)
			if f.InFlight.Value.Fill == nil {
				f.InFlight.Value.Fill = map[string]float64{driver: 0.1}
			}
			p := PlanRelease(f, driver)
			if len(p.PVs) != c.pvs || slices.Contains(p.PVs, "other") {
				t.Errorf("PVs %q, want %d", p.PVs, c.pvs)
			}
			expect(t, explained.JSON(p), c.want...)
		})
	}
}

// sidecar adds a Lease with the label of csi-reclaimer.
func (f *StatusFacts) sidecar(name, who string, renewed time.Duration) {
	var w ClusterFacts
	w.lease(name, who, renewed)
	w.Leases.Value[0].Labels = map[string]string{objects.DriverLabel: driver}
	f.Sidecars = explain.Found(append(f.Sidecars.Value, w.Leases.Value[0]))
}

func TestLeadersOfDriver(t *testing.T) {
	const own, beside = "disk-csi-example-com", "disk-csi-example-com-reclaimer"
	in := func(namespace, name, who string, labels map[string]string, since time.Duration) coordinationv1.Lease {
		var w ClusterFacts
		w.lease(name, who, since)
		l := w.Leases.Value[0]
		l.Namespace, l.Labels = namespace, labels
		return l
	}
	labeled := map[string]string{objects.DriverLabel: driver}
	for name, c := range map[string]struct {
		leases []coordinationv1.Lease
		want   []string
	}{
		"none":              {nil, nil},
		"one":               {[]coordinationv1.Lease{in("a", own, "x", nil, 0)}, []string{"a/x"}},
		"too old":           {[]coordinationv1.Lease{in("a", own, "x", nil, time.Minute)}, nil},
		"of another driver": {[]coordinationv1.Lease{in("a", "other", "x", labeled, 0)}, nil},
		"a provisioner, and a companion": {[]coordinationv1.Lease{in("a", own, "p", nil, 0), in("a", beside, "x", nil, 0)},
			[]string{"a/x"}},
		"a provisioner that took over, and a companion": {[]coordinationv1.Lease{in("a", own, "p", labeled, 0),
			in("a", beside, "x", labeled, 0)}, []string{"a/x"}},
		"two namespaces": {[]coordinationv1.Lease{in("a", own, "x", nil, 0), in("b", own, "y", nil, 0)},
			[]string{"a/x", "b/y"}},
		"another name in another namespace": {[]coordinationv1.Lease{in("a", own, "x", nil, 0), in("b", beside, "y", nil, 0)},
			[]string{"a/x", "b/y"}},
		"two namespaces, and a label": {[]coordinationv1.Lease{in("a", own, "x", nil, 0), in("b", own, "y", labeled, 0)},
			[]string{"b/y"}},
		"a label of another driver": {[]coordinationv1.Lease{in("a", own, "x", nil, 0),
			in("b", own, "y", map[string]string{objects.DriverLabel: "disk-csi.example.com"}, 0)}, []string{"a/x", "b/y"}},
		"two labels": {[]coordinationv1.Lease{in("a", own, "x", labeled, 0), in("b", own, "y", labeled, 0)},
			[]string{"a/x", "b/y"}},
	} {
		w := ClusterFacts{Now: now(), Leases: explain.Found(c.leases)}
		if got := w.LeadersOf(driver); !slices.Equal(got, c.want) {
			t.Errorf("%s: leaders %q, want %q", name, got, c.want)
		}
	}
}
