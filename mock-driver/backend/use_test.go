package backend_test

import (
	"errors"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

func access(mode backend.AccessMode) backend.Access { return backend.Access{Mode: mode} }

func TestAttach(t *testing.T) {
	type attach struct {
		node     string
		mode     backend.AccessMode
		readOnly bool
		want     error
	}
	for name, steps := range map[string][]attach{
		"the same again": {{node: "n1", mode: backend.SingleNodeWriter}, {node: "n1", mode: backend.SingleNodeWriter}},
		"the same node in another way": {
			{node: "n1", mode: backend.SingleNodeWriter}, {node: "n1", mode: backend.SingleNodeWriter, readOnly: true,
				want: backend.ErrIncompatible}},
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
		t.Run(name, func(t *testing.T) {
			forEachStore(t, func(t *testing.T, open func(backend.Config) *backend.Backend) {
				b := open(backend.Config{Nodes: []string{"n1", "n2", "full"}, MaxVolumesPerNode: 1})
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
			t.Run(string(mode)+", "+name, func(t *testing.T) {
				forEachStore(t, func(t *testing.T, open func(backend.Config) *backend.Backend) {
					b := open(backend.Config{})
					v, _, _ := b.CreateVolume(request("pvc-1"), now())
					if _, changed, err := b.Publish(v.ID, "/one", "", backend.Mount{Access: access(mode)}); err != nil || !changed {
						t.Fatal(changed, err)
					}
					_, changed, err := b.Publish(v.ID, c.path, "", backend.Mount{Access: access(mode), ReadOnly: c.readOnly})
					if !errors.Is(err, c.want) || changed != c.changed {
						t.Errorf("got %v, %v, want %v, %v", changed, err, c.changed, c.want)
					}
				})
			})
		}
	}
}

// The tables about several paths apply to each node separately, because a node service does not know other nodes.
func TestNodesAreIndependent(t *testing.T) {
	forEachStore(t, func(t *testing.T, open func(backend.Config) *backend.Backend) {
		b := open(backend.Config{})
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
	forEachStore(t, func(t *testing.T, open func(backend.Config) *backend.Backend) {
		b := open(backend.Config{})
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
		t.Run(name, func(t *testing.T) {
			forEachStore(t, func(t *testing.T, open func(backend.Config) *backend.Backend) {
				b := open(backend.Config{Places: []backend.Place{{Segments: here}}})
				r := request("pvc-1")
				r.Places = c.places
				if _, _, err := b.CreateVolume(r, now()); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			})
		})
	}
}
