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

// cluster is what is read of the API server. Each call reads all objects of a kind by consistent pages: as
// they were at one moment after the call began. An error means that not all were shown.
type cluster interface {
	eachClaim(ctx context.Context, visit func(*v1.PersistentVolumeClaim)) error
	eachSnapshot(ctx context.Context, visit func(snapshot.Content)) error
	inFlight(ctx context.Context) ([]inflight.Located, []inflight.LocatedProblem, error)
	eachPV(ctx context.Context, visit func(*v1.PersistentVolume)) error
}

// Annotations of a claim that say who makes its volume.
const (
	annProvisioner     = "volume.kubernetes.io/storage-provisioner"
	annProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
	annMigratedTo      = "pv.kubernetes.io/migrated-to"
)

// maker is a claim or a snapshot whose volume, of a name that only the driver knows, is being made.
type maker struct {
	uid types.UID
	// name is for people: what it is, and how it is called.
	name string
}

// makes reports whether a volume of the driver may be there, or come, for a claim that no PV names yet: it
// waits for its volume.
func makes(claim *v1.PersistentVolumeClaim, driver string) bool {
	asked, named := claim.Annotations[annProvisioner]
	if !named {
		asked = claim.Annotations[annProvisionerBeta]
	}
	ours := asked == driver || claim.Annotations[annMigratedTo] == driver
	return ours && claim.Spec.VolumeName == ""
}

// names returns the volume of the driver that a PV names, empty if that is unknown, and whether it is about a
// volume of the driver at all: it says so itself, or is the driver's by its annotations.
func names(pv volume.PV, driver string) (handle string, about bool) {
	if pv.Driver == driver {
		return pv.Handle, true
	}
	return "", pv.Owner() == driver
}

// listPage is how much one page asks for, listTimeout how long a whole list may take.
const (
	listPage    = 500
	listTimeout = 5 * time.Minute
)

// apiServer is the cluster behind real clients.
type apiServer struct {
	core   corev1.CoreV1Interface
	leases coordinationv1client.LeasesGetter
	// contents is nil for a driver without snapshots.
	contents *snapshot.Reader
}

func (a apiServer) eachClaim(ctx context.Context, visit func(*v1.PersistentVolumeClaim)) error {
	if err := each(ctx, a.core.PersistentVolumeClaims(metav1.NamespaceAll).List, visit); err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	return nil
}

// inFlight reads the in-flight logs of all drivers, in all namespaces.
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

// eachSnapshot finds none in a cluster that serves no snapshots: nothing there can account for a volume.
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

// each shows all objects of a kind, by pages of which a few are held at a time.
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
