package csidriver

import (
	"errors"
	"maps"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestSegments(t *testing.T) {
	here := map[string]string{"example.com/node": "n1"}
	at := func(topology *csi.Topology) func() (*csi.NodeGetInfoResponse, error) {
		return func() (*csi.NodeGetInfoResponse, error) {
			return &csi.NodeGetInfoResponse{NodeId: "n1", AccessibleTopology: topology}, nil
		}
	}
	asked := 0
	cases := map[string]struct {
		driver *fakeDriver
		want   map[string]string
		err    error
	}{
		"the driver says where it is": {&fakeDriver{topology: true, place: at(&csi.Topology{Segments: here})}, here, nil},
		"it has no topology":          {&fakeDriver{place: at(&csi.Topology{Segments: here})}, nil, ErrNowhere},
		"it says nothing":             {&fakeDriver{topology: true, place: at(nil)}, nil, ErrNowhere},
		"it names no segment":         {&fakeDriver{topology: true, place: at(&csi.Topology{})}, nil, ErrNowhere},
		"it has no node service": {&fakeDriver{topology: true, place: func() (*csi.NodeGetInfoResponse,
			error) {
			return nil, status.Error(codes.Unimplemented, "no")
		}}, nil, ErrNowhere},
		"it answers when it is asked again": {&fakeDriver{topology: true, place: func() (*csi.NodeGetInfoResponse, error) {
			if asked++; asked == 1 {
				return nil, status.Error(codes.Unavailable, "not yet")
			}
			return at(&csi.Topology{Segments: here})()
		}}, here, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			socket := socketPath(t)
			serve(t, socket, c.driver)
			got, err := connect(t, socket).Segments(t.Context())
			if !maps.Equal(got, c.want) || !errors.Is(err, c.err) {
				t.Errorf("Segments = %v, %v", got, err)
			}
		})
	}
}
