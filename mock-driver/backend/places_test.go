package backend_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend/disk"
)

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
		t.Run(name, func(t *testing.T) {
			forEachStore(t, func(t *testing.T, open func(backend.Config) *backend.Backend) {
				driver, got := open(twoZones()), ""
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
