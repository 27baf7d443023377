package reclaim

import "context"

// Deleter has a storage system delete volumes. csidriver.Driver is one; a vendor that
// embeds this package may call their own API instead.
type Deleter interface {
	// DeleteVolume deletes the volume with this handle (spec.csi.volumeHandle) and returns
	// nil once it is gone, also if it was gone before. It is called by several workers at
	// once, for one volume never twice at once, and again after an error. It returns soon
	// after ctx ends.
	//
	// secrets is the content of the Secret named for the deletion, nil when there is none.
	// It must not be logged.
	//
	// An error may be marked (package outcome) to say what it means for the next try.
	DeleteVolume(ctx context.Context, handle string, secrets map[string]string) error
}
