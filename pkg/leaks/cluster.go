package leaks

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/pager"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// cluster holds the leak check's reads from the API server. Each method lists all objects of a kind in pages of one
// consistent snapshot, taken after the call began, and returns an error if the list is incomplete.
type cluster interface {
	eachClaim(ctx context.Context, visit func(*v1.PersistentVolumeClaim)) error
	eachSnapshot(ctx context.Context, visit func(snapshot.Content)) error
	inFlight(ctx context.Context) ([]inflight.Located, []inflight.LocatedProblem, error)
	eachPV(ctx context.Context, visit func(*v1.PersistentVolume)) error
}

// Annotations of a claim that name the driver of its volume.
const (
	annProvisioner     = "volume.kubernetes.io/storage-provisioner"
	annProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
	annMigratedTo      = "pv.kubernetes.io/migrated-to"
)

// maker is a claim or snapshot in creation. The handle of its volume is unknown, because only the driver chooses it.
type maker struct {
	uid types.UID
	// name holds the kind and name of the object for messages.
	name string
}

// makes reports whether the driver may have created, or may yet create, a volume for a claim that has no PV yet.
func makes(claim *v1.PersistentVolumeClaim, driver string) bool {
	asked, named := claim.Annotations[annProvisioner]
	if !named {
		asked = claim.Annotations[annProvisionerBeta]
	}
	ours := asked == driver || claim.Annotations[annMigratedTo] == driver
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

// listPage is the page size of a list, and listTimeout bounds the whole list.
const (
	listPage    = 500
	listTimeout = 5 * time.Minute
)

type apiServer struct {
	core   corev1.CoreV1Interface
	leases coordinationv1client.LeasesGetter
	// contents reads VolumeSnapshotContents; nil for a driver without snapshots.
	contents *snapshot.Reader
}

func (a apiServer) eachClaim(ctx context.Context, visit func(*v1.PersistentVolumeClaim)) error {
	if err := each(ctx, a.core.PersistentVolumeClaims(metav1.NamespaceAll).List, visit); err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	return nil
}

// inFlight reads the in-flight logs of all drivers in all namespaces.
func (a apiServer) inFlight(ctx context.Context) ([]inflight.Located, []inflight.LocatedProblem, error) {
	var shards []coordinationv1.Lease
	of := func(ctx context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
		o.LabelSelector = inflight.LabelLog + "=true"
		return a.leases.Leases(metav1.NamespaceAll).List(ctx, o)
	}
	if err := each(ctx, of, func(lease *coordinationv1.Lease) { shards = append(shards, *lease) }); err != nil {
		return nil, nil, fmt.Errorf("list the Leases of the in-flight log: %w", err)
	}
	entries, problems := inflight.Locate(shards)
	return entries, problems, nil
}

func (a apiServer) eachPV(ctx context.Context, visit func(*v1.PersistentVolume)) error {
	if err := each(ctx, a.core.PersistentVolumes().List, visit); err != nil {
		return fmt.Errorf("list PVs: %w", err)
	}
	return nil
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

// each visits all objects of a kind, and holds only a few pages in memory at a time.
func each[L runtime.Object, O any](ctx context.Context, of func(context.Context, metav1.ListOptions) (L, error),
	visit func(*O)) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return of(ctx, o) })
	pages.PageSize = listPage
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		object, ok := any(o).(*O)
		if !ok {
			return fmt.Errorf("got a %T", o)
		}
		visit(object)
		return nil
	})
}
