package inflight

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight/internal/chunks"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// noise returns text that cannot be compressed, equal for equal seeds.
func noise(seed string, length int) string {
	r := rand.NewChaCha8([32]byte([]byte(seed + strings.Repeat(" ", 32))[:32]))
	data := make([]byte, length)
	_, _ = r.Read(data) // never fails
	return base64.RawStdEncoding.EncodeToString(data)[:length]
}

// nodes returns the topologies of n nodes, each in a zone and with a name like those on EC2.
func nodes(n int) []*csi.Topology {
	r := rand.New(rand.NewPCG(1, 2))
	names := map[string]bool{}
	for len(names) < n {
		names[fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", r.IntN(4), r.IntN(256), r.IntN(256))] = true
	}
	var places []*csi.Topology
	for i, name := range slices.Sorted(maps.Keys(names)) {
		places = append(places, &csi.Topology{Segments: map[string]string{
			"topology.hostpath.csi/node": name, "topology.kubernetes.io/zone": "eu-central-1" + string(rune('a'+i%3))}})
	}
	return places
}

// onNodes returns an entry whose request lists these topologies and prefers the one with index first.
func onNodes(volume string, places []*csi.Topology, first int) Entry {
	e := fullEntry()
	e.Volume, e.Requests = volume, e.Requests[:1]
	e.Requests[0].Create.Name, e.Requests[0].PV.Name = volume, volume
	e.Requests[0].Create.AccessibilityRequirements = &csi.TopologyRequirement{
		Requisite: places, Preferred: slices.Concat(places[first:], places[:first])}
	return e
}

func TestRequirementsAreStoredOnce(t *testing.T) {
	places := nodes(1200)
	outside := &csi.Topology{Segments: map[string]string{"zone": "x"}}
	var mixed []*csi.Topology
	for i := range 20 {
		segments := map[string]string{}
		for bit, key := range []string{"zone", "rack", "node", ""} {
			if i&(1<<bit) != 0 {
				segments[key] = strings.Repeat("<\x00\"", i%3) // the empty string among them
			}
		}
		mixed = append(mixed, &csi.Topology{Segments: segments})
	}
	for name, r := range map[string]*csi.TopologyRequirement{
		"none":                     nil,
		"an empty one":             {},
		"no requisite":             {Preferred: places[:2]},
		"no preferred":             {Requisite: places},
		"short lists":              {Requisite: places[:8], Preferred: places[2:8]},
		"the first long list":      {Requisite: places[:9], Preferred: places[:9]},
		"a ring":                   {Requisite: places, Preferred: slices.Concat(places[77:], places[:77])},
		"backwards":                {Requisite: places[:20], Preferred: backwards(places[:20])},
		"a place of its own first": {Requisite: places, Preferred: slices.Concat([]*csi.Topology{outside}, places)},
		"a place twice":            {Requisite: slices.Concat(places, places), Preferred: slices.Concat(places, places)},
		"a place without segments": {Requisite: append(slices.Clone(places), &csi.Topology{}),
			Preferred: []*csi.Topology{{}}},
		"no place has segments":      {Requisite: slices.Repeat([]*csi.Topology{{}}, chunks.Inline+1)},
		"places with different keys": {Requisite: slices.Concat(places, mixed), Preferred: slices.Concat(mixed, places)},
	} {
		t.Run(name, func(t *testing.T) {
			e := onNodes("pvc-1", places, 0)
			e.Requests[0].Create.AccessibilityRequirements = r
			stored := must.Get(newCodec("log-topology").encode(&e))(t)
			if got := stored.entry.Requests[0].Create.GetAccessibilityRequirements(); !chunks.Same(r, got) {
				t.Errorf("(-want +got)\n%s", cmp.Diff(r, got, protocmp.Transform()))
			}
			one, err := newCodec("log-topology").decode(stored.value, nil, func(hash string) (string, bool) {
				value, found := stored.refers[hash]
				return value, found
			})
			if err != nil || !equal(one.entry, stored.entry) || !maps.Equal(one.refers, stored.refers) {
				t.Errorf("another process reads %v, %v", one.entry, err)
			}
			if len(stored.value) > 4<<10 {
				t.Errorf("the entry takes %d bytes", len(stored.value))
			}
		})
	}
}

func backwards(places []*csi.Topology) []*csi.Topology {
	places = slices.Clone(places)
	slices.Reverse(places)
	return places
}

// TestStoredRequirementsAreFixed checks that the stored bytes of lists, and the names of their chunks, do not change:
// another name would not find the chunk that an earlier process has stored.
func TestStoredRequirementsAreFixed(t *testing.T) {
	t.Parallel()
	places := nodes(1200)
	var mixed []*csi.Topology
	for i := range 20 {
		segments := map[string]string{}
		for bit, key := range []string{"zone", "rack", "node", ""} {
			if i&(1<<bit) != 0 {
				segments[key] = strings.Repeat("<\x00\"", i%3)
			}
		}
		mixed = append(mixed, &csi.Topology{Segments: segments})
	}
	for name, c := range map[string]struct {
		requisite, preferred []*csi.Topology
		want                 string
	}{
		"short lists":      {places[:8], backwards(places[:8]), "7668c4ee14a4c829"},
		"a list and a run": {places[:9], places[2:7], "894affaa6520c270"},
		"a ring":           {places, slices.Concat(places[77:], places[:77]), "383ac7f3ce299de2"},
		"places twice":     {slices.Concat(places, places[:40]), slices.Concat(places[:40], places), "6e86d5b8a8b00663"},
		"different keys":   {slices.Concat(mixed, places), slices.Concat(places, mixed, nodes(1201)[:3]), "2b16a1441d75a852"},
	} {
		t.Run(name, func(t *testing.T) {
			e := onNodes("pvc-1", places, 0)
			e.Requests[0].Create.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: c.requisite,
				Preferred: c.preferred}
			stored := must.Get(newCodec("log-topology").encode(&e))(t)
			h := sha256.New()
			fmt.Fprintln(h, plain(t, stored.value))
			for _, hash := range slices.Sorted(maps.Keys(stored.refers)) {
				fmt.Fprintln(h, hash, plain(t, stored.refers[hash]))
			}
			if got := hex.EncodeToString(h.Sum(nil)[:8]); got != c.want {
				t.Errorf("%d chunks: digest %q, want %q", len(stored.refers), got, c.want)
			}
		})
	}
}

// TestJoiningNodeChangesOneChunk checks that entries of different times still share most of their lists.
func TestJoiningNodeChangesOneChunk(t *testing.T) {
	places := nodes(5000)
	codec := newCodec("log-topology")
	all, less := onNodes("pvc-1", places, 0), onNodes("pvc-2", slices.Concat(places[:1234], places[1235:]), 0)
	before := must.Get(codec.encode(&less))(t)
	after := must.Get(codec.encode(&all))(t)
	added := 0
	for hash := range after.refers {
		if _, found := before.refers[hash]; !found {
			added++
		}
	}
	if len(after.refers) < 5 || added > 2 {
		t.Errorf("%d of %d chunks are new", added, len(after.refers))
	}
}

func TestWrongChunksAreRefused(t *testing.T) {
	places := nodes(1200)
	e := onNodes("pvc-1", places, 100)
	stored := must.Get(newCodec("log-topology").encode(&e))(t)
	hashes := slices.Sorted(maps.Keys(stored.refers))
	read := func(change func(map[string]string)) error {
		values := maps.Clone(stored.refers)
		change(values)
		_, err := newCodec("log-topology").decode(stored.value, nil, func(hash string) (string, bool) {
			value, found := values[hash]
			return value, found
		})
		return err
	}
	must.OK(t, read(func(map[string]string) {}))
	for name, change := range map[string]func(map[string]string){
		"one is missing":     func(v map[string]string) { delete(v, hashes[0]) },
		"they are exchanged": func(v map[string]string) { v[hashes[0]] = v[hashes[1]] },
		"no base64":          func(v map[string]string) { v[hashes[0]] = "deflate:?" },
		"no deflate":         func(v map[string]string) { v[hashes[0]] = "deflate:AAAA" },
		"no JSON":            func(v map[string]string) { v[hashes[0]] = "x" },
		"a short column":     func(v map[string]string) { v[hashes[0]] = `{"count":2,"columns":{"a":["1","2"],"b":["1"]}}` },
		"a long column":      func(v map[string]string) { v[hashes[0]] = `{"count":1,"columns":{"a":["1","2"]}}` },
		"a negative count":   func(v map[string]string) { v[hashes[0]] = `{"count":-1}` },
		"a huge count":       func(v map[string]string) { v[hashes[0]] = `{"count":1000000000}` },
		"a bomb": func(v map[string]string) {
			v[hashes[0]] = chunks.Compress([]byte(strings.Repeat("x", 16<<20+1)))
		},
	} {
		if err := read(change); !errors.Is(err, ErrDecode) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRoomAtAnySizeOfCluster checks that the log has room for more volumes than workers with a segment for each node.
func TestRoomAtAnySizeOfCluster(t *testing.T) {
	const workers = 100
	for _, count := range []int{3, 100, 1000, 5000} {
		places, codec := nodes(count), newCodec("log-topology")
		shards := map[int]*shard{}
		own := meta{Version: 1, Driver: driver, Epoch: 5, Process: "p"}
		first, n, last := 0, 0, error(nil)
		e := onNodes("pvc-00000000-6f0e-4a55-9c5e-2f2d6f7b8a01", places, count/2)
		stored := must.Get(codec.encode(&e))(t)
		for n = range 3000 {
			e := *stored.entry // of equal size
			e.Volume, e.Claim.Namespace = fmt.Sprintf("pvc-%08x-6f0e-4a55-9c5e-2f2d6f7b8a01", n*7919), fmt.Sprint(n)
			e.Requests = []Request{{PV: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{StorageClassName: fmt.Sprint(n)}}}}
			stored.entry = &e
			number := shardOf(e.Volume, Shards)
			if shards[number] == nil {
				shards[number] = newShard(number, shardName(number))
			}
			if _, last = shards[number].put(annotationKey(e.Volume), stored, own); last != nil {
				break
			}
			if first == 0 {
				first = shards[number].total(own)
			}
		}
		if !errors.Is(last, ErrFull) || n < 5*workers {
			t.Errorf("%d segments: %d entries fit, then %v", count, n, last)
		}
		t.Logf("%d segments: the first entry takes %d bytes of its shard, %d entries fit", count, first, n)
	}
}

// BenchmarkEncode measures an entry whose chunks are known. As in a new request, the lists share no topologies.
func BenchmarkEncode(b *testing.B) {
	for _, count := range []int{3, 100, 1000, 5000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			e, codec := onNodes("pvc-1", nodes(count), 0), newCodec("log-topology")
			places := nodes(count)
			e.Requests[0].Create.AccessibilityRequirements.Preferred = slices.Concat(places[count/2:], places[:count/2])
			for b.Loop() {
				if _, err := codec.encode(&e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
