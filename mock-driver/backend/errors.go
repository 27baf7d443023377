package backend

// Error is a sentinel: compare with errors.Is. A constant type, so that none can be reassigned.
type Error string

// Error implements error.
func (e Error) Error() string { return string(e) }

const (
	// ErrVolumeNotFound says that no volume has this id.
	ErrVolumeNotFound Error = "volume not found"
	// ErrSnapshotNotFound says that no snapshot has this id.
	ErrSnapshotNotFound Error = "snapshot not found"
	// ErrNodeNotFound says that the backend knows no such node.
	ErrNodeNotFound Error = "node not found"
	// ErrNotHere says that the volume exists, but is neither staged nor published at that path.
	ErrNotHere Error = "volume is not at that path"
	// ErrIncompatible says that the thing exists already, with other properties than those asked for.
	ErrIncompatible Error = "exists already and is not compatible"
	// ErrInUse says that something still uses the volume.
	ErrInUse Error = "in use"
	// ErrNotPrepared says that an earlier step (attach, stage) is missing.
	ErrNotPrepared Error = "not prepared"
	// ErrExceedsVolume says that the volume cannot be used in the way asked for.
	ErrExceedsVolume Error = "not possible with this volume"
	// ErrOutOfRange says that no volume of the size asked for can be.
	ErrOutOfRange Error = "size out of range"
	// ErrExhausted says that a limit of capacity, volumes or attachments is reached, or that the volume cannot be
	// where it was asked for.
	ErrExhausted Error = "resources exhausted"
	// ErrInvalid says that a value can never be right.
	ErrInvalid Error = "invalid value"
)
