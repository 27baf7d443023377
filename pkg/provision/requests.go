package provision

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// RequestOptions is the claim that is to get a volume, with what its volume is to be like.
type RequestOptions struct {
	// Claim and Class are as the watch cache has them: not to be changed. Required.
	Claim *v1.PersistentVolumeClaim
	Class *storagev1.StorageClass
	// Node is the node that the scheduler has selected, nil if none was, or nobody has read it.
	Node *v1.Node
	// Begun: an earlier version may have called CreateVolume. Then a source that is terminating is as good as any.
	Begun bool
	// CleanUp: as Begun, and the claim can never use the volume: it may be anywhere.
	CleanUp bool
}

// Request is a CreateVolume request, and what becomes of its answer. It is what the in-flight log holds.
type Request = inflight.Request

// RequestBuilder settles what a driver is asked for. Implementations are safe for concurrent use.
type RequestBuilder interface {
	// PVName returns the name of a claim's PV, by which the driver also knows the volume.
	PVName(claim types.UID) string
	// Build returns the request for a claim. The same claim and class give the same volume name,
	// whenever it is asked. An error says what is wrong with claim or class, or could not be read;
	// a *request.Error among its causes says what helps.
	Build(ctx context.Context, want RequestOptions) (*Request, error)
	// PV returns the PersistentVolume of the volume that the driver made for an order, which may have been read
	// from the in-flight log. An error means that the volume is not what was asked for: it gets no
	// PersistentVolume and is deleted.
	PV(o Request, made *csi.Volume) (*v1.PersistentVolume, error)
}

// Qualifier is an RequestBuilder that can tell from claim and class alone that others provision a claim.
type Qualifier interface {
	// Ignores returns a *request.Error where others provision the claim, such as a volume populator, and else nil.
	Ignores(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) error
}

// Watcher is an RequestBuilder with watch caches of its own. A Provisioner keeps them up to date, and begins
// when they are filled.
type Watcher interface {
	// Watch keeps the caches up to date until ctx ends.
	Watch(ctx context.Context)
	// Synced reports whether they hold what the API server had when Watch began.
	Synced() bool
	// Permissions are what is needed for it.
	Permissions() []access.Permission
}

// Driver makes and deletes volumes; csidriver.Driver is one. Its errors are marked with an
// errclass.Class.
type Driver interface {
	CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest, secrets map[string]string) (*csi.Volume, error)
	DeleteVolume(ctx context.Context, handle string, secrets map[string]string) error
}

// Log is the in-flight log; *inflight.Log is one.
type Log interface {
	// TakeOver reads the log, and keeps every earlier process from writing to it.
	TakeOver(ctx context.Context) error
	// TakenOver returns when that was, by the API server's clock to the second; zero if it is not known.
	TakenOver() time.Time
	// Run writes until ctx ends. It returns an error when a later process has taken over.
	Run(ctx context.Context) error
	// Get returns what the log has under a volume's name.
	Get(volume string) (inflight.Entry, inflight.State)
	// State returns the state of a volume's entry alone.
	State(volume string) inflight.State
	// Stats returns figures.
	Stats() inflight.Stats
	// Entries returns all entries that are stored.
	Entries() []inflight.Entry
	// Put stores an entry, and returns nil when that is confirmed.
	Put(ctx context.Context, entry inflight.Entry) error
	// Remove removes an entry some time later.
	Remove(volume string)
	// Confirm reads the log live and returns nil if the entry is still stored by this process.
	Confirm(ctx context.Context, volume string) error
	// Follow has removed called whenever a removal is confirmed. removed does not block.
	Follow(removed func(volume string))
}
