package leaks

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// cluster holds the leak check's reads from the API server. Each method lists all objects of a kind in pages of one
// consistent snapshot, taken after the call began, and returns an error if the list is incomplete.
type cluster interface {
	eachClaim(ctx context.Context, visit func(*v1.PersistentVolumeClaim)) error
	eachSnapshot(ctx context.Context, visit func(snapshot.Content)) error
	eachAttachment(ctx context.Context, visit func(*storagev1.VolumeAttachment)) error
	inFlight(ctx context.Context, driver string) ([]inflight.Located, []inflight.LocatedProblem, error)
	eachPV(ctx context.Context, visit func(*v1.PersistentVolume)) error
}

// maker is a claim or snapshot in creation. The handle of its volume is unknown, because only the driver chooses it.
type maker struct {
	uid types.UID
	// name holds the kind and name of the object for messages.
	name string
}

// makes reports whether the driver may have created, or may yet create, a volume for a claim that has no PV yet.
func makes(claim *v1.PersistentVolumeClaim, driver string) bool {
	asked, _ := volume.ProvisionerOf(claim)
	ours := asked == driver || claim.Annotations[volume.AnnMigratedTo] == driver
	return ours && claim.Spec.VolumeName == ""
}

// names returns the handle of the driver's volume that a PV names, or "" if that is unknown. about reports whether
// the PV is for a volume of the driver at all, by its source or by its annotations.
func names(pv volume.PV, driver string) (handle string, about bool) {
	if pv.Driver == driver {
		return pv.Handle, true
	}
	return "", pv.Owner() == driver
}

// listTimeout bounds the list of snapshots.
const listTimeout = 5 * time.Minute

type apiServer struct {
	core        corev1.CoreV1Interface
	attachments storagev1client.VolumeAttachmentsGetter
	leases      coordinationv1client.LeasesGetter
	// contents reads VolumeSnapshotContents; nil for a driver without snapshots.
	contents *snapshot.Reader
}

func (a apiServer) eachClaim(ctx context.Context, visit func(*v1.PersistentVolumeClaim)) error {
	return kube.Each(ctx, "claims", metav1.ListOptions{}, a.core.PersistentVolumeClaims(metav1.NamespaceAll).List, visit)
}

func (a apiServer) eachAttachment(ctx context.Context, visit func(*storagev1.VolumeAttachment)) error {
	return kube.Each(ctx, "VolumeAttachments", metav1.ListOptions{}, a.attachments.VolumeAttachments().List, visit)
}

// inFlight reads the in-flight logs of the driver in all namespaces.
func (a apiServer) inFlight(ctx context.Context, driver string) ([]inflight.Located, []inflight.LocatedProblem,
	error) {
	asked := func(of string) bool { return of == driver }
	shards, err := inflight.List(ctx, a.leases, metav1.ListOptions{}, asked)
	if err != nil {
		return nil, nil, err
	}
	entries, problems := inflight.Locate(shards, asked)
	return entries, problems, nil
}

func (a apiServer) eachPV(ctx context.Context, visit func(*v1.PersistentVolume)) error {
	return kube.Each(ctx, "PVs", metav1.ListOptions{}, a.core.PersistentVolumes().List, visit)
}

// eachSnapshot visits nothing in a cluster without the snapshot API, where no snapshot can account for a volume.
func (a apiServer) eachSnapshot(ctx context.Context, visit func(snapshot.Content)) error {
	if a.contents == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if err := a.contents.EachContent(ctx, visit); !errors.Is(err, snapshot.ErrNotInstalled) {
		return err
	}
	return nil
}
