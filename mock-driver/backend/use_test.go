package backend_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend/disk"
)

func access(mode backend.AccessMode) backend.Access { return backend.Access{Mode: mode} }

func TestAttach(t *testing.T) {
	type attach struct {
		node     string
		mode     backend.AccessMode
		readOnly bool
		want     error
	}
	limits := backend.Config{Nodes: []string{"n1", "n2", "full"}, MaxVolumesPerNode: 1}
	for name, steps := range map[string][]attach{
		"the same again": {{node: "n1", mode: backend.SingleNodeWriter}, {node: "n1", mode: backend.SingleNodeWriter}},
		"the same node in another way": {
			{node: "n1", mode: backend.SingleNodeWriter},
			{node: "n1", mode: backend.SingleNodeWriter, readOnly: true, want: backend.ErrIncompatible}},
		"a second node for a single-node mode": {
			{node: "n1", mode: backend.SingleNodeWriter}, {node: "n2", mode: backend.SingleNodeWriter, want: backend.ErrInUse}},
		"a second node for a shared mode": {
			{node: "n1", mode: backend.MultiNodeMultiWriter}, {node: "n2", mode: backend.MultiNodeMultiWriter}},
		"a second writer where there may be one": {
			{node: "n1", mode: backend.MultiNodeSingleWriter}, {node: "n2", mode: backend.MultiNodeSingleWriter,
				want: backend.ErrInUse},
			{node: "n2", mode: backend.MultiNodeSingleWriter, readOnly: true}},
		"a node that is not known": {{node: "n9", mode: backend.SingleNodeWriter, want: backend.ErrNodeNotFound}},
		"a full node":              {{node: "full", mode: backend.SingleNodeWriter, want: backend.ErrExhausted}},
	} {
		forEachStore(t, name, limits, func(t *testing.T, b *backend.Backend) {
			filler, _, _ := b.CreateVolume(request("filler"), now())
			if _, _, err := b.Attach(filler.ID, "full", backend.Attachment{Access: mount()}); err != nil {
				t.Fatal(err)
			}
			v, _, _ := b.CreateVolume(request("pvc-1"), now())
			for i, s := range steps {
				_, _, err := b.Attach(v.ID, s.node, backend.Attachment{Access: access(s.mode), ReadOnly: s.readOnly})
				if !errors.Is(err, s.want) {
					t.Errorf("step %d: got %v, want %v", i, err, s.want)
				}
			}
			for _, detached := range []bool{steps[0].want == nil, false} {
				if got, did, err := b.Detach(v.ID, ""); err != nil || did != detached || len(got.Attachments) > 0 {
					t.Errorf("detach from all: got %v, %v, %v", got.Attachments, did, err)
				}
			}
		})
	}
}

// The two tables under NodePublishVolume in the CSI specification.
func TestPublishTwice(t *testing.T) {
	for mode, many := range map[backend.AccessMode]bool{
		backend.SingleNodeWriter: false, backend.SingleNodeReaderOnly: false, backend.SingleNodeSingleWriter: false,
		backend.SingleNodeMultiWriter: true,
		backend.MultiNodeReaderOnly:   true, backend.MultiNodeSingleWriter: true, backend.MultiNodeMultiWriter: true,
	} {
		elsewhere := error(backend.ErrInUse)
		if many {
			elsewhere = nil
		}
		for name, c := range map[string]struct {
			path     string
			readOnly bool
			want     error
			changed  bool
		}{
			"same path, same arguments":     {path: "/one"},
			"same path, other arguments":    {path: "/one", readOnly: true, want: backend.ErrIncompatible},
			"another path, same arguments":  {path: "/two", want: elsewhere, changed: many},
			"another path, other arguments": {path: "/two", readOnly: true, want: elsewhere, changed: many},
		} {
			forEachStore(t, string(mode)+", "+name, backend.Config{}, func(t *testing.T, b *backend.Backend) {
				v, _, _ := b.CreateVolume(request("pvc-1"), now())
				if _, changed, err := b.Publish(v.ID, "/one", "", backend.Mount{Access: access(mode)}); err != nil || !changed {
					t.Fatal(changed, err)
				}
				_, changed, err := b.Publish(v.ID, c.path, "", backend.Mount{Access: access(mode), ReadOnly: c.readOnly})
				if !errors.Is(err, c.want) || changed != c.changed {
					t.Errorf("got %v, %v, want %v, %v", changed, err, c.changed, c.want)
				}
			})
		}
	}
}

// The tables about several paths apply to each node separately, because a node service does not know other nodes.
func TestNodesAreIndependent(t *testing.T) {
	forEachStore(t, "", backend.Config{}, func(t *testing.T, b *backend.Backend) {
		v, _, _ := b.CreateVolume(request("pvc-1"), now())
		on := func(node string) backend.Mount { return backend.Mount{Node: node, Access: mount()} }
		for _, node := range []string{"a", "b"} {
			if _, changed, err := b.Stage(v.ID, "/"+node+"/s", on(node)); err != nil || !changed {
				t.Fatal(changed, err)
			}
			if _, changed, err := b.Publish(v.ID, "/"+node+"/t", "/"+node+"/s", on(node)); err != nil || !changed {
				t.Fatal(changed, err)
			}
		}
		if _, _, err := b.Publish(v.ID, "/a/more", "/a/s", on("a")); !errors.Is(err, backend.ErrInUse) {
			t.Errorf("another path of a node: %v", err)
		}
		if _, _, err := b.Unpublish(v.ID, "/a/t"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Unstage(v.ID, "/b/s"); !errors.Is(err, backend.ErrInUse) {
			t.Errorf("unstage where it is published: %v", err)
		}
		if _, changed, err := b.Unstage(v.ID, "/a/s"); err != nil || !changed {
			t.Errorf("unstage where it is not: %v, %v", changed, err)
		}
	})
}

func TestStageAndPublish(t *testing.T) {
	forEachStore(t, "", backend.Config{}, func(t *testing.T, b *backend.Backend) {
		v, _, _ := b.CreateVolume(request("pvc-1"), now())
		m := backend.Mount{Access: mount()}
		steps := []struct {
			name    string
			do      func() (backend.Volume, bool, error)
			changed bool
			want    error
		}{
			{"publish before stage", func() (backend.Volume, bool, error) { return b.Publish(v.ID, "/t", "/s", m) }, false,
				backend.ErrNotPrepared},
			{"stage", func() (backend.Volume, bool, error) { return b.Stage(v.ID, "/s", m) }, true, nil},
			{"stage again", func() (backend.Volume, bool, error) { return b.Stage(v.ID, "/s", m) }, false, nil},
			{"stage in another way", func() (backend.Volume, bool, error) {
				return b.Stage(v.ID, "/s", backend.Mount{Access: mount(), Context: "x"})
			}, false, backend.ErrIncompatible},
			{"stage as block device", func() (backend.Volume, bool, error) {
				return b.Stage(v.ID, "/s2", backend.Mount{Access: backend.Access{Mode: backend.SingleNodeWriter, Block: true}})
			}, false, backend.ErrExceedsVolume},
			{"publish", func() (backend.Volume, bool, error) { return b.Publish(v.ID, "/t", "/s", m) }, true, nil},
			{"unstage while published", func() (backend.Volume, bool, error) { return b.Unstage(v.ID, "/s") }, false,
				backend.ErrInUse},
			{"unpublish elsewhere", func() (backend.Volume, bool, error) { return b.Unpublish(v.ID, "/other") }, false, nil},
			{"unpublish", func() (backend.Volume, bool, error) { return b.Unpublish(v.ID, "/t") }, true, nil},
			{"unpublish again", func() (backend.Volume, bool, error) { return b.Unpublish(v.ID, "/t") }, false, nil},
			{"unstage", func() (backend.Volume, bool, error) { return b.Unstage(v.ID, "/s") }, true, nil},
			{"unstage again", func() (backend.Volume, bool, error) { return b.Unstage(v.ID, "/s") }, false, nil},
			{"unstage of an unknown volume", func() (backend.Volume, bool, error) { return b.Unstage("unknown", "/s") }, false,
				backend.ErrVolumeNotFound},
		}
		for _, s := range steps {
			if _, changed, err := s.do(); changed != s.changed || !errors.Is(err, s.want) {
				t.Errorf("%s: got %v, %v, want %v, %v", s.name, changed, err, s.changed, s.want)
			}
		}
		if _, err := b.At(v.ID, "/s"); !errors.Is(err, backend.ErrNotHere) {
			t.Errorf("at: got %v", err)
		}
	})
}

func TestRequestedPlaces(t *testing.T) {
	here := map[string]string{"region": "r1", "zone": "a"}
	limits := backend.Config{Places: []backend.Place{{Segments: here}}}
	for name, c := range map[string]struct {
		places []map[string]string
		want   error
	}{
		"anywhere":               {},
		"here":                   {places: []map[string]string{here}},
		"in the region":          {places: []map[string]string{{"region": "r1"}}},
		"there, or here":         {places: []map[string]string{{"zone": "b"}, here}},
		"in another zone":        {places: []map[string]string{{"region": "r1", "zone": "b"}}, want: backend.ErrExhausted},
		"by a key of no meaning": {places: []map[string]string{{"rack": "7"}}, want: backend.ErrExhausted},
	} {
		forEachStore(t, name, limits, func(t *testing.T, b *backend.Backend) {
			r := request("pvc-1")
			r.Places = c.places
			if _, _, err := b.CreateVolume(r, now()); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func zone(name string) map[string]string { return map[string]string{"region": "r1", "zone": name} }

// twoZones has room for two volumes of 1 GiB in zone a, and for one in zone b.
func twoZones() backend.Config {
	return backend.Config{Places: []backend.Place{
		{Segments: zone("a"), CapacityBytes: 2 << 30},
		{Segments: zone("b"), CapacityBytes: 1 << 30},
	}}
}

func TestFirstPlaceWithRoom(t *testing.T) {
	a, b := zone("a"), zone("b")
	region := map[string]string{"region": "r1"}
	for name, c := range map[string]struct {
		// One request for each volume, in this order.
		asked [][]map[string]string
		want  string // the resulting zones, - for ErrExhausted
	}{
		"anywhere: the first place, then the next": {asked: [][]map[string]string{nil, nil, nil, nil}, want: "aab-"},
		"the order of the request decides": {asked: [][]map[string]string{{b, a}, {b, a}, {a, b}, {a, b}},
			want: "baa-"},
		"one place alone, which gets full": {asked: [][]map[string]string{{b}, {b}, {a}}, want: "b-a"},
		"a region is every place in it":    {asked: [][]map[string]string{{region}, {region}, {region}}, want: "aab"},
		"no such place":                    {asked: [][]map[string]string{{zone("c")}}, want: "-"},
	} {
		forEachStore(t, name, twoZones(), func(t *testing.T, driver *backend.Backend) {
			got := ""
			for i, places := range c.asked {
				r := request(fmt.Sprint("pvc-", i))
				r.Required, r.Places = 1<<30, places
				v, _, err := driver.CreateVolume(r, now())
				switch {
				case errors.Is(err, backend.ErrExhausted):
					got += "-"
				case err != nil || len(v.Topology) != 1:
					t.Fatalf("volume %d: %+v, %v", i, v, err)
				default:
					got += v.Topology[0]["zone"]
				}
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestPlaceCapacity(t *testing.T) {
	dir := t.TempDir()
	open := func() *backend.Backend { return must(backend.New(disk.Volumes(dir), disk.Snapshots(dir), twoZones())) }
	driver := open()
	left := func(a, b, all int64) {
		t.Helper()
		for place, want := range map[string]int64{"a": a << 20, "b": b << 20} {
			if got := driver.AvailableAt(zone(place)); got != want {
				t.Errorf("zone %s: %d bytes left, want %d", place, got, want)
			}
		}
		if got := driver.Available(); got != all<<20 {
			t.Errorf("%d bytes left in all, want %d", got, all<<20)
		}
		if got := driver.AvailableAt(zone("c")); got != 0 {
			t.Errorf("%d bytes left where nothing is", got)
		}
	}
	left(2048, 1024, 3072)
	r := request("pvc-1")
	r.Required, r.Places = 512<<20, []map[string]string{zone("b")}
	v, _, err := driver.CreateVolume(r, now())
	if err != nil {
		t.Fatal(err)
	}
	left(2048, 512, 2560)
	if _, _, err := driver.Expand(v.ID, 1025<<20, 0, false); !errors.Is(err, backend.ErrExhausted) {
		t.Errorf("grown beyond its place: %v", err)
	}
	if _, _, err := driver.Expand(v.ID, 1024<<20, 0, false); err != nil {
		t.Error(err)
	}
	left(2048, 0, 2048)
	s, _, err := driver.CreateSnapshot(backend.SnapshotRequest{Name: "s", VolumeID: v.ID,
		Places: []map[string]string{zone("b")}}, now())
	if err != nil || len(s.Topology) != 1 || s.Topology[0]["zone"] != "b" {
		t.Errorf("snapshot: got %+v, %v, want it where its volume is", s, err)
	}
	_, _, err = driver.CreateSnapshot(backend.SnapshotRequest{Name: "t", VolumeID: v.ID,
		Places: []map[string]string{zone("a")}}, now())
	if !errors.Is(err, backend.ErrExhausted) {
		t.Errorf("snapshot in another place than its volume: %v", err)
	}

	driver = open() // as after a restart
	left(2048, 0, 2048)
	if _, deleted, err := driver.DeleteVolume(v.ID); err != nil || !deleted {
		t.Fatal(deleted, err)
	}
	left(2048, 1024, 3072)
}

func TestPlaceCapacityWithinTotal(t *testing.T) {
	dir := t.TempDir()
	open := func(all, a int64) *backend.Backend {
		c := twoZones()
		c.CapacityBytes, c.Places[0].CapacityBytes = all<<20, a<<20
		return must(backend.New(disk.Volumes(dir), disk.Snapshots(dir), c))
	}
	expect := func(driver *backend.Backend, a, b, all int64) {
		t.Helper()
		if gotA, gotB, got := driver.AvailableAt(zone("a")), driver.AvailableAt(zone("b")),
			driver.Available(); gotA != a<<20 || gotB != b<<20 || got != all<<20 {
			t.Errorf("left: %d in zone a, %d in zone b, %d in all, want %d, %d, %d MiB", gotA, gotB, got, a, b, all)
		}
	}
	driver := open(1536, 2048)
	expect(driver, 1536, 1024, 1536)
	r := request("pvc-1")
	r.Required = 1 << 30
	if v, _, err := driver.CreateVolume(r, now()); err != nil || v.Topology[0]["zone"] != "a" {
		t.Fatal(v, err)
	}
	expect(driver, 512, 512, 512)
	// As after a restart with less capacity than used.
	expect(open(1536, 512), 0, 512, 512)
	expect(open(512, 2048), 0, 0, 0)
}

func TestInvalidPlaces(t *testing.T) {
	for want, places := range map[string][]backend.Place{
		"place 2: has no segments":               {{Segments: zone("a")}, {}},
		"place region=r1,zone=a: capacity -1":    {{Segments: zone("a"), CapacityBytes: -1}},
		"place region=r1,zone=a: is there twice": {{Segments: zone("a")}, {Segments: zone("a"), CapacityBytes: 5}},
		"":                                       {{Segments: zone("a")}, {Segments: zone("b")}},
	} {
		err := backend.Config{Places: places}.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
