package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
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
		known[fmt.Sprintf("%q", r)] = true // which sorts the keys
	}
	for _, p := range preferred {
		if !known[fmt.Sprintf("%q", p)] {
			return nil, invalid("accessibility_requirements: the preferred topology %v is not among the requisite ones", p)
		}
	}
	return slices.Concat(preferred, requisite), nil
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

// Size limits in bytes of the specification, section "Size Limits".
const (
	maxString = 128
	maxMap    = 4 << 10
)

// required returns an error if a field is empty.
func required(field, value string) error {
	if value == "" {
		return invalid("%s is required", field)
	}
	return nil
}

// checkName applies the limits of CreateVolumeRequest.name.
func checkName(name string) error {
	switch {
	case len(name) > maxString:
		return invalid("name has %d bytes, the limit is %d", len(name), maxString)
	case strings.ContainsFunc(name, bannedInName):
		return invalid("name contains a control character")
	}
	return required("name", name)
}

func bannedInName(r rune) bool {
	return r <= 0x08 || r == 0x0b || r == 0x0c || r >= 0x0e && r <= 0x1f || r >= 0x7f && r <= 0x9f
}

func checkMap(field string, m map[string]string) error {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
	}
	if size > maxMap {
		return invalid("%s has %d bytes, the limit is %d", field, size, maxMap)
	}
	return nil
}

func checkPath(field, path string) error {
	if path != "" && !filepath.IsAbs(path) {
		return invalid("%s %q is not an absolute path", field, path)
	}
	return required(field, path)
}

// checkMutable accepts the driver's mutable parameters: tier, iops, throughput and health.
func checkMutable(m map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value := m[key]
		switch key {
		case "tier":
			if value == "" {
				return invalid("mutable parameter tier is empty")
			}
		case "iops", "throughput":
			if n, err := strconv.ParseInt(value, 10, 64); err != nil || n <= 0 {
				return invalid("mutable parameter %s: %q is not a positive number", key, value)
			}
		case healthParameter:
			if _, known := healthOf(value); !known {
				return invalid("mutable parameter %s: %q is not one of healthy, degraded, inaccessible, data-loss", key, value)
			}
		default:
			return invalid("mutable parameter %q is not known: want tier, iops, throughput or %s", key, healthParameter)
		}
	}
	return checkMap("mutable_parameters", m)
}

// accessList converts the volume capabilities of a request, which must have at least one.
func accessList(caps []*csi.VolumeCapability, multiWriter bool) ([]backend.Access, error) {
	if len(caps) == 0 {
		return nil, invalid("volume_capabilities are required")
	}
	list := make([]backend.Access, len(caps))
	for i, c := range caps {
		var err error
		if list[i], err = access(c, multiWriter); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// access converts a volume capability, where multiWriter means that the service has the SINGLE_NODE_MULTI_WRITER
// capability, which two access modes require.
func access(c *csi.VolumeCapability, multiWriter bool) (backend.Access, error) {
	if c == nil {
		return backend.Access{}, invalid("volume_capability is required")
	}
	a := backend.Access{Mode: backend.AccessMode(c.GetAccessMode().GetMode().String())}
	switch a.Mode {
	case backend.SingleNodeWriter, backend.SingleNodeReaderOnly,
		backend.MultiNodeReaderOnly, backend.MultiNodeSingleWriter, backend.MultiNodeMultiWriter:
	case backend.SingleNodeSingleWriter, backend.SingleNodeMultiWriter:
		if !multiWriter {
			return backend.Access{}, invalid("access mode %s needs the SINGLE_NODE_MULTI_WRITER capability", a.Mode)
		}
	default:
		return backend.Access{}, invalid("volume_capability.access_mode is required")
	}
	switch t := c.GetAccessType().(type) {
	case *csi.VolumeCapability_Block:
		a.Block = true
	case *csi.VolumeCapability_Mount:
		a.FSType = t.Mount.GetFsType()
		if flags, group := t.Mount.GetMountFlags(), t.Mount.GetVolumeMountGroup(); len(flags) > 0 || group != "" {
			a.Options = digest(append(slices.Clone(flags), "group="+group)...)
		}
	default:
		return backend.Access{}, invalid("volume_capability.access_type is required")
	}
	return a, nil
}

// digest returns a short hash that identifies values without revealing them.
func digest(values ...string) string {
	h := sha256.New()
	for _, v := range values {
		_, _ = fmt.Fprintf(h, "%d:%s", len(v), v) // A hash never fails.
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// digestMaps returns a digest that identifies maps, or "" if all maps are empty.
func digestMaps(list ...map[string]string) string {
	if !slices.ContainsFunc(list, func(m map[string]string) bool { return len(m) > 0 }) {
		return ""
	}
	return digest(fmt.Sprintf("%q", list))
}

// validDriverName checks the form of GetPluginInfoResponse.name: a domain name of at most 63 characters.
func validDriverName(name string) bool {
	alnum := func(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' }
	if len(name) == 0 || len(name) > 63 || !alnum(name[0]) || !alnum(name[len(name)-1]) {
		return false
	}
	for i := range len(name) {
		if !alnum(name[i]) && name[i] != '-' && name[i] != '.' {
			return false
		}
	}
	return true
}
