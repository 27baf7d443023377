package singlenode

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// The cache keeps the pods that a decision may need. Of other pods it has no record.
func TestRecordPod(t *testing.T) {
	ephemeral := func(o *v1.Pod) {
		o.Spec.Volumes = []v1.Volume{{Name: "tmp", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}
	}
	projected := func(o *v1.Pod) { o.Spec.Volumes = []v1.Volume{{Name: "token"}} }
	for sentence, c := range map[string]struct {
		mode         string
		known        bool
		alter        []func(*v1.Pod)
		keep, record bool
	}{
		"one with a claim":               {singlenode.AllValue, false, []func(*v1.Pod){onNode}, true, true},
		"one with an ephemeral claim":    {singlenode.AllValue, false, []func(*v1.Pod){onNode, ephemeral}, true, true},
		"one without claims":             {singlenode.AllValue, false, []func(*v1.Pod){onNode, uses()}, false, false},
		"one with another volume":        {singlenode.AllValue, false, []func(*v1.Pod){onNode, projected}, false, false},
		"one with the gate":              {"", false, nil, true, true},
		"one where nothing asks":         {"", false, []func(*v1.Pod){onNode}, false, false},
		"one where nothing asks now":     {"", true, []func(*v1.Pod){onNode}, false, true},
		"one whose claim was locked":     {"", false, []func(*v1.Pod){onNode, uses("left")}, false, false},
		"one whose claim is locked":      {"", false, []func(*v1.Pod){onNode, uses("locked")}, false, true},
		"one of two claims, one of them": {"", false, []func(*v1.Pod){onNode, uses("left", "locked")}, false, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.claim("left", locked("gone"))
			w.claim("locked", locked("other"))
			w.sync()
			w.claim("left", free)
			w.label(c.mode)
			w.sync()
			w.pod("one", c.alter...)
			record, keep, err := recordPod(w.observer)(w.pods["ns/one"], c.known)
			if err != nil || keep != c.keep || (record != nil) != c.record {
				t.Errorf("kept: %t, record %v, %v", keep, record, err)
			}
		})
	}
}

// Most pods run, so their records are small.
func TestRecordOfRunningPodIsSmall(t *testing.T) {
	for sentence, c := range map[string]struct {
		alter []func(*v1.Pod)
		all   bool
	}{
		"runs":           {[]func(*v1.Pod){onNode}, false},
		"waits":          {nil, true},
		"is terminating": {[]func(*v1.Pod){onNode, terminating}, true},
		"has ended":      {[]func(*v1.Pod){onNode, completed}, true},
	} {
		w := newWorld(t, Config{})
		w.pod("one", c.alter...)
		if p := podOf(w.pods["ns/one"]); (p.all != nil) != c.all {
			t.Errorf("of a pod that %s: %+v", sentence, p.all)
		}
	}
}

func TestRecordClaim(t *testing.T) {
	for sentence, c := range map[string]struct {
		mode  string
		alter func(*v1.PersistentVolumeClaim)
		keep  bool
	}{
		"one in a namespace that asks": {singlenode.SelectedValue, free, true},
		"one where nothing asks":       {"", free, false},
		"one with a lock":              {"", locked("one"), true},
		"one with the annotation alone": {"",
			func(o *v1.PersistentVolumeClaim) { locked("one")(o); o.Finalizers = nil }, true},
		"one with the finalizer alone": {"",
			func(o *v1.PersistentVolumeClaim) { locked("one")(o); o.Annotations = nil }, true},
	} {
		w := newWorld(t, Config{})
		w.label(c.mode)
		w.sync()
		w.claim("data", c.alter)
		if _, keep, err := recordClaim(w.observer.modeOf)(w.claims["ns/data"], false); err != nil || keep != c.keep {
			t.Errorf("%s: kept: %t, %v", sentence, keep, err)
		}
	}
}

func TestRecordVolume(t *testing.T) {
	csi := v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "driver.test",
		VolumeAttributes: map[string]string{"clusterID": "one"}}}
	of := objects.Volume{Driver: "driver.test", Attributes: map[string]string{"clusterID": "one"}}
	for sentence, c := range map[string]struct {
		spec v1.PersistentVolumeSpec
		want volume
	}{
		"bound": {v1.PersistentVolumeSpec{PersistentVolumeSource: csi,
			ClaimRef: &v1.ObjectReference{Namespace: "ns", Name: "data"}},
			volume{Volume: of, claimNamespace: "ns", claimName: "data"}},
		"of no claim": {v1.PersistentVolumeSpec{PersistentVolumeSource: csi}, volume{Volume: of}},
		"of no CSI driver": {v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{Namespace: "ns", Name: "data"}},
			volume{claimNamespace: "ns", claimName: "data"}},
	} {
		for _, fences := range []bool{true, false} {
			got, keep, err := recordVolume(fences)(&v1.PersistentVolume{Spec: c.spec}, false)
			if !fences {
				c.want.Volume = objects.Volume{}
			}
			if err != nil || !keep || !reflect.DeepEqual(got, c.want) {
				t.Errorf("of a volume that is %s, with fences %t: %+v, %v", sentence, fences, got, err)
			}
		}
	}
}
