package singlenode

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
)

// The namespace, claim, class, PV and access mode decide. A result without a lock is confirmed live.
func TestNeedOfLock(t *testing.T) {
	yes := map[string]string{singlenode.Label: singlenode.SelectValue}
	className := func(o *v1.PersistentVolumeClaim) { name := "fast"; o.Spec.StorageClassName = &name }
	many := func(o *v1.PersistentVolumeClaim) { o.Spec.AccessModes[0] = v1.ReadWriteMany }
	readers := func(o *v1.PersistentVolumeClaim) {
		o.Spec.AccessModes = append(o.Spec.AccessModes, v1.ReadOnlyMany)
	}
	classless := func(o *v1.PersistentVolumeClaim) { o.Spec.StorageClassName = nil }
	annotated := func(o *v1.PersistentVolumeClaim) {
		o.Annotations = map[string]string{v1.BetaStorageClassAnnotation: "fast"}
	}
	elsewhere := func(o *v1.PersistentVolumeClaim) { o.Spec.VolumeName = "pv-of-none" }
	unbound := func(o *v1.PersistentVolumeClaim) { o.Spec.VolumeName = "" }
	asks := func(o *v1.PersistentVolumeClaim) { o.Labels = yes }
	read := []string{"get namespace", "get claim data", "get class", "get volume"}
	none := slices.Concat(read, []string{"ungate one"})
	lock := []string{"lock data for one", "list pods", "ungate one"}
	for sentence, c := range map[string]struct {
		mode      string
		class, pv map[string]string
		claim     []func(*v1.PersistentVolumeClaim)
		// live changes objects after the last event of the watches.
		live  func(w *world)
		calls []string
	}{
		"all": {mode: singlenode.AllValue, calls: lock},
		"all, of many nodes": {mode: singlenode.AllValue, claim: []func(*v1.PersistentVolumeClaim){many},
			calls: []string{"get namespace", "get claim data", "ungate one"}},
		"all, of many readers": {mode: singlenode.AllValue, claim: []func(*v1.PersistentVolumeClaim){readers},
			calls: []string{"get namespace", "get claim data", "ungate one"}},
		"none": {mode: singlenode.SelectedValue, calls: none},
		"none, without a class": {mode: singlenode.SelectedValue, claim: []func(*v1.PersistentVolumeClaim){classless},
			calls: []string{"get namespace", "get claim data", "get volume", "ungate one"}},
		"a claim of a PV that does not exist": {mode: singlenode.SelectedValue,
			claim: []func(*v1.PersistentVolumeClaim){elsewhere}, calls: lock},
		"a claim of a class that does not exist": {mode: singlenode.SelectedValue,
			claim: []func(*v1.PersistentVolumeClaim){func(o *v1.PersistentVolumeClaim) {
				name := "of-none"
				o.Spec.StorageClassName = &name
			}}, calls: lock},
		"the claim": {mode: singlenode.SelectedValue, claim: []func(*v1.PersistentVolumeClaim){asks},
			calls: lock},
		"the class": {mode: singlenode.SelectedValue, class: yes, calls: lock},
		"the class, by the deprecated annotation": {mode: singlenode.SelectedValue, class: yes,
			claim: []func(*v1.PersistentVolumeClaim){classless, annotated}, calls: lock},
		"the PV": {mode: singlenode.SelectedValue, pv: yes, calls: lock},
		"a claim without volume": {mode: singlenode.SelectedValue, claim: []func(*v1.PersistentVolumeClaim){unbound},
			calls: lock},
		"the class, since a moment ago": {singlenode.SelectedValue, nil, nil, nil,
			func(w *world) { w.class(yes) },
			slices.Concat(read, lock)},
		"the PV, since a moment ago": {singlenode.SelectedValue, nil, nil, nil,
			func(w *world) { w.volume("data", yes) },
			slices.Concat(read, lock)},
		"the claim, since a moment ago": {singlenode.SelectedValue, nil, nil, nil,
			func(w *world) { w.claim("data", asks) },
			[]string{"get namespace", "get claim data", "lock data for one", "list pods", "ungate one"}},
		"the namespace, since a moment ago": {singlenode.SelectedValue, nil, nil, nil,
			func(w *world) { w.label(singlenode.AllValue) },
			[]string{"get namespace", "get claim data", "lock data for one", "list pods", "ungate one"}},
		"the class is gone": {singlenode.SelectedValue, nil, nil, nil,
			func(w *world) { delete(w.classes, "fast") },
			slices.Concat(read, lock)},
		"the class cannot be read": {singlenode.SelectedValue, nil, nil, nil,
			func(w *world) { w.fail["get class"] = errNoAnswer },
			[]string{"get namespace", "get claim data", "get class"}},
		"the PV cannot be read": {singlenode.SelectedValue, nil, nil, nil,
			func(w *world) { w.fail["get volume"] = errNoAnswer },
			[]string{"get namespace", "get claim data", "get class", "get volume"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.label(c.mode)
			w.class(c.class)
			w.volume("data", c.pv)
			w.claim("data", append([]func(*v1.PersistentVolumeClaim){className, bound}, c.claim...)...)
			w.pod("one")
			w.sync()
			if c.live != nil {
				c.live(w)
			}
			w.reconcile(t.Context(), "ns/one")
			w.expectCalls(c.calls...)
		})
	}
}

// class creates or changes the StorageClass of the claims.
func (w *world) class(labels map[string]string) {
	const name = "fast"
	w.classes[name] = &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels,
		ResourceVersion: w.version()}}
}

func TestFreeClaims(t *testing.T) {
	f := singlenode.Facts{Pod: singlenode.Pod{Namespace: "ns"}}
	for name, c := range map[string]singlenode.Claim{"free": {}, "unasked": {Unasked: true},
		"locked": {Locked: true}, "kept": {Kept: true}} {
		c.Name = name
		f.Claims = append(f.Claims, singlenode.ClaimFacts{Claim: c})
	}
	all, asked := freeClaims(f)
	if slices.Sort(all); !slices.Equal(all, []string{"ns/free", "ns/unasked"}) || !slices.Equal(asked, all[:1]) {
		t.Errorf("free: %q, asked for: %q", all, asked)
	}
}
