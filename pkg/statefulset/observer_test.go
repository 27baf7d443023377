package statefulset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// The world has a set db of two replicas with a policy, and a set web of two replicas without one.
func TestWakingChanges(t *testing.T) {
	for sentence, c := range map[string]struct {
		change       func(w *world)
		claims, sets []string
	}{
		"nothing": {func(*world) {}, nil, nil},
		"a set is scaled": {func(w *world) { w.set("db", replicas(1)) },
			[]string{"data-db-0", "data-db-1", "data-db-7"}, []string{"db"}},
		"the status of a set": {func(w *world) { w.set("db", func(o *appsv1.StatefulSet) { o.Status.Replicas = 2 }) },
			nil, []string{"db"}},
		"a set is deleted": {func(w *world) { delete(w.sets, "ns/db") },
			[]string{"data-db-0", "data-db-1", "data-db-7"}, nil},
		"a set without a policy is scaled": {func(w *world) { w.set("web", replicas(1)) }, []string{"data-web-1"}, nil},
		"a set gets a policy": {func(w *world) { w.set("web", byField) },
			[]string{"data-web-0", "data-web-1"}, []string{"web"}},
		"a set loses its policy": {func(w *world) { w.set("db", retains) },
			[]string{"data-db-0", "data-db-1", "data-db-7"}, []string{"db"}},
		"a set gets an annotation that is not valid": {func(w *world) { w.set("web", annotated("x")) },
			[]string{"data-web-1"}, []string{"web"}},
		"another set gives the names": {func(w *world) { w.set("b", template("data-a"), retains); w.set("a-b") },
			nil, []string{"a-b"}},
		"another set with a policy gives the names": {
			func(w *world) { w.set("a-b", retains); w.set("b", template("data-a")) }, nil, []string{"b"},
		},
		"the set of claims that were there appears": {func(w *world) { w.set("late") }, []string{"data-late-0"},
			[]string{"late"}},
		"a pod appears":        {func(w *world) { w.pod("db", 1) }, []string{"data-db-1"}, []string{"db"}},
		"a pod is terminating": {func(w *world) { w.pod("db", 0, terminatingPod) }, []string{"data-db-0"}, []string{"db"}},
		"the status of a pod": {
			func(w *world) { w.pod("db", 0, func(o *v1.Pod) { o.Status.PodIP = "10.0.0.1" }) }, nil, nil,
		},
		"a pod is gone":                   {func(w *world) { w.endPod("db-0") }, []string{"data-db-0"}, []string{"db"}},
		"a pod without the volumes":       {func(w *world) { w.use("db-7") }, []string{"data-db-7"}, []string{"db"}},
		"a pod of a set without a policy": {func(w *world) { w.pod("web", 0) }, nil, nil},
		"a pod of a set without a policy and a marked claim": {func(w *world) { w.pod("web", 1) },
			[]string{"data-web-1"}, nil},
		"a pod without an owner, with a claim": {
			func(w *world) { w.use("job", "data-db-1", "other") }, []string{"data-db-1"}, nil,
		},
		"a pod without an owner, without a claim": {func(w *world) { w.use("job", "other") }, nil, nil},
		"a pod that changes its owner": {
			func(w *world) { w.pod("db", 0, func(o *v1.Pod) { o.OwnerReferences = nil }) },
			[]string{"data-db-0"}, []string{"db"},
		},
		"a claim appears": {func(w *world) { w.claim("data-db-3") }, []string{"data-db-3"}, []string{"db"}},
		"a claim changes": {
			func(w *world) { w.claim("data-db-1", held) }, []string{"data-db-1"}, []string{"db"},
		},
		"a claim changes and stays": {
			func(w *world) { w.claim("data-db-1", func(*v1.PersistentVolumeClaim) {}) }, nil, nil,
		},
		"a claim is gone":                 {func(w *world) { delete(w.live, "ns/data-db-1") }, nil, []string{"db"}},
		"a claim of a set without policy": {func(w *world) { w.claim("data-web-0", held) }, nil, nil},
		"a claim of a set without policy with an owner": {
			func(w *world) {
				w.claim("data-web-0", owned(metav1.OwnerReference{Kind: "Backup", Name: "b", UID: "b"}))
			},
			nil, nil,
		},
		"a pod that takes another claim": {
			func(w *world) { w.use("job", "data-db-0"); w.sync(); w.woken.forget(); w.use("job", "data-db-1") },
			[]string{"data-db-0", "data-db-1"}, nil,
		},
		"a claim of no set is marked": {
			func(w *world) { w.claim("other", marked("db/set-db/1/Delete")) }, []string{"other"}, nil,
		},
		"a claim of no set appears": {func(w *world) { w.claim("data-none-0") }, nil, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.set("db", replicas(2))
			w.set("web", replicas(2), retains)
			w.pod("db", 0)
			for _, name := range []string{"db-0", "db-1", "db-7", "web-0", "web-1", "late-0"} {
				w.claim("data-" + name)
			}
			w.claim("data-web-1", marked("web/set-web/1/Retain"))
			w.sync()
			w.woken.claims, w.woken.sets = nil, nil
			c.change(w)
			w.sync()
			want := func(what string, got, names []string) {
				for i := range names {
					names[i] = "ns/" + names[i]
				}
				if slices.Sort(got); !slices.Equal(got, names) {
					t.Errorf("%s %q are woken, want %q", what, got, names)
				}
			}
			want("claims", w.woken.claims, c.claims)
			want("sets", w.woken.sets, c.sets)

			// No event wakes a replica that does not lead, and it finds all work when it begins to lead.
			w.woken.claims, w.woken.sets, w.woken.idle = nil, nil, true
			w.set("db", replicas(5), byField)
			w.pod("db", 4)
			w.claim("data-db-4")
			w.sync()
			if len(w.woken.claims)+len(w.woken.sets) > 0 {
				t.Error("a replica that does not lead is woken")
			}
			claims, sets := w.observer.first()
			if !slices.Contains(claims, "ns/data-db-4") || !slices.Contains(sets, "ns/db") {
				t.Errorf("at the start there are claims %q and sets %q", claims, sets)
			}
		})
	}
}

func TestInitialWork(t *testing.T) {
	w := newWorld(t, Config{})
	w.set("db")
	w.set("web", retains)
	w.set("woken", retains, func(o *appsv1.StatefulSet) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, statefulset.WokenAnnotation, "x")
	})
	for _, name := range []string{"data-db-0", "data-web-0", "data-none-0"} {
		w.claim(name)
	}
	w.claim("data-web-1", marked("web/set-web/1/Delete"))
	w.claim("data-gone-1", marked("gone/set-gone/1/Delete"))
	w.sync()
	claims, sets := w.observer.first()
	if want := []string{"ns/data-db-0", "ns/data-gone-1", "ns/data-web-1"}; !slices.Equal(claims, want) {
		t.Errorf("claims %q, want %q", claims, want)
	}
	if want := []string{"ns/db", "ns/woken"}; !slices.Equal(sets, want) {
		t.Errorf("sets %q, want %q", sets, want)
	}
}

// The set that gives the name comes first, and the set in the mark only if no set gives it.
func TestSetOfClaim(t *testing.T) {
	for sentence, c := range map[string]struct {
		claim, mark string
		set         string
		seen        statefulset.Seen
		shared      bool
		ordinal     int
	}{
		"of a set":                           {"data-db-2", "", "db", statefulset.Found, false, 2},
		"of a set, with its mark":            {"data-db-2", "db/set-db/2/Delete", "db", statefulset.Found, false, 2},
		"of a set, with the mark of another": {"data-db-2", "web/set-web/2/Delete", "db", statefulset.Found, false, 2},
		"of two sets":                        {"data-a-b-0", "", "a-b", statefulset.Found, true, 0},
		"of two sets, with the mark of one":  {"data-a-b-0", "b/set-b/0/Delete", "b", statefulset.Found, true, 0},
		"of a set that is gone": {
			"data-gone-0", "gone/set-gone/0/Delete", "gone", statefulset.Absent, false, 0,
		},
		"of no set":                            {"data-none-0", "", "", statefulset.Unknown, false, 0},
		"of no set, with a mark that is none":  {"data-none-0", "x", "", statefulset.Unknown, false, 0},
		"of no set's shape, with a set's mark": {"other", "db/set-db/0/Delete", "db", statefulset.Found, false, 0},
	} {
		w := newWorld(t, Config{})
		w.set("a-b")
		w.set("b", template("data-a"))
		w.set("db")
		if c.mark == "" {
			w.claim(c.claim)
		} else {
			w.claim(c.claim, marked(c.mark))
		}
		w.sync()
		if left := w.observer.index.claims[in("ns", "")]; len(left) > 0 {
			t.Errorf("%s: %v is kept", sentence, left)
		}
		f, found := w.observer.observe("ns/" + c.claim)
		if !found || f.SetName != c.set || f.SetSeen != c.seen || f.Shared != c.shared || f.Ordinal != c.ordinal {
			t.Errorf("%s: set %q, seen %d, shared %t, ordinal %d", sentence, f.SetName, f.SetSeen, f.Shared, f.Ordinal)
		}
	}
}

func TestPodsOfClaim(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(w *world)
		seen   statefulset.Seen
		other  string
	}{
		"none":                                  {func(*world) {}, statefulset.Absent, ""},
		"its own":                               {func(w *world) { w.pod("db", 1) }, statefulset.Found, ""},
		"a pod without an owner, with its name": {func(w *world) { w.use("db-1") }, statefulset.Found, ""},
		"another":                               {func(w *world) { w.use("job", "data-db-1") }, statefulset.Absent, "job"},
		"another, and its own": {
			func(w *world) { w.pod("db", 1); w.use("job", "data-db-1") }, statefulset.Found, "job",
		},
		"one whose name it ends with": {func(w *world) { w.use("1", "data-db-1") }, statefulset.Absent,
			"1"},
		"a pod with a similar name": {func(w *world) { w.use("1", "data-1") }, statefulset.Absent, ""},
		"a pod that used it": {func(w *world) { w.use("job", "data-db-1"); w.sync(); w.use("job", "data-db-2") },
			statefulset.Absent, ""},
		"a gone pod": {func(w *world) { w.use("job", "data-db-1"); w.sync(); w.endPod("job") }, statefulset.Absent, ""},
		"one of two that is gone": {func(w *world) {
			w.use("job", "data-db-1")
			w.use("run", "data-db-1")
			w.sync()
			w.endPod("job")
		}, statefulset.Absent, "run"},
	} {
		w := newWorld(t, Config{})
		w.set("db")
		w.claim("data-db-1")
		c.change(w)
		w.sync()
		if users := w.observer.index.users; c.other == "" && len(users) > 0 && !strings.Contains(sentence, "used") {
			t.Errorf("%s: %v is kept", sentence, users)
		}
		f, _ := w.observer.observe("ns/data-db-1")
		if f.PodSeen != c.seen || f.OtherPod != c.other {
			t.Errorf("%s: seen %d, other pod %q", sentence, f.PodSeen, f.OtherPod)
		}
	}
}

func notStarted(o *v1.Pod) { o.Status.Phase = v1.PodPending }

func TestGapOfSet(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(w *world)
		want   statefulset.Gap
	}{
		"nothing":             {func(w *world) { w.pod("db", 1); w.claim("data-db-1") }, statefulset.GapNone},
		"a pod and its claim": {func(*world) {}, statefulset.GapOpen},
		"a pod, whose claim is being deleted": {func(w *world) {
			w.claim("data-db-1", terminatingClaim)
		}, statefulset.GapOldClaim},
		"a pod, whose claim belongs to a deleted set": {func(w *world) {
			w.claim("data-db-1", owned(metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "db-1", UID: "old"}))
		}, statefulset.GapOldClaim},
		"a pod, and its policy retains":          {func(w *world) { w.set("db", retains) }, statefulset.GapNone},
		"a pod, and it has no templates":         {func(w *world) { w.set("db", template()) }, statefulset.GapNone},
		"the claim of a pod that is not started": {func(w *world) { w.pod("db", 1, notStarted) }, statefulset.GapOpen},
		"the volume of such a claim": {func(w *world) {
			w.pod("db", 1, notStarted)
			w.claim("data-db-1", func(o *v1.PersistentVolumeClaim) { o.Spec.VolumeName = "" })
		}, statefulset.GapNoVolume},
		"a pod that is not to be made yet": {
			func(w *world) { w.pod("db", 0, notStarted) }, statefulset.GapNone,
		},
	} {
		w := newWorld(t, Config{})
		w.set("db", replicas(2))
		w.pod("db", 0)
		w.claim("data-db-0")
		c.change(w)
		w.sync()
		if f, _ := w.observer.observeSet("ns/db"); f.Gap != c.want {
			t.Errorf("%s: gap %d, want %d", sentence, f.Gap, c.want)
		}
	}
}

func TestRecorders(t *testing.T) {
	for sentence, c := range map[string]struct {
		object runtime.Object
		keep   bool
	}{
		"a set": {&appsv1.StatefulSet{}, true},
		"a claim with a set's shape": {
			&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-db-0"}}, true,
		},
		"a claim without": {
			&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-db"}}, false,
		},
		"a claim without that is marked": {
			&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data",
				Annotations: map[string]string{statefulset.MarkAnnotation: ""}}}, true,
		},
		"a pod with a set's shape": {&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0"}}, true},
		"a pod without":            {&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-77c8f-x2x9z"}}, false},
		"a pod without, with a claim": {
			&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.PodSpec{Volumes: []v1.Volume{uses("data-db-0")}}}, true,
		},
		"a pod without, with other claims": {
			&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.PodSpec{Volumes: []v1.Volume{uses("data")}}}, false,
		},
	} {
		var keep bool
		var err error
		switch o := c.object.(type) {
		case *appsv1.StatefulSet:
			_, keep, err = kube.RecordAll(setOf)(o, false)
		case *v1.PersistentVolumeClaim:
			_, keep, err = recordClaim(o, false)
		case *v1.Pod:
			_, keep, err = recordPod(o, false)
		}
		if keep != c.keep || err != nil {
			t.Errorf("%s: kept %t, %v", sentence, keep, err)
		}
	}
	for _, take := range []func(runtime.Object) error{
		func(o runtime.Object) error { _, _, err := recordClaim(o, false); return err },
		func(o runtime.Object) error { _, _, err := recordPod(o, false); return err },
	} {
		if take(&v1.Secret{}) == nil {
			t.Error("a Secret is taken")
		}
	}
}

// A decision must not read a field that the record of a claim leaves out.
func TestClaimRecordIsComplete(t *testing.T) {
	o := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-db-0", UID: "u",
		ResourceVersion: "7", Finalizers: []string{"kubernetes.io/pvc-protection"}, DeletionTimestamp: ptr.To(metav1.Now()),
		Annotations:     map[string]string{statefulset.MarkAnnotation: "db/s/0/Delete/u", statefulset.HoldAnnotation: ""},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "db-0", UID: "p"}}}}
	c, _, err := recordClaim(o, false)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%+v", c.facts()), fmt.Sprintf("%+v", statefulset.ClaimOf(o)); got != want {
		t.Errorf("the facts are\n%s, want\n%s", got, want)
	}
	o.Annotations = nil
	if c, _, err = recordClaim(o, false); err != nil || c.facts().Marked || len(c.facts().Owners) != 1 {
		t.Errorf("of a claim with an owner it is known: %+v, %v", c.facts(), err)
	}
	o.OwnerReferences = nil
	if c, _, err = recordClaim(o, false); err != nil || c.more != nil {
		t.Errorf("of a claim that is not marked %+v is kept, %v", c.more, err)
	}
	if size := unsafe.Sizeof(claim{}); size > 80 {
		t.Errorf("the record of a claim has %d bytes", size)
	}
	if size := unsafe.Sizeof(statefulset.Pod{}); size > 104 {
		t.Errorf("the record of a pod has %d bytes", size)
	}
}
