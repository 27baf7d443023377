package view

import (
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

func TestDiff(t *testing.T) {
	all := map[Kind]bool{KindPV: true, KindClaim: true, KindPod: true, KindNode: true, KindAttach: true}
	empty := Around{Read: all}
	of := func(o Related) Around { return Around{Objects: []Related{o}, Read: all} }
	pv := func(change func(*v1.PersistentVolume)) Around { return of(OfPV(newPV("pv", change))) }
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	attached := a.DeepCopy()
	attached.Status.Attached = true
	for name, c := range map[string]struct {
		before, now Around
		want        []string
	}{
		"nothing":         {pv(nil), pv(nil), nil},
		"another version": {pv(nil), pv(func(o *v1.PersistentVolume) { o.ResourceVersion = "8" }), nil},
		"phase": {pv(nil), pv(func(o *v1.PersistentVolume) { o.Status.Phase = v1.VolumeFailed }),
			[]string{"Changed: PV pv has phase Failed instead of Released"}},
		"policy": {pv(nil), pv(func(o *v1.PersistentVolume) {
			o.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}), []string{"Changed: PV pv has reclaim policy Retain instead of Delete"}},
		"claimRef removed": {pv(nil), pv(func(o *v1.PersistentVolume) { o.Spec.ClaimRef = nil }),
			[]string{"Changed: PV pv has claim none instead of ns/data (UID c)"}},
		"another claim of the name": {pv(nil), pv(func(o *v1.PersistentVolume) { o.Spec.ClaimRef.UID = "d" }),
			[]string{"Changed: PV pv has claim ns/data (UID d) instead of ns/data (UID c)"}},
		"finalizers": {pv(func(o *v1.PersistentVolume) { o.Finalizers = []string{"a", "b"} }),
			pv(func(o *v1.PersistentVolume) { o.Finalizers = []string{"c", "b"} }),
			[]string{"FinalizerAdded: PV pv got finalizer c", "FinalizerRemoved: PV pv lost finalizer a"}},
		"finalizers in another order": {pv(func(o *v1.PersistentVolume) { o.Finalizers = []string{"a", "b"} }),
			pv(func(o *v1.PersistentVolume) { o.Finalizers = []string{"b", "a"} }), nil},
		"terminating": {pv(nil), pv(func(o *v1.PersistentVolume) { o.DeletionTimestamp = ptr.To(ago(0)) }),
			[]string{"Terminating: PV pv is terminating"}},
		"gone": {pv(nil), empty, []string{"Removed: PV pv is gone"}},
		"new":  {empty, pv(nil), []string{"Added: PV pv is there"}},
		"PVs were not read": {Around{Read: map[Kind]bool{KindClaim: true, KindPod: true}}, pv(nil),
			[]string{"Created: PV pv was created"}},
		"claims were not read, which lead to pods": {Around{Read: map[Kind]bool{KindPV: true, KindPod: true}},
			of(OfPod(&explain.Pod{Pod: objects.Pod{Name: "db"}})), nil},
		"created again": {pv(nil), pv(func(o *v1.PersistentVolume) { o.UID = "other" }),
			[]string{"Replaced: PV pv was deleted, and created again"}},
		"attached": {of(OfAttachment(a)), of(OfAttachment(attached)),
			[]string{"Changed: VolumeAttachment a has state attached instead of attaching"}},
		"a claim is bound": {of(OfClaim(newClaim("data", unbound))), of(OfClaim(newClaim("data", nil))),
			[]string{"Changed: Claim ns/data has PV pv instead of none",
				"Changed: Claim ns/data has phase Bound instead of Pending"}},
		"a node is lost": {of(OfNode(newNode("n", true))), of(OfNode(newNode("n", false))),
			[]string{"Changed: Node n has ready no instead of yes"}},
		"a node is gone": {of(OfNode(newNode("n", true))), of(OfMissingNode("n")), []string{"Removed: Node n is gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, entry := range Diff(c.before, c.now, now()) {
				got = append(got, entry.Reason+": "+entry.Text)
				if created := entry.Reason == "Created"; created != (entry.ID != "") ||
					!created && !entry.Time.Time.Equal(now()) || entry.Type != typeChange || entry.Source != sourceWatch {
					t.Errorf("entry is %+v", entry)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	at, later := ago(time.Hour), ago(time.Minute)
	for name, c := range map[string]struct {
		event v1.Event
		time  metav1.Time
		count int
	}{
		"once":     {v1.Event{LastTimestamp: at}, at, 1},
		"counted":  {v1.Event{FirstTimestamp: at, LastTimestamp: later, Count: 5}, later, 5},
		"new form": {v1.Event{EventTime: metav1.NewMicroTime(at.Time)}, at, 1},
		"new form, again": {v1.Event{EventTime: metav1.NewMicroTime(at.Time),
			Series: &v1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(later.Time)}}, later, 3},
		"without a time": {v1.Event{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at}}, at, 1},
	} {
		c.event.UID, c.event.Type, c.event.Reason, c.event.Message = "e", "Warning", "Attached", "two\nlines"
		c.event.Source.Component = "csi-reclaimer"
		c.event.InvolvedObject = v1.ObjectReference{Kind: "PersistentVolume", Name: "pv"}
		got := EntryOf(&c.event)
		if want := (Entry{ID: "event/e", Time: got.Time, Source: "csi-reclaimer", Type: "Warning", Reason: "Attached",
			Text: "two lines", About: "PV pv", Count: c.count}); got != want || !got.Time.Equal(&c.time) {
			t.Errorf("%s: %+v, want %+v at %s", name, got, want, c.time)
		}
	}
}

func TestEventsOfOneSecondStandByTheirObjects(t *testing.T) {
	var all []Entry
	for i, about := range []v1.ObjectReference{{Kind: "NodeFence", Name: "n"}, {Kind: "Node", Name: "n"},
		{Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "data"}, {Kind: "Node", Name: "n"}} {
		all = append(all, EntryOf(&v1.Event{ObjectMeta: metav1.ObjectMeta{UID: types.UID(rune('d' - i))},
			InvolvedObject: about, LastTimestamp: ago(time.Hour)}))
	}
	SortEntries(all)
	var abouts []string
	for _, entry := range all {
		abouts = append(abouts, entry.About)
	}
	if want := []string{"Claim ns/data", "Node n", "Node n", "NodeFence n"}; !slices.Equal(abouts, want) {
		t.Errorf("the entries are about %q, want %q", abouts, want)
	}
}

func TestFirstLookShowsCreations(t *testing.T) {
	all := Diff(Around{}, everything(func(o *v1.PersistentVolume) { o.CreationTimestamp = ago(time.Minute) }), now())
	if len(all) != 4 || slices.ContainsFunc(all, func(e Entry) bool { return e.Reason != "Created" || e.ID == "" }) {
		t.Errorf("entries are %+v", all)
	}
	SortEntries(all)
	if !slices.IsSortedFunc(all, func(x, y Entry) int { return x.Time.Compare(y.Time.Time) }) {
		t.Errorf("entries are not in the order of their times: %+v", all)
	}
}

// An object that a look lacks is kept for the next one, unless it is gone.
func TestLookKeepsUnseenObjects(t *testing.T) {
	seen := everything(nil)
	after := Around{Objects: []Related{seen.Objects[0]}}
	after.Keep(seen, func(ref Ref) bool { return ref.Kind == KindPod })
	kinds := map[Kind]int{}
	for _, o := range after.Objects {
		kinds[o.Kind]++
	}
	if want := map[Kind]int{KindPV: 2, KindClaim: 1, KindNode: 1, KindAttach: 1, KindFence: 1}; !maps.Equal(kinds, want) {
		t.Errorf("kept are %v, want %v", kinds, want)
	}
}
