package provision

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Want is the claim that is to get a volume, with what its volume is to be like.
type Want struct {
	// Claim and Class are as the watch cache has them: not to be changed. Required.
	Claim *v1.PersistentVolumeClaim
	Class *storagev1.StorageClass
	// Node is the node that the scheduler has selected, nil if none was, or nobody has read it.
	Node *v1.Node
	// Begun: the volume may have been asked for before.
	Begun bool
	// CleanUp: the volume is looked for again only to be deleted. It is needed nowhere then.
	CleanUp bool
}

// Order is what the driver is asked for, and what becomes of its answer.
type Order struct {
	// Request is complete but for the secrets. It is not changed.
	Request *csi.CreateVolumeRequest
	// Secret names the Secret that goes with CreateVolume and DeleteVolume, nil for none.
	Secret *v1.SecretReference
	// CloneOf is the claim whose volume is read while this one is made, nil for none.
	CloneOf *SourceClaim
	// Migrated: the class is one of the in-tree plugin that the driver took over from.
	Migrated bool
	// MayReschedule: where the driver has no room, another node may do.
	MayReschedule bool
	// PV makes the PV of the volume that the driver made: named as Orders has it, naming the driver's volume,
	// with its claimRef (UID included), and with the finalizer that package reclaim puts on. An error means that the
	// volume is not what was asked for, and is to be deleted.
	PV func(*csi.Volume) (*v1.PersistentVolume, error)
}

// SourceClaim is a claim that is cloned.
type SourceClaim struct {
	Namespace, Name string
	UID             types.UID
}

// Orders settles what a driver is asked for. Implementations are safe for concurrent use.
type Orders interface {
	// PVName returns the name of a claim's PV, by which the driver also knows the volume.
	PVName(claim types.UID) string
	// Compose returns the order for a claim. The same claim and class give the same volume name,
	// whenever it is asked. An error says what is wrong with claim or class, or could not be read;
	// an *order.Error among its causes says what helps.
	Compose(ctx context.Context, want Want) (*Order, error)
}

// Watcher is an Orders with watch caches of its own. A Provisioner keeps them up to date, and begins
// when they are filled.
type Watcher interface {
	// Watch keeps the caches up to date until ctx ends.
	Watch(ctx context.Context)
	// Synced tells whether they hold what the API server had when Watch began.
	Synced() bool
	// Rights are what has to be allowed for it.
	Rights() []reclaim.Right
}

// Driver makes and deletes volumes; csidriver.Driver is one. Its errors are marked with an
// outcome.Class.
type Driver interface {
	CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest, secrets map[string]string) (*csi.Volume, error)
	DeleteVolume(ctx context.Context, handle string, secrets map[string]string) error
}
