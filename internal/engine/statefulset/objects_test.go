package statefulset

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

func pointer[T any](v T) *T { return &v }

func TestSetOf(t *testing.T) {
	o := &appsv1.StatefulSet{}
	if s := SetOf(o); !reflect.DeepEqual(s, Set{Replicas: 1}) {
		t.Errorf("an empty set: %+v", s)
	}
	o.Namespace, o.Name, o.UID = "ns", "db", "set"
	o.DeletionTimestamp, o.CreationTimestamp = &metav1.Time{}, metav1.NewTime(now())
	o.Finalizers = []string{"other", "orphan"}
	o.Annotations = map[string]string{WokenAnnotation: ""}
	o.Spec = appsv1.StatefulSetSpec{
		Replicas: pointer[int32](3), Ordinals: &appsv1.StatefulSetOrdinals{Start: 5}, MinReadySeconds: 7,
		PodManagementPolicy:  appsv1.ParallelPodManagement,
		VolumeClaimTemplates: []v1.PersistentVolumeClaim{{}, {}},
	}
	o.Spec.VolumeClaimTemplates[0].Name, o.Spec.VolumeClaimTemplates[1].Name = "data", "logs"
	want := Set{
		Namespace: "ns", Name: "db", UID: "set", Created: now(), Terminating: true, Orphans: true, Start: 5, Replicas: 3,
		MinReady: 7 * time.Second, Parallel: true, Templates: []string{"data", "logs"}, Woken: true,
	}
	if s := SetOf(o); !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, want %+v", s, want)
	}
	o.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	if SetOf(o).Parallel {
		t.Error("OrderedReady is Parallel")
	}
}

func TestClaimOf(t *testing.T) {
	o := &v1.PersistentVolumeClaim{}
	if c := ClaimOf(o); !reflect.DeepEqual(c, Claim{}) {
		t.Errorf("an empty claim: %+v", c)
	}
	o.Namespace, o.Name, o.UID, o.ResourceVersion = "ns", "data-db-0", "claim", "7"
	o.DeletionTimestamp = &metav1.Time{}
	o.Finalizers = []string{"other", "kubernetes.io/pvc-protection"}
	o.Annotations = map[string]string{MarkAnnotation: "db/set/0/Delete/claim", HoldAnnotation: ""}
	o.OwnerReferences = []metav1.OwnerReference{controlling(setRef("set"))}
	o.Spec.VolumeName = "pv"
	want := Claim{
		Namespace: "ns", Name: "data-db-0", UID: "claim", ResourceVersion: "7", Terminating: true, Protected: true,
		Hold: true, Mark: Mark{Set: "db", UID: "set", WhenScaled: Delete, Claim: "claim"}, Marked: true,
		Owners: []metav1.OwnerReference{controlling(setRef("set"))}, Volume: "pv", Bound: true,
	}
	got := ClaimOf(o)
	*o.OwnerReferences[0].Controller, o.OwnerReferences[0].Name = false, "changed"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	o.Annotations = map[string]string{MarkAnnotation: ""}
	if c := ClaimOf(o); !c.Marked || c.Mark != (Mark{}) || c.Hold {
		t.Errorf("a mark that cannot be read: %+v", c)
	}
}

// A claim from another creator, for example a backup tool, does not belong to a set by its name alone.
func TestCreatorOfClaim(t *testing.T) {
	created := `{"f:metadata":{"f:labels":{}},"f:spec":{"f:accessModes":{},"f:resources":{"f:requests":{}}}}`
	bound := `{"f:spec":{"f:volumeName":{}}}`
	at := func(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now().Add(d))) }
	for name, c := range map[string]struct {
		manager, fields string
		at              *metav1.Time
		want            time.Time
	}{
		"Kubernetes":                    {"kube-controller-manager", created, at(0), now()},
		"Kubernetes, slowly":            {"kube-controller-manager", created, at(-time.Minute), now()},
		"Kubernetes, and changed since": {"kube-controller-manager", created, at(time.Hour), now()},
		"a backup of Kubernetes' claim": {"kube-controller-manager", created, at(-time.Minute - 1), time.Time{}},
		"without a time":                {"kube-controller-manager", created, nil, time.Time{}},
		"a person":                      {"kubectl-create", created, at(0), time.Time{}},
		"a person, bound by Kubernetes": {"kube-controller-manager", bound, at(0), time.Time{}},
		"fields that cannot be read":    {"kube-controller-manager", "x", at(0), time.Time{}},
		"no fields":                     {"kube-controller-manager", "", at(0), time.Time{}},
	} {
		o := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now())}}
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "other", Time: at(0)}, {Manager: c.manager, Time: c.at}}
		if c.fields != "" {
			o.ManagedFields[1].FieldsV1 = metav1.NewFieldsV1(c.fields)
		}
		if got := ClaimOf(o).ByController; !got.Equal(c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The next write to a restored claim makes its managedFields equal to those of a new claim. The volume differs.
func TestProofOfCreator(t *testing.T) {
	// The binding of a claim adds its fields to the entry of the creation, with the current time.
	both := `{"f:metadata":{"f:labels":{}},"f:spec":{"f:resources":{},"f:volumeName":{}}}`
	at := func(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(now().Add(d))) }
	const proven, likely, none = "proven", "likely", "none"
	for name, c := range map[string]struct {
		change func(*v1.PersistentVolumeClaim)
		want   string
	}{
		"not bound":                            {func(o *v1.PersistentVolumeClaim) { o.Spec.VolumeName = "" }, proven},
		"its volume was provisioned for it":    {func(*v1.PersistentVolumeClaim) {}, proven},
		"a volume of a claim that it replaces": {func(o *v1.PersistentVolumeClaim) { o.Spec.VolumeName = "pvc-old" }, likely},
		"a volume that a person created":       {func(o *v1.PersistentVolumeClaim) { o.Spec.VolumeName = "claim" }, likely},
		"the UID is within the name of its PV": {func(o *v1.PersistentVolumeClaim) { o.Spec.VolumeName += "-0" }, likely},
		"its volume has the data of a snapshot": {func(o *v1.PersistentVolumeClaim) {
			o.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "VolumeSnapshot"}
		}, likely},
		"its volume has the data of a source": {func(o *v1.PersistentVolumeClaim) {
			o.Spec.DataSourceRef = &v1.TypedObjectReference{Kind: "Backup"}
		}, likely},
		"it selects the PV of a restore": {func(o *v1.PersistentVolumeClaim) {
			o.Spec.VolumeName, o.Spec.Selector = "", &metav1.LabelSelector{}
		}, likely},
		"Velero restored it": {func(o *v1.PersistentVolumeClaim) {
			o.Labels = map[string]string{"velero.io/restore-name": "r"}
		}, none},
		"another entry is older than the claim": {func(o *v1.PersistentVolumeClaim) {
			o.ManagedFields[0].Time = at(-time.Minute - 1)
		}, none},
		"another entry has no time": {func(o *v1.PersistentVolumeClaim) { o.ManagedFields[0].Time = nil }, none},
	} {
		o := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "claim", CreationTimestamp: *at(0)}}
		o.Spec.VolumeName = "pvc-claim"
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-scheduler", Time: at(0)},
			{Manager: "kube-controller-manager", Time: at(time.Hour), FieldsV1: metav1.NewFieldsV1(both)}}
		c.change(o)
		got, is := none, ClaimOf(o)
		switch {
		case is.ByController.Equal(now()) && !is.LikelyByController:
			got = proven
		case is.LikelyByController:
			got = likely
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestPodOf(t *testing.T) {
	o := &v1.Pod{}
	if p := PodOf(o); !reflect.DeepEqual(p, Pod{}) {
		t.Errorf("an empty pod: %+v", p)
	}
	o.Namespace, o.Name, o.UID = "ns", "db-0", "pod"
	o.DeletionTimestamp = &metav1.Time{}
	o.OwnerReferences = []metav1.OwnerReference{foreignRef(), controlling(setRef("set"))}
	o.Spec.NodeName = "a"
	o.Spec.Volumes = []v1.Volume{{}, {Name: "data"}}
	o.Spec.Volumes[1].PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}
	o.Status.Phase = v1.PodRunning
	o.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue},
		{Type: v1.PodReady, Status: v1.ConditionTrue}}
	want := Pod{
		Namespace: "ns", Name: "db-0", UID: "pod", Controller: "set", Terminating: true, Bound: true, Ready: true,
		Claims: []string{"data-db-0"},
	}
	if p := PodOf(o); !reflect.DeepEqual(p, want) {
		t.Errorf("%+v, want %+v", p, want)
	}
	o.Status.Conditions[1].Status = v1.ConditionFalse
	if PodOf(o).Ready {
		t.Error("a pod that is not Ready is")
	}
	o.Status.Conditions[1].Status, o.Status.Phase = v1.ConditionTrue, v1.PodPending
	if p := PodOf(o); p.Ready || !p.Pending {
		t.Error("a pod that does not run is Ready, or not Pending")
	}
	o.OwnerReferences = []metav1.OwnerReference{setRef("set")}
	if PodOf(o).Controller != "" {
		t.Error("an owner that does not control the pod does")
	}
}

func TestSplitClaimName(t *testing.T) {
	for name, want := range map[string]struct {
		base    string
		ordinal int
		ok      bool
	}{
		"data-db-0":          {"data-db", 0, true},
		"data-db-10":         {"data-db", 10, true},
		"data-db-1-2":        {"data-db-1", 2, true},
		"data--0":            {"data-", 0, true},
		"data-db-2147483647": {"data-db", math.MaxInt32, true},
		"data-db-2147483648": {}, "data-db-99999999999999999999": {}, "data-db-00": {}, "data-db-01": {}, "data-db-+1": {},
		"data-db--1": {
			base: "data-db-", ordinal: 1, ok: true}, "data-db-": {}, "data-db": {}, "data-db-x": {}, "data-db-1x": {},
		"-0": {}, "0": {}, "": {}, "-": {}, "data-db-１": {},
	} {
		base, ordinal, ok := SplitClaimName(name)
		if base != want.base || ordinal != want.ordinal || ok != want.ok {
			t.Errorf("%q: %q, %d, %t", name, base, ordinal, ok)
		}
	}
}

func TestGives(t *testing.T) {
	s := Set{Name: "db", Templates: []string{"data", "logs"}}
	for name, ordinal := range map[string]int{"data-db-0": 0, "logs-db-7": 7} {
		if !s.Gives(name, ordinal) || s.Gives(name, ordinal+1) {
			t.Errorf("%s is not given to %d alone", name, ordinal)
		}
	}
	for _, name := range []string{"data-db", "db-0", "data-db-00", "wal-db-0", "data-db-0-0", ""} {
		if s.Gives(name, 0) {
			t.Errorf("%q is given", name)
		}
	}
	if (Set{}).Gives("--0", 0) {
		t.Error("a set without templates gives a name")
	}
	if s.PodName(3) != "db-3" || s.ClaimName("data", 3) != "data-db-3" {
		t.Errorf("%s, %s", s.PodName(3), s.ClaimName("data", 3))
	}
}

// The templates of two sets can give a claim the same name, with the same ordinal.
func TestCollidingNames(t *testing.T) {
	a, b := Set{Name: "a-b", Templates: []string{"c"}}, Set{Name: "b", Templates: []string{"c-a"}}
	if a.ClaimBase("c") != b.ClaimBase("c-a") || a.ClaimName("c", 1) != b.ClaimName("c-a", 1) {
		t.Errorf("%s, %s", a.ClaimBase("c"), b.ClaimBase("c-a"))
	}
	if c := (Set{Name: "b-1"}); c.ClaimBase("c") == b.ClaimBase("c") {
		t.Error("a set whose name ends with a number collides")
	}
}

func TestInRange(t *testing.T) {
	for name, c := range map[string]struct {
		start, replicas int
		from, to        int // in range: from included, to not
	}{
		"from 0": {0, 3, 0, 3}, "from 5": {5, 2, 5, 7}, "none": {0, 0, 0, 0}, "none from 5": {5, 0, 5, 5},
		"as many as there can be": {math.MaxInt32, math.MaxInt32, math.MaxInt32, 2 * math.MaxInt32},
	} {
		s := Set{Start: c.start, Replicas: c.replicas}
		for _, n := range []int{-1, c.from - 1, c.from, c.to - 1, c.to} {
			if got, want := s.InRange(n), n >= c.from && n < c.to; got != want {
				t.Errorf("%s: %d: %t", name, n, got)
			}
		}
	}
}

func TestParseMark(t *testing.T) {
	for _, m := range []Mark{
		{Set: "db", UID: "1-2", Ordinal: 0, WhenScaled: Delete, Claim: "3-4"},
		{Set: "db", UID: "1-2", Ordinal: 12, Claim: "3-4"},
	} {
		if got := ParseMark(m.String()); got != m {
			t.Errorf("%s reads as %+v", m, got)
		}
	}
	if (Mark{}).String() != "" {
		t.Errorf("no mark is %q", Mark{})
	}
	for name, value := range map[string]string{
		"empty": "", "a name": "db", "too short": "db/uid/0/Delete", "too long": "db/uid/0/Delete/c/",
		"no name": "/uid/0/Delete/c", "no claim": "db/uid/0/Delete/",
		"no UID": "db//0/Delete/c", "no ordinal": "db/uid//Delete/c", "a word for it": "db/uid/one/Delete/c",
		"a leading zero": "db/uid/01/Delete/c", "a sign": "db/uid/+1/Delete/c",
		"too large": "db/uid/99999999999999999999/Delete/c",
		"no word":   "db/uid/0//c", "an unknown word": "db/uid/0/Recycle/c", "lowercase": "db/uid/0/delete/c",
		"spaces": "db/uid/0/Delete /c", "huge": strings.Repeat("db/", 100_000),
	} {
		if m := ParseMark(value); m != (Mark{}) {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

func FuzzParseMark(f *testing.F) {
	for _, seed := range []string{"", "db/uid/0/Delete/c", "db/uid/01/Retain/c", "////", "a/b/-1/Delete/c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		m := ParseMark(value)
		if m != (Mark{}) && (m.String() != value || m.UID == "" || m.Set == "" || m.Claim == "") {
			t.Errorf("%q reads as %+v", value, m)
		}
	})
}

func FuzzSplitClaimName(f *testing.F) {
	for _, seed := range []string{"", "data-db-0", "data-db-01", "-1", "a--1", "a-2147483648"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		base, ordinal, ok := SplitClaimName(name)
		s := Set{Name: "db"}
		if template, of := strings.CutSuffix(base, "-db"); ok && of && s.ClaimName(template, ordinal) != name {
			t.Errorf("%q is %d of %q", name, ordinal, base)
		}
		if ok && (ordinal < 0 || ordinal > math.MaxInt32 || base == "") || !ok && (base != "" || ordinal != 0) {
			t.Errorf("%q: %q, %d, %t", name, base, ordinal, ok)
		}
	})
}

func TestActions(t *testing.T) {
	sessiontest.Actions(t, DeletePod)
	if names := sessiontest.Names(t, DeletePod); !slices.Equal(names, []string{"Wait", "ReadClaim", "ReadPod", "ReadSet",
		"PatchClaim", "DeleteClaim", "DeletePod"}) {
		t.Errorf("actions on claims %q", names)
	}
}
