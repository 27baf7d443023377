package server

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

func toVolume(v backend.Volume) *csi.Volume {
	return &csi.Volume{
		VolumeId: v.ID, CapacityBytes: v.Bytes, VolumeContext: v.Context,
		ContentSource: toSource(v.Source), AccessibleTopology: toTopologies(v.Topology),
	}
}

func toSource(s backend.Source) *csi.VolumeContentSource {
	switch {
	case s.SnapshotID != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.SnapshotID}}}
	case s.VolumeID != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: s.VolumeID}}}
	}
	return nil
}

func toSnapshot(s backend.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: s.ID, SourceVolumeId: s.VolumeID, SizeBytes: s.Bytes, CreationTime: timestamppb.New(s.Created),
		ReadyToUse: true, AccessibleTopology: toTopologies(s.Topology),
	}
}

func toTopologies(list []map[string]string) []*csi.Topology {
	var out []*csi.Topology
	for _, segments := range list {
		out = append(out, &csi.Topology{Segments: segments})
	}
	return out
}

// placesOf returns the allowed topologies of a volume in order of preference: the preferred and the requisite ones,
// or the preferred ones if no others are given. It returns an error if a preferred topology is not also requisite.
func placesOf(r *csi.TopologyRequirement) ([]map[string]string, error) {
	requisite, preferred := segmentsOf(r.GetRequisite()), segmentsOf(r.GetPreferred())
	if len(requisite) == 0 {
		return preferred, nil
	}
	// Both lists may have all nodes of a large cluster.
	known := make(map[string]bool, len(requisite))
	for _, r := range requisite {
		known[text(r)] = true
	}
	for _, p := range preferred {
		if !known[text(p)] {
			return nil, invalid("accessibility_requirements: the preferred topology %v is not among the requisite ones", p)
		}
	}
	return slices.Concat(preferred, requisite), nil
}

// text returns a text that is equal only for equal segments.
func text(segments map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		fmt.Fprintf(&b, "%q=%q,", key, segments[key])
	}
	return b.String()
}

func segmentsOf(list []*csi.Topology) []map[string]string {
	var out []map[string]string
	for _, t := range list {
		out = append(out, t.GetSegments())
	}
	return out
}

// firstPlace returns the most preferred topology, or nil if none is given.
func firstPlace(r *csi.TopologyRequirement) map[string]string {
	for _, list := range [][]*csi.Topology{r.GetPreferred(), r.GetRequisite()} {
		if len(list) > 0 {
			return list[0].GetSegments()
		}
	}
	return nil
}

// codeOf maps the backend's sentinels to the specification's codes. The backend meets gRPC only here.
func codeOf(err error) codes.Code {
	for _, m := range []struct {
		sentinel backend.Error
		code     codes.Code
	}{
		{backend.ErrVolumeNotFound, codes.NotFound},
		{backend.ErrSnapshotNotFound, codes.NotFound},
		{backend.ErrNodeNotFound, codes.NotFound},
		{backend.ErrNotHere, codes.NotFound},
		{backend.ErrIncompatible, codes.AlreadyExists},
		{backend.ErrInUse, codes.FailedPrecondition},
		{backend.ErrNotPrepared, codes.FailedPrecondition},
		{backend.ErrExceedsVolume, codes.FailedPrecondition},
		{backend.ErrOutOfRange, codes.OutOfRange},
		{backend.ErrExhausted, codes.ResourceExhausted},
		{backend.ErrInvalid, codes.InvalidArgument},
	} {
		if errors.Is(err, m.sentinel) {
			return m.code
		}
	}
	return codes.Internal
}

// asStatus returns err as a gRPC status, and leaves an existing status unchanged.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, is := status.FromError(err); is {
		return err
	}
	return status.Error(codeOf(err), err.Error())
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}
