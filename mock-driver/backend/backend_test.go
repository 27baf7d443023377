package backend_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend/disk"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend/memory"
)

// forEachStore runs a test with a backend on every store, because all have the same contract.
func forEachStore(t *testing.T, name string, c backend.Config, test func(*testing.T, *backend.Backend)) {
	t.Helper()
	t.Run(path.Join(name, "memory"), func(t *testing.T) {
		test(t, must(backend.New(memory.Store[backend.Volume]{}, memory.Store[backend.Snapshot]{}, c)))
	})
	t.Run(path.Join(name, "disk"), func(t *testing.T) {
		dir := t.TempDir()
		test(t, must(backend.New(disk.Volumes(dir), disk.Snapshots(dir), c)))
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func now() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }

func mount() backend.Access { return backend.Access{Mode: backend.SingleNodeWriter} }

func request(name string) backend.VolumeRequest {
	return backend.VolumeRequest{Name: name, Access: []backend.Access{mount()}}
}

func TestCreateVolumeIdempotency(t *testing.T) {
	base := backend.VolumeRequest{
		Name: "pvc-1", Required: 2 << 30, Limit: 4 << 30, Parameters: map[string]string{"type": "ssd"},
		Mutable: map[string]string{"iops": "10"},
		Access:  []backend.Access{mount()},
	}
	for name, c := range map[string]struct {
		change func(*backend.VolumeRequest)
		want   error
	}{
		"the same request gets the same volume": {change: func(*backend.VolumeRequest) {}},
		"a range that the volume lies in is compatible": {
			change: func(r *backend.VolumeRequest) { r.Required, r.Limit = 1<<30, 2<<30 }},
		"another access mode of the same type is as well": {
			change: func(r *backend.VolumeRequest) { r.Access[0].Mode = backend.MultiNodeMultiWriter }},
		"a larger size is not": {change: func(r *backend.VolumeRequest) { r.Required = 3 << 30 },
			want: backend.ErrIncompatible},
		"a lower limit is not": {change: func(r *backend.VolumeRequest) { r.Required, r.Limit = 0, 1<<30 },
			want: backend.ErrIncompatible},
		"other parameters are not": {change: func(r *backend.VolumeRequest) { r.Parameters = nil },
			want: backend.ErrIncompatible},
		"other mutable parameters are not": {change: func(r *backend.VolumeRequest) { r.Mutable = nil },
			want: backend.ErrIncompatible},
		"another access type is not": {change: func(r *backend.VolumeRequest) { r.Access[0].Block = true },
			want: backend.ErrIncompatible},
		"a content source is not": {change: func(r *backend.VolumeRequest) { r.Source.VolumeID = "x" },
			want: backend.ErrIncompatible},
	} {
		forEachStore(t, name, backend.Config{}, func(t *testing.T, b *backend.Backend) {
			first, created, err := b.CreateVolume(base, now())
			if err != nil || !created || first.Bytes != 2<<30 {
				t.Fatalf("create: got %+v, %v, %v", first, created, err)
			}
			again := base
			again.Access = slices.Clone(base.Access)
			c.change(&again)
			got, created, err := b.CreateVolume(again, now())
			if !errors.Is(err, c.want) || created {
				t.Fatalf("create again: got %v, %v, want %v", created, err, c.want)
			}
			if c.want == nil && got.ID != first.ID {
				t.Errorf("create again: got volume %q, want %q", got.ID, first.ID)
			}
			if left := b.Available(); left != 1<<50-2<<30 {
				t.Errorf("available: got %d, want one volume to be gone", left)
			}
		})
	}
}

func TestCreateVolumeAfterModify(t *testing.T) {
	forEachStore(t, "", backend.Config{}, func(t *testing.T, b *backend.Backend) {
		r := request("pvc-1")
		r.Mutable = map[string]string{"iops": "10"}
		v, _, err := b.CreateVolume(r, now())
		if err != nil {
			t.Fatal(err)
		}
		for _, changed := range []bool{true, false} {
			got, did, err := b.Modify(v.ID, map[string]string{"tier": "gold"})
			if err != nil || did != changed || !maps.Equal(got.Mutable, map[string]string{"iops": "10", "tier": "gold"}) {
				t.Errorf("modify: got %v, %v, %v", got.Mutable, did, err)
			}
		}
		if again, _, err := b.CreateVolume(r, now()); err != nil || again.ID != v.ID {
			t.Errorf("create again: got %q, %v", again.ID, err)
		}
	})
}

func TestSizes(t *testing.T) {
	limits := backend.Config{CapacityBytes: 10 << 30, MaxVolumeBytes: 6 << 30}
	for name, c := range map[string]struct {
		required, limit, want int64
		err                   error
	}{
		"no size":                           {want: 1 << 30},
		"a limit alone":                     {limit: 1 << 20, want: 1 << 20},
		"an exact size":                     {required: 5, limit: 5, want: 5},
		"more than the largest volume":      {required: 7 << 30, err: backend.ErrOutOfRange},
		"required above the limit":          {required: 2, limit: 1, err: backend.ErrOutOfRange},
		"negative":                          {required: -1, err: backend.ErrInvalid},
		"negative limit":                    {limit: -1, err: backend.ErrInvalid},
		"the largest number there is":       {required: math.MaxInt64, err: backend.ErrOutOfRange},
		"all that is left after the filler": {required: 5 << 30, want: 5 << 30},
		"a byte more than is left":          {required: 5<<30 + 1, err: backend.ErrExhausted},
	} {
		forEachStore(t, name, limits, func(t *testing.T, b *backend.Backend) {
			filler := request("filler")
			filler.Required = 5 << 30
			if _, _, err := b.CreateVolume(filler, now()); err != nil {
				t.Fatal(err)
			}
			r := request("pvc-1")
			r.Required, r.Limit = c.required, c.limit
			v, _, err := b.CreateVolume(r, now())
			if !errors.Is(err, c.err) || v.Bytes != c.want {
				t.Errorf("got %d bytes, %v, want %d, %v", v.Bytes, err, c.want, c.err)
			}
		})
	}
}

func TestDeleteVolume(t *testing.T) {
	attach := func(b *backend.Backend, id string) error {
		_, _, err := b.Attach(id, "n1", backend.Attachment{Access: mount()})
		return err
	}
	publish := func(b *backend.Backend, id string) error {
		_, _, err := b.Publish(id, "/target", "", backend.Mount{Access: mount()})
		return err
	}
	snapshot := func(b *backend.Backend, id string) error {
		_, _, err := b.CreateSnapshot(backend.SnapshotRequest{Name: "s", VolumeID: id}, now())
		return err
	}
	nothing := func(*backend.Backend, string) error { return nil }
	for name, c := range map[string]struct {
		config backend.Config
		before func(*backend.Backend, string) error
		want   error
	}{
		"an unused volume goes":                 {before: nothing},
		"an attached volume stays":              {before: attach, want: backend.ErrInUse},
		"an attached volume goes, if so wished": {config: backend.Config{DeleteUsed: true}, before: attach},
		"a published volume stays":              {before: publish, want: backend.ErrInUse},
		"a volume goes and leaves its snapshot": {before: snapshot},
		"a volume with snapshots stays, if so wished": {config: backend.Config{KeepSnapshotted: true}, before: snapshot,
			want: backend.ErrInUse},
	} {
		c.config.Nodes = []string{"n1"}
		forEachStore(t, name, c.config, func(t *testing.T, b *backend.Backend) {
			v, _, err := b.CreateVolume(request("pvc-1"), now())
			if err != nil {
				t.Fatal(err)
			}
			if err := c.before(b, v.ID); err != nil {
				t.Fatal(err)
			}
			_, deleted, err := b.DeleteVolume(v.ID)
			if !errors.Is(err, c.want) || deleted != (c.want == nil) {
				t.Fatalf("delete: got %v, %v, want %v", deleted, err, c.want)
			}
			if _, err := b.Volume(v.ID); (err == nil) != (c.want != nil) {
				t.Errorf("look afterwards: got %v", err)
			}
			if c.want != nil {
				return
			}
			if _, deleted, err := b.DeleteVolume(v.ID); deleted || err != nil {
				t.Errorf("delete again: got %v, %v, want nothing to happen", deleted, err)
			}
			if left := b.Available(); left != 1<<50 {
				t.Errorf("available: got %d, want everything", left)
			}
			if again, _, err := b.CreateVolume(request("pvc-1"), now()); err != nil || again.ID == v.ID {
				t.Errorf("create again: got id %q, %v, want an id that was never used", again.ID, err)
			}
		})
	}
}

func TestSnapshotsAndClones(t *testing.T) {
	forEachStore(t, "", backend.Config{}, func(t *testing.T, b *backend.Backend) {
		big := request("big")
		big.Required = 3 << 30
		v, _, _ := b.CreateVolume(big, now())
		other, _, _ := b.CreateVolume(request("other"), now())
		s, taken, err := b.CreateSnapshot(backend.SnapshotRequest{Name: "snap", VolumeID: v.ID}, now())
		if err != nil || !taken || s.Bytes != 3<<30 {
			t.Fatalf("take: got %+v, %v, %v", s, taken, err)
		}
		if again, taken, err := b.CreateSnapshot(backend.SnapshotRequest{Name: "snap", VolumeID: v.ID},
			now()); err != nil || taken || again.ID != s.ID {
			t.Errorf("take again: got %+v, %v, %v", again, taken, err)
		}
		if _, _, err := b.CreateSnapshot(backend.SnapshotRequest{Name: "snap", VolumeID: other.ID}, now()); !errors.Is(err,
			backend.ErrIncompatible) {
			t.Errorf("take of another volume: got %v", err)
		}
		if _, _, err := b.DeleteVolume(v.ID); err != nil {
			t.Fatal(err)
		}
		restored := request("restored")
		restored.Source.SnapshotID = s.ID
		if got, _, err := b.CreateVolume(restored, now()); err != nil || got.Bytes != 3<<30 || got.Source != restored.Source {
			t.Errorf("restore: got %+v, %v", got, err)
		}
		small := request("small")
		small.Required, small.Source = 1<<30, restored.Source
		if _, _, err := b.CreateVolume(small, now()); !errors.Is(err, backend.ErrOutOfRange) {
			t.Errorf("restore into less: got %v", err)
		}
		lost := request("lost")
		lost.Source.VolumeID = v.ID
		if _, _, err := b.CreateVolume(lost, now()); !errors.Is(err, backend.ErrVolumeNotFound) {
			t.Errorf("clone of a deleted volume: got %v", err)
		}
		for _, want := range []bool{true, false} {
			if _, deleted, err := b.DeleteSnapshot(s.ID); err != nil || deleted != want {
				t.Errorf("delete snapshot: got %v, %v, want %v", deleted, err, want)
			}
		}
	})
}

func TestExpand(t *testing.T) {
	forEachStore(t, "", backend.Config{CapacityBytes: 4 << 30}, func(t *testing.T, b *backend.Backend) {
		v, _, _ := b.CreateVolume(request("pvc-1"), now())
		for _, step := range []struct {
			required, limit, want int64
			grown                 bool
			err                   error
		}{
			{required: 2 << 30, want: 2 << 30, grown: true},
			{required: 2 << 30, want: 2 << 30},
			{required: 1 << 30, want: 2 << 30},
			{limit: 1 << 30, want: 2 << 30, err: backend.ErrOutOfRange},
			{required: 5 << 30, want: 2 << 30, err: backend.ErrExhausted},
			{required: 4 << 30, want: 4 << 30, grown: true},
		} {
			_, grown, err := b.Expand(v.ID, step.required, step.limit, false)
			got, _ := b.Volume(v.ID)
			if grown != step.grown || !errors.Is(err, step.err) || got.Bytes != step.want {
				t.Errorf("expand %+v: got %d bytes, %v, %v", step, got.Bytes, grown, err)
			}
		}
		if left := b.Available(); left != 0 {
			t.Errorf("available: got %d, want nothing", left)
		}
	})
}

func TestRecordsAreCopies(t *testing.T) {
	forEachStore(t, "", backend.Config{}, func(t *testing.T, b *backend.Backend) {
		r := request("pvc-1")
		r.Parameters = map[string]string{"type": "ssd"}
		v, _, _ := b.CreateVolume(r, now())
		want, _ := b.Volume(v.ID)
		r.Parameters["type"] = "tape"
		v.Parameters["type"] = "tape"
		page, _ := b.Volumes("", 0)
		page[0].Parameters["type"] = "tape"
		page[0].Access[0].Block = true
		if got, _ := b.Volume(v.ID); !cmp.Equal(got, want) {
			t.Errorf("callers changed the volume: %s", cmp.Diff(want, got))
		}
	})
}

// Names may be any text, but the ids derived from them must be safe and unique directory names.
func TestIDs(t *testing.T) {
	forEachStore(t, "", backend.Config{}, func(t *testing.T, b *backend.Backend) {
		seen := map[string]bool{}
		for i, name := range []string{
			"pvc-0f8d", "..", ".", "/", "../../etc/passwd", "a/b", "-rf", "ä–ö 漢字", strings.Repeat("x", 128),
			strings.Repeat("漢", 42), "CON", "a\\b", "%2e%2e",
			".new-x", ".gone-x",
		} {
			v, _, err := b.CreateVolume(request(name), now())
			if err != nil || !backend.ValidID(v.ID) || strings.HasPrefix(v.ID, ".") || seen[v.ID] || len(v.ID) > 128 {
				t.Errorf("%d: name %q: got id %q, %v", i, name, v.ID, err)
			}
			seen[v.ID] = true
		}
		for _, id := range []string{"", ".", "..", "../volumes", "a/b", "\x00", ".new-x", "*", strings.Repeat("x", 5000)} {
			if backend.ValidID(id) {
				t.Errorf("id %q is held for valid", id)
			}
			if _, deleted, err := b.DeleteVolume(id); deleted || err != nil {
				t.Errorf("delete %q: got %v, %v", id, deleted, err)
			}
			if err := b.ImportVolume(id, 1, now()); !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("import %q: got %v", id, err)
			}
		}
		if page, _ := b.Volumes("", 0); len(page) != len(seen) {
			t.Errorf("got %d volumes, want %d", len(page), len(seen))
		}
	})
}

func TestMaxVolumes(t *testing.T) {
	forEachStore(t, "", backend.Config{MaxVolumes: 2}, func(t *testing.T, b *backend.Backend) {
		for i, want := range []error{nil, nil, backend.ErrExhausted} {
			if _, _, err := b.CreateVolume(request(fmt.Sprint("pvc-", i)), now()); !errors.Is(err, want) {
				t.Errorf("volume %d: got %v, want %v", i, err, want)
			}
		}
	})
}

func TestImportVolume(t *testing.T) {
	forEachStore(t, "", backend.Config{}, func(t *testing.T, b *backend.Backend) {
		for range 2 {
			if err := b.ImportVolume("static-1", 5, now()); err != nil {
				t.Fatal(err)
			}
		}
		if v, err := b.Volume("static-1"); err != nil || v.Bytes != 5 || !v.Serves(backend.Access{Block: true}) {
			t.Errorf("got %+v, %v", v, err)
		}
	})
}
