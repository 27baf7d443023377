package inflight

import (
	"errors"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// TestLocate checks the Lease, key and driver of each entry and of each problem.
func TestLocate(t *testing.T) {
	lease := func(name, driver string, uid types.UID, entries ...*Entry) coordinationv1.Lease {
		m := meta{Version: metaVersion, Driver: driver, UID: "u"}
		l := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid,
			Annotations: map[string]string{annMeta: m.String()}}}
		for _, e := range entries {
			stored := must.Get(newCodec("log-topology").encode(e))(t)
			l.Annotations[annotationKey(e.Volume)] = stored.value
		}
		return l
	}
	const name = "pvc-1"
	e := &Entry{Volume: name, Claim: volume.ClaimRef{Namespace: "ns", Name: "data", UID: "1"}, Requests: []Request{{
		Create: &csi.CreateVolumeRequest{Name: name}, PV: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}},
	}}}
	shard := Config{Name: "log"}.shard(shardOf(name, Shards))
	shown := lease(shard, "d", "u", e)
	entries, problems := Locate([]coordinationv1.Lease{shown, lease("copy-0", "other", "another"),
		{ObjectMeta: metav1.ObjectMeta{Name: "foreign-0"}}}, nil)
	if len(entries) != 1 {
		t.Fatalf("%d entries; problems %v", len(entries), problems)
	}
	want := Location{Lease: types.NamespacedName{Namespace: "ns", Name: shard}, LeaseUID: "u",
		Annotation: annotationKey(name),
		Stored:     shown.Annotations[annotationKey(name)], Driver: "d"}
	if got := entries[0]; got.Location != want || got.Volume != name {
		t.Errorf("got %+v, want %+v", got.Location, want)
	}
	fill := FillOf([]coordinationv1.Lease{shown, lease("log-7", "d", "u"), lease("copy-0", "other", "another")})
	if len(fill) != 1 || fill["d"] != float64(size(shown.Annotations))/float64(room) {
		t.Errorf("the logs are filled to %v", fill)
	}
	ofNode := lease("of-node-0", "local", "u")
	ofNode.OwnerReferences = []metav1.OwnerReference{*ownedBy("node")(t.Context())}
	foreign := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "foreign-0",
		OwnerReferences: ofNode.OwnerReferences}}
	if at := OnNodes([]coordinationv1.Lease{shown, ofNode, foreign}); len(at) != 1 || !at["local"] {
		t.Errorf("on nodes: %v", at)
	}
	key, value := entries[0].Settle()
	shown.Annotations[key] = value
	if entries, _ := Locate([]coordinationv1.Lease{shown}, nil); len(entries) > 0 {
		t.Errorf("a settled entry is in flight: %+v", entries)
	}
	for pv, want := range map[string]bool{name: true, volume.ApartName(name, "n"): true, name + "-apart-x": false,
		"pvc-2": false} {
		if entries[0].Of(pv) != want {
			t.Errorf("PV %s: want %v", pv, want)
		}
	}
	if len(problems) != 2 || problems[0].Driver != "other" || !errors.Is(problems[0].Err, ErrCopy) ||
		problems[1].Driver != "" || !errors.Is(problems[1].Err, ErrForeign) ||
		!strings.HasSuffix(problems[1].String(), "it has no annotation "+annMeta) {
		t.Errorf("problems %+v", problems)
	}
	if other := volumes(5, 1)[0]; problems[0].Of(other) || !problems[1].Of(other) {
		t.Errorf("PV %s: a Lease may be the only shard of its log if it does not say their number", other)
	}
}
