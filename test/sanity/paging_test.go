//go:build unix

package sanity_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// list is the common part of ListVolumes and ListSnapshots.
type list struct {
	driver *mockdriver.Driver
	// page returns the ids of one page and the token of the next.
	page func(ctx context.Context, token string, limit int32) (ids []string, next string, err error)
	// create makes a thing and returns its id; remove takes one away.
	create func(t *testing.T, name string) string
	remove func(t *testing.T, id string)
}

func lists(t *testing.T) map[string]list {
	volumes := volumeList(mockdriver.ForTest(t, mockdriver.Options{}))
	source := mockdriver.ForTest(t, mockdriver.Options{})
	snapshots := snapshotList(source, volumeList(source).create(t, "source"))
	return map[string]list{"ListVolumes": volumes, "ListSnapshots": snapshots}
}

func volumeList(d *mockdriver.Driver) list {
	c := d.Controller()
	return list{
		driver: d,
		page: func(ctx context.Context, token string, limit int32) ([]string, string, error) {
			r, err := c.ListVolumes(ctx, &csi.ListVolumesRequest{StartingToken: token, MaxEntries: limit})
			var ids []string
			for _, e := range r.GetEntries() {
				ids = append(ids, e.GetVolume().GetVolumeId())
			}
			return ids, r.GetNextToken(), err
		},
		create: func(t *testing.T, name string) string {
			t.Helper()
			r, err := c.CreateVolume(t.Context(),
				&csi.CreateVolumeRequest{Name: name, VolumeCapabilities: []*csi.VolumeCapability{mount()}})
			if err != nil {
				t.Fatal(err)
			}
			return r.GetVolume().GetVolumeId()
		},
		remove: func(t *testing.T, id string) {
			t.Helper()
			if _, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func snapshotList(d *mockdriver.Driver, source string) list {
	c := d.Controller()
	return list{
		driver: d,
		page: func(ctx context.Context, token string, limit int32) ([]string, string, error) {
			r, err := c.ListSnapshots(ctx, &csi.ListSnapshotsRequest{StartingToken: token, MaxEntries: limit,
				SourceVolumeId: source})
			var ids []string
			for _, e := range r.GetEntries() {
				ids = append(ids, e.GetSnapshot().GetSnapshotId())
			}
			return ids, r.GetNextToken(), err
		},
		create: func(t *testing.T, name string) string {
			t.Helper()
			r, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: source})
			if err != nil {
				t.Fatal(err)
			}
			return r.GetSnapshot().GetSnapshotId()
		},
		remove: func(t *testing.T, id string) {
			t.Helper()
			if _, err := c.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id}); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func mount() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
}

// all pages through a list. between is called after each page except the last, with the page's entries.
func (l list) all(t *testing.T, limit int32, between func(page int, ids []string)) []string {
	t.Helper()
	var seen []string
	for token, n := "", 0; ; n++ {
		ids, next, err := l.page(t.Context(), token, limit)
		if err != nil {
			t.Fatalf("page %d: %v", n, err)
		}
		if limit > 0 && len(ids) > int(limit) {
			t.Errorf("page %d has %d entries, want at most %d", n, len(ids), limit)
		}
		seen = append(seen, ids...)
		if next == "" {
			return seen
		}
		if limit > 0 && len(ids) != int(limit) {
			t.Errorf("page %d has %d entries and is not the last, want %d", n, len(ids), limit)
		}
		if between != nil {
			between(n, ids)
		}
		token = next
	}
}

func TestPagesContainEachEntryOnce(t *testing.T) {
	for name, l := range lists(t) {
		t.Run(name, func(t *testing.T) {
			want := map[string]bool{}
			for i := range 7 {
				want[l.create(t, fmt.Sprintf("thing-%d", i))] = true
			}
			for limit := range int32(9) {
				got := l.all(t, limit, nil)
				if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(maps.Keys(want))) {
					t.Errorf("max_entries %d: got %q, want %q", limit, got, slices.Sorted(maps.Keys(want)))
				}
			}
		})
	}
}

func TestForeignPageTokensAreRefused(t *testing.T) {
	for name, l := range lists(t) {
		t.Run(name, func(t *testing.T) {
			for i := range 3 {
				l.create(t, fmt.Sprintf("thing-%d", i))
			}
			_, token, err := l.page(t.Context(), "", 1)
			if err != nil || token == "" {
				t.Fatalf("first page: token %q, %v", token, err)
			}
			for _, wrong := range []string{"invalid-token", "0", "1", "-1", "../..", token + "x", token[1:],
				token[:len(token)-1], "\x00", token + token} {
				if _, _, err := l.page(t.Context(), wrong, 1); status.Code(err) != codes.Aborted {
					t.Errorf("token %q: got %v, want Aborted", wrong, err)
				}
			}
			if _, _, err := l.page(t.Context(), "", -1); status.Code(err) != codes.InvalidArgument {
				t.Errorf("max_entries -1: got %v, want InvalidArgument", err)
			}
			must.OK(t, l.driver.Restart(t.Context()))
			if ids, _, err := l.page(t.Context(), token, 0); err != nil || len(ids) != 2 {
				t.Errorf("token of the driver's predecessor: got %q, %v, want the 2 entries that are left", ids, err)
			}
		})
	}
}

func TestPageTokenOfAnotherList(t *testing.T) {
	d := mockdriver.ForTest(t, mockdriver.Options{})
	volumes := volumeList(d)
	snapshots := snapshotList(d, volumes.create(t, "volume-1"))
	volumes.create(t, "volume-2")
	_, token, err := volumes.page(t.Context(), "", 1)
	if err != nil || token == "" {
		t.Fatalf("first page: token %q, %v", token, err)
	}
	if _, _, err := snapshots.page(t.Context(), token, 1); status.Code(err) != codes.Aborted {
		t.Errorf("ListSnapshots with a token of ListVolumes: got %v, want Aborted", err)
	}
}

// Entries that exist from the first page to the last are listed exactly once, and a token stays valid when the entry
// that it was made from is gone.
func TestPagingDuringChanges(t *testing.T) {
	for name, l := range lists(t) {
		t.Run(name, func(t *testing.T) {
			stay := map[string]int{}
			for i := range 20 {
				stay[l.create(t, fmt.Sprintf("thing-%02d", i))] = 0
			}
			seen := l.all(t, 3, func(page int, ids []string) {
				l.create(t, fmt.Sprintf("early-%02d", page))
				l.create(t, fmt.Sprintf("thing-%02d-late", page))
				last := ids[len(ids)-1]
				l.remove(t, last)
				delete(stay, last)
			})
			for _, id := range seen {
				if _, stayed := stay[id]; stayed {
					stay[id]++
				}
			}
			for id, n := range stay {
				if n != 1 {
					t.Errorf("%s was listed %d times, want once", id, n)
				}
			}
			if len(stay) == 0 {
				t.Error("no entry stayed, so that nothing was tested")
			}
		})
	}
}

func TestSnapshotTopology(t *testing.T) {
	d := mockdriver.ForTest(t, mockdriver.Options{Profile: "topology",
		Args: []string{"--capabilities=SNAPSHOT_ACCESSIBILITY_CONSTRAINTS"}})
	info := must.Get(csi.NewNodeClient(d.Conn()).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{}))(t)
	here := info.GetAccessibleTopology()
	volume := volumeList(d).create(t, "volume")
	request := func(place *csi.Topology) *csi.CreateSnapshotRequest {
		return &csi.CreateSnapshotRequest{Name: "snapshot", SourceVolumeId: volume,
			AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{place}}}
	}
	elsewhere := &csi.Topology{Segments: map[string]string{"topology.mock.csi-reclaimer.io/zone": "zone-b"}}
	if _, err := d.Controller().CreateSnapshot(t.Context(),
		request(elsewhere)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("snapshot for another place: got %v, want ResourceExhausted", err)
	}
	answer := must.Get(d.Controller().CreateSnapshot(t.Context(), request(here)))(t)
	got := answer.GetSnapshot().GetAccessibleTopology()
	if len(got) != 1 || !proto.Equal(got[0], here) {
		t.Errorf("topology of the snapshot: got %v, want %v", got, here)
	}
}
