package csidriver

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

const (
	clones  = csi.ControllerServiceCapability_RPC_CLONE_VOLUME
	attachs = csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME
)

// succeeds repeats a call until it succeeds.
func succeeds(t *testing.T, call func(context.Context) error) {
	t.Helper()
	for err := call(t.Context()); err != nil; err = call(t.Context()) {
		if errclass.Of(err) != errclass.Uncertain {
			t.Fatal(err)
		}
	}
}

// deletes returns a function that calls DeleteVolume.
func deletes(d *Driver) func(context.Context) error {
	return func(ctx context.Context) error { return d.DeleteVolume(ctx, "vol-1", nil) }
}

func TestFactsAfterReplacement(t *testing.T) {
	socket := socketPath(t)
	stop := serve(t, socket, &fakeDriver{controller: true})
	d := connect(t, socket)
	var judged []Facts
	d.Require(func(_ context.Context, before, after Facts) error {
		judged = append(judged, before, after)
		return nil
	})
	if d.Has(clones) {
		t.Fatal("it clones before it is replaced")
	}
	stop()
	serve(t, socket, &fakeDriver{controller: true, controllers: []csi.ControllerServiceCapability_RPC_Type{clones}})
	// A call succeeds only once the facts are known.
	succeeds(t, deletes(d))
	if !d.Has(clones) || d.Err() != nil {
		t.Errorf("after it was replaced: %+v, %v", d.Facts(), d.Err())
	}
	if len(judged) != 2 || judged[0].Controller[clones] || !judged[1].Controller[clones] {
		t.Errorf("judged: %+v", judged)
	}
}

func TestUnfitDriverGetsNoCalls(t *testing.T) {
	unfit := errors.New("it attaches")
	for name, next := range map[string]*fakeDriver{
		"another name": {controller: true, name: "other.csi.example.com"},
		"no name":      {controller: true, name: "-"},
		"other wiring": {controller: true, controllers: []csi.ControllerServiceCapability_RPC_Type{attachs}},
	} {
		t.Run(name, func(t *testing.T) {
			socket := socketPath(t)
			stop := serve(t, socket, &fakeDriver{controller: true})
			d := connect(t, socket)
			d.Require(func(_ context.Context, _, after Facts) error {
				if after.Controller[attachs] {
					return unfit
				}
				return nil
			})
			stop()
			serve(t, socket, next)
			<-d.Replaced()
			if err := d.Err(); !errors.Is(err, ErrReplaced) || next.name == "" && !errors.Is(err, unfit) ||
				!strings.Contains(err.Error(), next.name) {
				t.Errorf("Err = %v", err)
			}
			err := d.DeleteVolume(t.Context(), "vol-1", nil)
			if errclass.Of(err) != errclass.Uncertain || !strings.Contains(err.Error(), ErrReplaced.Error()) {
				t.Errorf("DeleteVolume = %v", err)
			}
			_, err = d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "volume"}, nil)
			if errclass.Of(err) != errclass.Uncertain {
				t.Errorf("CreateVolume = %v", err)
			}
			if _, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{}); err == nil {
				t.Error("it is asked for its volumes")
			}
			if _, err := d.GetCapacity(t.Context(), &csi.GetCapacityRequest{}); err == nil {
				t.Error("it is asked for its capacity")
			}
			if err := d.Refresh(t.Context()); !errors.Is(err, ErrReplaced) {
				t.Errorf("Refresh = %v", err)
			}
			next.mu.Lock()
			defer next.mu.Unlock()
			if next.deleted != nil || next.created != nil {
				t.Errorf("the other driver was called: %v, %v", next.deleted, next.created)
			}
			if d.Name() != "disk.csi.example.com" {
				t.Errorf("the name is %q now", d.Name())
			}
		})
	}
}

func TestFirstCallAfterLossWaitsForFacts(t *testing.T) {
	socket := socketPath(t)
	stop := serve(t, socket, &fakeDriver{controller: true})
	d := connect(t, socket)
	stop()
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	next := &fakeDriver{controller: true, introduced: func() {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-answer
	}}
	serve(t, socket, next)
	<-asked
	if err := d.DeleteVolume(t.Context(), "vol-1", nil); errclass.Of(err) != errclass.Uncertain {
		t.Errorf("DeleteVolume = %v", err)
	}
	if err := d.Probe(t.Context()); err == nil {
		t.Error("a driver that is not known yet is ready")
	}
	next.mu.Lock()
	if next.deleted != nil {
		t.Error("the driver was called before it returned its name")
	}
	next.mu.Unlock()
	close(answer)
	succeeds(t, deletes(d))
}

func TestReplacementWhileGatheringFacts(t *testing.T) {
	socket := socketPath(t)
	stop := serve(t, socket, &fakeDriver{controller: true})
	d := connect(t, socket)
	stop()
	gone := make(chan struct{})
	var end func()
	second := &fakeDriver{controller: true, introduced: func() { <-gone }}
	end = serve(t, socket, second)
	go func() { close(gone); end() }()
	<-gone
	end()
	serve(t, socket, &fakeDriver{controller: true, controllers: []csi.ControllerServiceCapability_RPC_Type{clones}})
	succeeds(t, deletes(d))
	if !d.Has(clones) {
		t.Errorf("the facts are those of a driver that is gone: %+v", d.Facts())
	}
}

func TestSegmentsAfterReplacement(t *testing.T) {
	at := func(node string) *fakeDriver {
		return &fakeDriver{topology: true, place: func() (*csi.NodeGetInfoResponse, error) {
			return &csi.NodeGetInfoResponse{NodeId: node, AccessibleTopology: &csi.Topology{
				Segments: map[string]string{"example.com/node": node}}}, nil
		}}
	}
	socket := socketPath(t)
	stop := serve(t, socket, at("n1"))
	d := connect(t, socket)
	judged := 0
	d.Require(func(context.Context, Facts, Facts) error { judged++; return nil })
	if place, err := d.Segments(t.Context()); err != nil || place["example.com/node"] != "n1" {
		t.Fatalf("%v, %v", place, err)
	}
	if err := d.Refresh(t.Context()); err != nil || judged > 0 {
		t.Errorf("%v; the driver that was there before was judged %d times", err, judged)
	}
	stop()
	serve(t, socket, at("n2"))
	succeeds(t, func(ctx context.Context) error { return d.Probe(ctx) })
	if place := d.Facts().Segments["example.com/node"]; place != "n2" {
		t.Errorf("the place is %q", place)
	}
	if judged != 1 {
		t.Errorf("another driver was judged %d times", judged)
	}
}
