package inflight

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight/internal/chunks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// forged returns a Lease as anybody can write it who may create Leases. It is the log of one shard, with so many
// entries, each of which has an annotation of so many equal bytes for its PV.
func forged(t *testing.T, name string, entries, padding int) coordinationv1.Lease {
	t.Helper()
	uid := types.UID("uid of " + name)
	m := meta{Version: metaVersion, Driver: driver, Shards: 1, UID: uid}
	lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name, UID: uid,
		Annotations: map[string]string{annMeta: m.String()}}}
	pad := must.Get(json.Marshal(map[string]string{"x": strings.Repeat("x", padding)}))(t)
	for i := range entries {
		e := entry(fmt.Sprintf("pvc-%03d", i))
		stored := must.Get(newCodec("").encode(&e))(t)
		text := strings.Replace(plain(t, stored.value), `"persistentVolume":{"metadata":{`,
			`"persistentVolume":{"metadata":{"annotations":`+string(pad)+`,`, 1)
		lease.Annotations[annotationKey(e.Volume)] = chunks.Compress([]byte(text))
	}
	if n := size(lease.Annotations); n > 256<<10 {
		t.Fatalf("the API server refuses %d bytes", n)
	}
	return lease
}

// TestForgedLeases checks that a Lease is decompressed to a limited number of bytes, and that no entry is lost.
func TestForgedLeases(t *testing.T) {
	for name, test := range map[string]struct{ entries, padding, readable int }{
		"a few large entries":    {11, 16 << 20, 0},
		"many entries":           {100, 100_000, maxContent / 102_000},
		"entries of a usual log": {100, 2_000, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leases := []coordinationv1.Lease{forged(t, "a-0", test.entries, test.padding),
				forged(t, "b-0", test.entries, test.padding)}
			entries, problems := Locate(leases, nil)
			if len(entries)+len(problems) != 2*test.entries || len(entries) != 2*test.readable {
				t.Errorf("%d entries, %d problems, want %d entries", len(entries), len(problems), 2*test.readable)
			}
			content := map[string]int{}
			for _, e := range entries {
				content[e.Lease.Name] += len(plain(t, e.Stored))
				if shown := e.Requests[0].PV; len(shown.Annotations) > 0 || shown.Name != e.Volume {
					t.Errorf("entry %s keeps %d annotations", e.Volume, len(shown.Annotations))
				}
			}
			if content["a-0"] > maxContent || content["b-0"] > maxContent {
				t.Errorf("the Leases are decompressed to %v bytes", content)
			}
			for _, p := range problems {
				if !errors.Is(p.Err, ErrDecode) || p.Annotation == "" || p.Driver != driver {
					t.Fatalf("problem %+v", p)
				}
			}
		})
	}
}

// TestDecompressTakesBytesOfFailures checks that a value that fails takes its bytes from the limit, too.
func TestDecompressTakesBytesOfFailures(t *testing.T) {
	t.Parallel()
	left := maxContent
	take := func(value string, want int) {
		t.Helper()
		if _, err := content(value, &left); left != want || (err == nil) != (want > 0) {
			t.Errorf("%d bytes are left, %v; want %d", left, err, want)
		}
	}
	take(chunks.Compress([]byte(strings.Repeat("x", maxContent-1000))), 1000)
	take(strings.Repeat("x", 999), 1)
	take("xx", 0)
	take("x", 0)
	left = maxContent
	whole := chunks.Compress([]byte(strings.Repeat(noise("cut", 1000), 10)))
	if _, err := content(whole[:len(whole)-200], &left); err == nil || left == maxContent {
		t.Errorf("a value that ends early: %d bytes are left, %v", left, err)
	}
}

// TestEntriesOfEarlierVersionAreFinished checks that a log whose entries have more content than a Lease may have now is
// read and can be marked, while new entries wait.
func TestEntriesOfEarlierVersionAreFinished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, lease := newStore(), forged(t, shardName(0), 30, 100_000)
		s.replace(&lease)
		cfg := settings(s, "b")
		cfg.Shards = 1
		p := start(t, cfg)
		entries := p.Entries()
		if problems := p.Problems(); len(entries) != 30 || len(problems) > 0 {
			t.Fatalf("%d entries, problems %v", len(entries), problems)
		}
		another := entry("pvc-new")
		another.Claim.Namespace, another.Requests[0].PV.Spec.StorageClassName = "another", "another"
		wantError(t, p.put(another), ErrFull)
		if fill := p.Stats().Fill; fill <= 1 {
			t.Errorf("the fullest Lease is full to %v", fill)
		}
		for _, e := range entries {
			e.Discarding = true
			p.mustPutEntry(e)
		}
		more := entries[0]
		more.Requests = append(slices.Clip(more.Requests), more.Requests[0])
		wantError(t, p.put(more), ErrFull)
		for _, e := range entries[:20] {
			p.Remove(e.Volume)
		}
		synctest.Wait()
		p.mustPutEntry(another)
	})
}

// TestForgedEntryOfManyValues checks that Locate decodes no text with so many values that they take far more memory
// than the text.
func TestForgedEntryOfManyValues(t *testing.T) {
	t.Parallel()
	for name, text := range map[string][2]string{
		"requests": {`{"version":1,"volume":"v","requests":[`, `]}`},
		"fields": {`{"version":1,"volume":"v","requests":[{"persistentVolume":{"metadata":{"managedFields":[`,
			`]}}}]}`},
	} {
		lease := forged(t, "a-0", 0, 0)
		full := text[0] + strings.Repeat("{},", maxContent/4) + "{}" + text[1]
		lease.Annotations[entryPrefix+"v"] = chunks.Compress([]byte(full))
		entries, problems := Locate([]coordinationv1.Lease{lease}, nil)
		if len(entries) > 0 || len(problems) != 1 || !strings.Contains(problems[0].String(), "values") {
			t.Errorf("%s: %d entries, problems %v", name, len(entries), problems)
		}
	}
	scattered := onNodes("pvc-1", nodes(5000), 0)
	r := scattered.Requests[0].Create.GetAccessibilityRequirements()
	r.Preferred = nil
	for i := range r.GetRequisite() {
		r.Preferred = append(r.Preferred, r.Requisite[i*7%len(r.Requisite)])
	}
	scattered.Requests = append(scattered.Requests, scattered.Requests[0])
	stored := must.Get(newCodec("").encode(&scattered))(t)
	left := maxContent
	if _, err := unmarshal(stored.value, &left); err != nil {
		t.Errorf("an entry with a run for each of 5,000 nodes: %v", err)
	}
}

// TestForgedClaims checks that no program gets a claim's name that may be two lines, or that a terminal may obey.
func TestForgedClaims(t *testing.T) {
	t.Parallel()
	for name, by := range map[string][2]string{
		"a second line": {`"name":"data"`, `"name":"data\npersistentvolume/pv-1"`},
		"an escape":     {`"name":"data"`, `"name":"\u001b[2Jdata"`},
		"a namespace":   {`"namespace":"shop"`, `"namespace":"\u001b[2Jshop"`},
	} {
		lease := forged(t, "a-0", 1, 0)
		for key, value := range lease.Annotations {
			if key != annMeta {
				lease.Annotations[key] = chunks.Compress([]byte(strings.Replace(plain(t, value), by[0], by[1], 1)))
			}
		}
		entries, problems := Locate([]coordinationv1.Lease{lease}, nil)
		if len(entries) > 0 || len(problems) != 1 || !errors.Is(problems[0].Err, ErrDecode) ||
			!problems[0].Of("pvc-000") || strings.ContainsAny(problems[0].String(), "\n\x1b") {
			t.Errorf("%s: entries %v, problems %v", name, entries, problems)
		}
	}
}

// TestLocateReadsNoChunks checks that an entry is found without the content of its chunks.
func TestLocateReadsNoChunks(t *testing.T) {
	t.Parallel()
	lease, e := forged(t, "a-0", 0, 0), onNodes("pvc-1", nodes(100), 0)
	stored := must.Get(newCodec("").encode(&e))(t)
	lease.Annotations[annotationKey(e.Volume)] = stored.value
	topology := forged(t, "a"+topologySuffix, 0, 0)
	for hash := range stored.refers {
		topology.Annotations[chunkPrefix+hash] = chunks.Compress([]byte(strings.Repeat("x", maxContent)))
	}
	located, problems := Locate([]coordinationv1.Lease{lease, topology}, nil)
	if len(located) != 1 || located[0].Requests[0].Create.GetAccessibilityRequirements() != nil {
		t.Errorf("found %v, problems %v", located, problems)
	}
}

// TestLocateNode checks the node of an entry, which decides whether a PV of the volume's name names its volume.
func TestLocateNode(t *testing.T) {
	t.Parallel()
	places := nodes(100)
	at := func(place *csi.Topology) volume.PV {
		var labels []string
		for key, value := range place.GetSegments() {
			labels = append(labels, key+"="+value)
		}
		return volume.PV{Name: "pvc-1", Affinity: strings.Join(labels, ",")}
	}
	second := func(places []*csi.Topology, first int) func(*Entry) {
		return func(e *Entry) { e.Requests = append(e.Requests, onNodes("pvc-1", places, first).Requests...) }
	}
	for name, test := range map[string]struct {
		places []*csi.Topology
		shards int
		change func(*Entry)
		known  bool
	}{
		"a log of one node":          {places[:1], 1, func(*Entry) {}, true},
		"the second of a few places": {[]*csi.Topology{places[2], places[0]}, 1, second(places[:1], 0), true},
		"two requests of one node":   {places[:1], 1, second(places[:1], 0), true},
		"two requests of two places": {places[:1], 1, second(places[2:3], 0), false},
		"a log of all nodes":         {places[:1], Shards, func(*Entry) {}, false},
		"its place is in a chunk":    {places, 1, func(*Entry) {}, false},
		"no node":                    {places[:1], 1, func(e *Entry) { e.Requests[0].Node = "" }, false},
		"no topology":                {nil, 1, func(*Entry) {}, false},
	} {
		first := max(0, slices.Index(test.places, places[0]))
		e := onNodes("pvc-1", test.places, first)
		test.change(&e)
		for i := range e.Requests {
			if name != "no node" {
				e.Requests[i].Node = "n1"
			}
		}
		stored := must.Get(newCodec("").encode(&e))(t)
		lease := forged(t, fmt.Sprintf("a-%d", shardOf("pvc-1", test.shards)), 0, 0)
		m := meta{Version: metaVersion, Driver: driver, Shards: shardsNoted(test.shards), UID: lease.UID}
		lease.Annotations[annMeta], lease.Annotations[annotationKey(e.Volume)] = m.String(), stored.value
		topology := forged(t, "a"+topologySuffix, 0, 0)
		for hash, value := range stored.refers {
			topology.Annotations[chunkPrefix+hash] = value
		}
		located, problems := Locate([]coordinationv1.Lease{lease, topology}, nil)
		if len(located) != 1 {
			t.Fatalf("%s: problems %v", name, problems)
		}
		got, other := located[0], at(places[1])
		if (got.Node != nil) != test.known || got.Names(other) == test.known || got.Apart(other) != test.known {
			t.Errorf("%s: node %v, another node's PV: names %v, apart %v", name, got.Node, got.Names(other), got.Apart(other))
		}
		if own := at(places[0]); !got.Names(own) || got.Apart(own) || got.Names(volume.PV{Name: "pvc-2"}) {
			t.Errorf("%s: node %v, its own PV: names %v, apart %v", name, got.Node, got.Names(own), got.Apart(own))
		}
	}
}

// TestLocateSkipsOtherDrivers checks that the Leases of other drivers are not decoded, and the nameless ones reported.
func TestLocateSkipsOtherDrivers(t *testing.T) {
	t.Parallel()
	nameless := forged(t, "nameless-0", 1, 1)
	nameless.Annotations[annMeta] = "{"
	foreign := forged(t, "foreign", 1, 1)
	leases := []coordinationv1.Lease{forged(t, "a-0", 3, 1), foreign, nameless}
	for asked, want := range map[string][2]int{driver: {3, 2}, "another": {0, 1}} {
		entries, problems := Locate(leases, func(of string) bool { return of == asked })
		if len(entries) != want[0] || len(problems) != want[1] {
			t.Errorf("%s: %d entries, problems %v, want %v", asked, len(entries), problems, want)
		}
	}
}

// largest returns an entry with the most parameters that the API server admits for a StorageClass and a
// VolumeAttributesClass, mount options of CSI's limit, and a segment for each of 5,000 nodes, for each request. The
// parameters are as hard to compress as text.
func largest(requests int) Entry {
	e := onNodes("pvc-1", nodes(5000), 77)
	r := &e.Requests[0]
	r.Create.Parameters, r.Create.MutableParameters = map[string]string{}, map[string]string{}
	for i := range 512 {
		key := fmt.Sprintf("parameter-%03d", i)
		r.Create.Parameters[key] = strings.Repeat(noise(key, 25), 20)[:512-len(key)]
		r.Create.MutableParameters[key] = strings.Repeat(noise("m"+key, 25), 20)[:512-len(key)]
	}
	for i := range 64 {
		r.PV.Spec.MountOptions = append(r.PV.Spec.MountOptions, noise(fmt.Sprint(i), 64))
	}
	mount := &csi.VolumeCapability_MountVolume{MountFlags: r.PV.Spec.MountOptions}
	r.Create.VolumeCapabilities = []*csi.VolumeCapability{{AccessType: &csi.VolumeCapability_Mount{Mount: mount}}}
	for len(e.Requests) < requests {
		e.Requests = append(e.Requests, *r)
	}
	return e
}

// TestLargestRequestFits checks that the limit before compression refuses no request of a valid StorageClass, neither
// the first nor the one for another node, and that the entry may then be marked.
func TestLargestRequestFits(t *testing.T) {
	t.Parallel()
	own := meta{Version: 1, Driver: driver, Epoch: 5, Process: "p"}
	s := newShard(2, shardName(2))
	put := func(e Entry) {
		t.Helper()
		stored, err := newCodec("").encode(&e)
		if err == nil {
			_, err = s.put(annotationKey(e.Volume), stored, own)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d requests: %d bytes, stored in %d", len(e.Requests), stored.content, len(stored.value))
	}
	put(largest(1))
	put(largest(2))
	marked := largest(2)
	marked.Discarding = true
	put(marked)
}

// TestEntryBeyondContentIsTooLarge checks that no entry is stored that Locate would not read.
func TestEntryBeyondContentIsTooLarge(t *testing.T) {
	t.Parallel()
	own := meta{Version: 1, Driver: driver, Epoch: 5, Process: "p"}
	padded := func(volume string, padding int) Entry {
		e := entry(volume)
		e.Requests[0].PV.Annotations = map[string]string{"x": strings.Repeat("x", padding)}
		return e
	}
	s := newShard(2, shardName(2))
	put := func(volume, owner string, padding int) error {
		e := padded(volume, padding)
		e.Claim.Namespace, e.Requests[0].PV.Spec.StorageClassName = owner, owner
		stored, err := newCodec("").encode(&e)
		if err == nil {
			_, err = s.put(annotationKey(volume), stored, own)
		}
		return err
	}
	wantError(t, put("pvc-1", "a", inflation*room), ErrTooLarge)
	total, count := 0, 0
	fill := func(owner func() string, want error) {
		for err := error(nil); err == nil; count++ {
			if err = put(fmt.Sprint("pvc-", count), owner(), 100_000); err != nil {
				wantError(t, err, want)
			}
		}
	}
	fill(func() string { return "a" }, ErrShare)
	if all := (room - reserve) * inflation / 100_000; count > all/2+1 {
		t.Errorf("a namespace takes the room of %d of %d entries", count-1, all)
	}
	fill(func() string { return fmt.Sprint(count) }, ErrFull)
	for _, it := range s.want {
		total += it.content
	}
	if count < 10 || total > maxContent {
		t.Errorf("%d entries have %d bytes before compression", count, total)
	}
}
