package backend

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
