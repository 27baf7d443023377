package provision

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Want is the claim that is to get a volume, with what its volume is to be like.
type Want struct {
	// Claim and Class are as the watch cache has them: not to be changed. Required.
	Claim *v1.PersistentVolumeClaim
	Class *storagev1.StorageClass
	// Node is the node that the scheduler has selected, nil if none was. It is nil too where a
	// volume is only looked for again after a restart.
	Node *v1.Node
	// PVName is the name of the PV to be, which the volume's name is made of.
	PVName string
}

// Order is what the driver is asked for, and what becomes of its answer.
type Order struct {
	// Request is complete but for the secrets. It is not changed.
	Request *csi.CreateVolumeRequest
	// Secret names the Secret that goes with CreateVolume and DeleteVolume, nil for none.
	Secret *v1.SecretReference
	// PV makes the PV of the volume that the driver made: named PVName, with its claimRef (UID
	// included), and with the finalizer that package reclaim puts on. An error means that the
	// volume is not what was asked for.
	PV func(*csi.Volume) (*v1.PersistentVolume, error)
}

// Orders settles what a driver is asked for. Implementations are safe for concurrent use.
type Orders interface {
	// Compose returns the order for a claim. The same claim and class give the same volume name,
	// whenever it is asked. An error says what is wrong with claim or class, or could not be read.
	Compose(ctx context.Context, want Want) (*Order, error)
}

// Driver makes and deletes volumes; csidriver.Driver is one. Its errors are marked with an
// outcome.Class.
type Driver interface {
	CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest, secrets map[string]string) (*csi.Volume, error)
	DeleteVolume(ctx context.Context, handle string, secrets map[string]string) error
}
