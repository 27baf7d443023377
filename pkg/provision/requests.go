package provision

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// RequestBuilder settles what a driver is asked for. Implementations are safe for concurrent use.
type RequestBuilder interface {
	// PVName returns the name of a claim's PV, by which the driver also knows the volume.
	PVName(claim types.UID) string
	// Build returns the request for a claim. The same claim and class give the same volume name,
	// whenever it is asked. An error says what is wrong with claim or class, or could not be read;
	// a *request.Error among its causes says what helps.
	Build(ctx context.Context, want request.Options) (*inflight.Request, error)
	// PV returns the PersistentVolume of the volume that the driver made for an order, which may have been read
	// from the in-flight log. An error means that the volume is not what was asked for: it gets no
	// PersistentVolume and is deleted.
	PV(o inflight.Request, made *csi.Volume) (*v1.PersistentVolume, error)
}

// Qualifier is an RequestBuilder that can tell from claim and class alone that others provision a claim.
type Qualifier interface {
	// Ignores returns a *request.Error where others provision the claim, such as a volume populator, and else nil.
	Ignores(claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) error
}

// Locator is a RequestBuilder that knows on which nodes volumes can be used.
type Locator interface {
	// HasNode reports whether the node exists and the driver is registered on it. An error: that is not known.
	HasNode(ctx context.Context, node string) (bool, error)
}

// Watcher is an RequestBuilder with watch caches of its own. A Controller keeps them up to date, and begins
// when they are filled.
type Watcher interface {
	// Watch keeps the caches up to date until ctx ends.
	Watch(ctx context.Context)
	// Synced reports whether they hold what the API server had when Watch began.
	Synced() bool
	// Permissions are what is needed for it.
	Permissions() []permission.Permission
}

// Follower is a RequestBuilder that depends on where the driver's nodes are.
type Follower interface {
	// Follow has changed called whenever a node comes, goes or changes its place. It is called once, before Watch.
	// changed does not block.
	Follow(changed func())
}

// Driver makes and deletes volumes; csidriver.Driver is one. Its errors are marked with an
// errclass.Class.
//
// A Driver may have a method Version() string, which returns its vendor_version (GetPluginInfo). Where it does, no
// refusal of another version settles a call whose outcome is in doubt.
type Driver interface {
	CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest, secrets map[string]string) (*csi.Volume, error)
	DeleteVolume(ctx context.Context, handle string, secrets map[string]string) error
}

// Log is the in-flight log; *inflight.Log is one.
//
// A Log may have a method LeaseOf(volume string) v1.ObjectReference, which returns the Lease of a volume's entry. Where
// it does, what concerns a claim that is gone is recorded on the Lease.
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

// PVLister is a watch cache of PVs; reclaim.PVs is one. It shows at least those that name a volume of
// the driver, on a node those that it may reach: that it does not show a PV proves nothing. Its methods are safe
// for concurrent use.
type PVLister interface {
	// Get returns the PV with this name. Of it, Driver, Handle, Claim.UID, Terminating and Reach are read.
	Get(name string) (pv volume.PV, found bool)
	// Shared reports whether a PV of another name than except names the driver's volume.
	Shared(handle, except string) bool
	// Follow has changed called for every PV that comes or goes from now on, with the state that it
	// had first or last, and after Get shows it so. changed does not block.
	Follow(changed func(volume.PV))
	// FollowLists has listed called after each list of PVs, once Get shows it and its changes were delivered: a PV that
	// came and went while there was no watch is never delivered. listed does not block.
	FollowLists(listed func())
	// Reached reports whether Get shows everything up to a resourceVersion of a PV.
	Reached(version string) bool
	// Synced reports whether Get shows the PVs that there were when the watch began.
	Synced() bool
}
