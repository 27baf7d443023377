package backend

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// AccessMode limits the concurrent uses of a volume. Its values are the names of the CSI enumeration
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

// ManyNodes reports whether the mode allows several nodes at a time.
func (m AccessMode) ManyNodes() bool {
	return m == MultiNodeReaderOnly || m == MultiNodeSingleWriter || m == MultiNodeMultiWriter
}

// ManyTargets reports whether the mode allows several target paths on one node (CSI spec, tables under
// NodePublishVolume).
func (m AccessMode) ManyTargets() bool { return m.ManyNodes() || m == SingleNodeMultiWriter }

// Access is the requested or actual use of a volume. Two uses are the same if their Access is equal.
type Access struct {
	Mode   AccessMode `json:"mode"`
	Block  bool       `json:"block,omitempty"`
	FSType string     `json:"fsType,omitempty"`
	// Options is a digest of the mount flags and the mount group. The spec calls mount flags sensitive, so they are
	// compared but not stored.
	Options string `json:"options,omitempty"`
}

// Source is the content source of a volume, with at most one field set.
type Source struct {
	SnapshotID string `json:"snapshotID,omitempty"`
	VolumeID   string `json:"volumeID,omitempty"`
}

// Attachment is a volume's attachment to a node by ControllerPublishVolume.
type Attachment struct {
	Access   Access `json:"access"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Mount is a volume's staging or publication at a path of a node.
type Mount struct {
	// Node is the node of the path. The specification's tables about several paths apply to each node separately.
	Node     string `json:"node,omitempty"`
	Access   Access `json:"access"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Context is a digest of publish and volume context, to recognize a repeated call.
	Context string `json:"context,omitempty"`
}

// Volume is a volume with its parameters and all its current uses.
type Volume struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Bytes is the volume's current capacity, which Expand can increase.
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created"`
	// Parameters are the immutable parameters of CreateVolume, and Mutable the current mutable ones. CreatedMutable
	// keeps the mutable parameters of CreateVolume, because a repeated CreateVolume is compared with them.
	Parameters     map[string]string `json:"parameters,omitempty"`
	Mutable        map[string]string `json:"mutable,omitempty"`
	CreatedMutable map[string]string `json:"createdMutable,omitempty"`
	// Access lists the requested uses at creation, and is empty for a volume that existed before the driver.
	Access   []Access            `json:"access,omitempty"`
	Context  map[string]string   `json:"context,omitempty"`
	Source   Source              `json:"source,omitzero"`
	Topology []map[string]string `json:"topology,omitempty"`
	// Attachments are keyed by node id, Staged and Published by path.
	Attachments map[string]Attachment `json:"attachments,omitempty"`
	Staged      map[string]Mount      `json:"staged,omitempty"`
	Published   map[string]Mount      `json:"published,omitempty"`
}

// Nodes lists the nodes that the volume is attached to, sorted.
func (v Volume) Nodes() []string { return slices.Sorted(maps.Keys(v.Attachments)) }

// Used reports whether the volume is attached, staged or published anywhere.
func (v Volume) Used() bool { return len(v.Attachments)+len(v.Staged)+len(v.Published) > 0 }

// Serves reports whether the volume was created for this access type: a file system or a block device.
func (v Volume) Serves(a Access) bool {
	return len(v.Access) == 0 || slices.ContainsFunc(v.Access, func(have Access) bool { return have.Block == a.Block })
}

func (v Volume) key() (id, name string) { return v.ID, v.Name }

func (Volume) notFound(id string) error { return fmt.Errorf("volume %q: %w", id, ErrVolumeNotFound) }

func (v Volume) clone() Volume {
	v.Parameters, v.Mutable, v.CreatedMutable = maps.Clone(v.Parameters), maps.Clone(v.Mutable),
		maps.Clone(v.CreatedMutable)
	v.Access, v.Context, v.Topology = slices.Clone(v.Access), maps.Clone(v.Context), cloneTopology(v.Topology)
	v.Attachments, v.Staged, v.Published = maps.Clone(v.Attachments), maps.Clone(v.Staged), maps.Clone(v.Published)
	return v
}

// Snapshot is a point-in-time copy of a volume, and may outlive the volume.
type Snapshot struct {
	ID         string              `json:"id"`
	Name       string              `json:"name"`
	VolumeID   string              `json:"volumeID"`
	Bytes      int64               `json:"bytes"`
	Created    time.Time           `json:"created"`
	Parameters map[string]string   `json:"parameters,omitempty"`
	Topology   []map[string]string `json:"topology,omitempty"`
}

func (s Snapshot) key() (id, name string) { return s.ID, s.Name }

func (Snapshot) notFound(id string) error {
	return fmt.Errorf("snapshot %q: %w", id, ErrSnapshotNotFound)
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

// Error is a sentinel for errors.Is, of a constant type so that it cannot be reassigned.
type Error string

// Error implements error.
func (e Error) Error() string { return string(e) }

const (
	// ErrVolumeNotFound means that no volume has this id.
	ErrVolumeNotFound Error = "volume not found"
	// ErrSnapshotNotFound means that no snapshot has this id.
	ErrSnapshotNotFound Error = "snapshot not found"
	// ErrNodeNotFound means that the node is not among Config.Nodes.
	ErrNodeNotFound Error = "node not found"
	// ErrNotHere means that the volume exists, but is neither staged nor published at that path.
	ErrNotHere Error = "volume is not at that path"
	// ErrIncompatible means that the object exists with other properties than requested.
	ErrIncompatible Error = "exists already and is not compatible"
	// ErrInUse means that the volume is attached, staged or published, or has snapshots that protect it.
	ErrInUse Error = "in use"
	// ErrNotPrepared means that an earlier step (attach, stage) is missing.
	ErrNotPrepared Error = "not prepared"
	// ErrExceedsVolume means that the volume does not support the requested use.
	ErrExceedsVolume Error = "not possible with this volume"
	// ErrOutOfRange means that no volume can have the requested size.
	ErrOutOfRange Error = "size out of range"
	// ErrExhausted means that a limit of capacity, volumes or attachments is reached, or that no requested place is
	// possible.
	ErrExhausted Error = "resources exhausted"
	// ErrInvalid means that a value is invalid in any state.
	ErrInvalid Error = "invalid value"
)
