package backend

import (
	"maps"
	"slices"
	"time"
)

// AccessMode says from how many places a volume may be used at once. The values are the names of the CSI enumeration
// VolumeCapability.AccessMode.Mode.
type AccessMode string

const (
	SingleNodeWriter       AccessMode = "SINGLE_NODE_WRITER"
	SingleNodeReaderOnly   AccessMode = "SINGLE_NODE_READER_ONLY"
	SingleNodeSingleWriter AccessMode = "SINGLE_NODE_SINGLE_WRITER"
	SingleNodeMultiWriter  AccessMode = "SINGLE_NODE_MULTI_WRITER"
	MultiNodeReaderOnly    AccessMode = "MULTI_NODE_READER_ONLY"
	MultiNodeSingleWriter  AccessMode = "MULTI_NODE_SINGLE_WRITER"
	MultiNodeMultiWriter   AccessMode = "MULTI_NODE_MULTI_WRITER"
)

// ManyNodes reports whether the mode allows more than one node at a time.
func (m AccessMode) ManyNodes() bool {
	return m == MultiNodeReaderOnly || m == MultiNodeSingleWriter || m == MultiNodeMultiWriter
}

// ManyTargets reports whether the mode allows more than one target path on one node (CSI spec, tables under
// NodePublishVolume).
func (m AccessMode) ManyTargets() bool { return m.ManyNodes() || m == SingleNodeMultiWriter }

// Access is how a volume is, or is to be, used. Two uses are the same if their Access is equal.
type Access struct {
	Mode   AccessMode `json:"mode"`
	Block  bool       `json:"block,omitempty"`
	FSType string     `json:"fsType,omitempty"`
	// Options is a digest of the mount flags and the mount group: the spec calls mount flags sensitive, so they are
	// compared but not kept.
	Options string `json:"options,omitempty"`
}

// Source is what a volume was made from. At most one field is set.
type Source struct {
	SnapshotID string `json:"snapshotID,omitempty"`
	VolumeID   string `json:"volumeID,omitempty"`
}

// Attachment is a volume made available to a node by ControllerPublishVolume.
type Attachment struct {
	Access   Access `json:"access"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Mount is a volume staged or published at a path of a node.
type Mount struct {
	// Node is where the path is. Tables of the specification about several paths are about those of one node.
	Node     string `json:"node,omitempty"`
	Access   Access `json:"access"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Context is a digest of publish and volume context, to distinguish a repeated call from a different one.
	Context string `json:"context,omitempty"`
}

// Volume is one volume and everything that uses it.
type Volume struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Bytes is the capacity.
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created"`
	// Parameters are those of CreateVolume, and Mutable those that ControllerModifyVolume may change. CreatedMutable
	// keeps what Mutable was at creation, because a repeated CreateVolume is compared with that.
	Parameters     map[string]string `json:"parameters,omitempty"`
	Mutable        map[string]string `json:"mutable,omitempty"`
	CreatedMutable map[string]string `json:"createdMutable,omitempty"`
	// Access lists the uses the volume was created for. Empty for a volume that was there before the driver.
	Access   []Access            `json:"access,omitempty"`
	Context  map[string]string   `json:"context,omitempty"`
	Source   Source              `json:"source,omitzero"`
	Topology []map[string]string `json:"topology,omitempty"`
	// Attachments by node id; Staged and Published by path.
	Attachments map[string]Attachment `json:"attachments,omitempty"`
	Staged      map[string]Mount      `json:"staged,omitempty"`
	Published   map[string]Mount      `json:"published,omitempty"`
}

// Nodes lists the nodes that the volume is attached to, sorted.
func (v Volume) Nodes() []string { return slices.Sorted(maps.Keys(v.Attachments)) }

// Used reports whether the volume is attached, staged or published anywhere.
func (v Volume) Used() bool { return len(v.Attachments)+len(v.Staged)+len(v.Published) > 0 }

// Serves reports whether the volume was created for this kind of access: a file system or a block device.
func (v Volume) Serves(a Access) bool {
	return len(v.Access) == 0 || slices.ContainsFunc(v.Access, func(have Access) bool { return have.Block == a.Block })
}

func (v Volume) clone() Volume {
	v.Parameters, v.Mutable, v.CreatedMutable = maps.Clone(v.Parameters), maps.Clone(v.Mutable),
		maps.Clone(v.CreatedMutable)
	v.Access, v.Context, v.Topology = slices.Clone(v.Access), maps.Clone(v.Context), cloneTopology(v.Topology)
	v.Attachments, v.Staged, v.Published = maps.Clone(v.Attachments), maps.Clone(v.Staged), maps.Clone(v.Published)
	return v
}

// Snapshot is a point-in-time copy of a volume. It does not depend on its volume: the volume may go first.
type Snapshot struct {
	ID         string              `json:"id"`
	Name       string              `json:"name"`
	VolumeID   string              `json:"volumeID"`
	Bytes      int64               `json:"bytes"`
	Created    time.Time           `json:"created"`
	Parameters map[string]string   `json:"parameters,omitempty"`
	Topology   []map[string]string `json:"topology,omitempty"`
}

func (s Snapshot) clone() Snapshot {
	s.Parameters, s.Topology = maps.Clone(s.Parameters), cloneTopology(s.Topology)
	return s
}

func cloneTopology(in []map[string]string) []map[string]string {
	out := slices.Clone(in)
	for i := range out {
		out[i] = maps.Clone(out[i])
	}
	return out
}
