package volumes

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// ReadPV reads the facts about the PV with this name. It returns an error if the PV does not exist or cannot be read;
// all other failed reads are part of the facts.
func ReadPV(ctx context.Context, c explain.Cluster, name string) (PVFacts, error) {
	pv, err := c.PV(ctx, name)
	if err != nil {
		return PVFacts{}, fmt.Errorf("read PV %q: %w", name, err)
	}
	return related(ctx, c, pv, readCluster(ctx, c, LeasesFor([]explain.PV{explain.PVOf(pv)})))
}

// related reads the objects around a PV. It reads the PV again last, as the sidecar does before a deletion, because
// people rescue a volume by editing its PV.
func related(ctx context.Context, c explain.Cluster, pv *v1.PersistentVolume, w ClusterFacts) (PVFacts, error) {
	f := PVFacts{ClusterFacts: w.Indexed(), Nodes: map[string]explain.Read[*v1.Node]{}}
	for _, a := range f.attachmentsOf(pv.Name) {
		f.Nodes[a.Spec.NodeName] = explain.Optional(c.Node(ctx, a.Spec.NodeName))
	}
	if ref := pv.Spec.ClaimRef; ref != nil {
		f.Claim = explain.Optional(c.Claim(ctx, ref.Namespace, ref.Name))
		if f.Claim.Value != nil && pv.DeletionTimestamp != nil {
			f.Pods = explain.UsersOf(c.Pods(ctx, ref.Namespace))
		}
	}
	f.readSiblingClaims(ctx, c, explain.PVOf(pv))
	f.Events = c.Events(ctx, metav1.NamespaceDefault, pv)
	if pv.Spec.CSI == nil {
		f.Minor = c.Minor(ctx)
	}
	name := pv.Name
	pv, err := c.PV(ctx, name)
	if err != nil {
		return PVFacts{}, fmt.Errorf("read PV %q: %w", name, err)
	}
	f.PV = pv
	return f, nil
}

// ReadClaim reads the facts about a claim and its PV. It returns an error if the claim does not exist or cannot be
// read; see ReadDeletedClaim for a claim that does not exist.
func ReadClaim(ctx context.Context, c explain.Cluster, namespace, name string) (ClaimFacts, error) {
	claim, err := c.Claim(ctx, namespace, name)
	if err != nil {
		return ClaimFacts{}, fmt.Errorf("read claim %q: %w", namespace+"/"+name, err)
	}
	f := ClaimFacts{Claim: claim, Events: c.Events(ctx, namespace, claim)}
	if class := objects.ClaimClass(claim); class != "" {
		f.Class = explain.Optional(c.Class(ctx, class))
	}
	f.Pods = explain.UsersOf(c.Pods(ctx, namespace))
	var pv explain.Read[*v1.PersistentVolume]
	leases := LeasesFor(nil, f.Driver())
	if claim.Spec.VolumeName != "" {
		pv = explain.Optional(c.PV(ctx, claim.Spec.VolumeName))
		f.PV = explain.Read[*PVFacts]{Made: true, Err: pv.Err}
	}
	if pv.Value != nil {
		leases = LeasesFor([]explain.PV{explain.PVOf(pv.Value)})
	}
	f.ClusterFacts = readCluster(ctx, c, leases)
	if pv.Value != nil {
		its, err := related(ctx, c, pv.Value, f.ClusterFacts)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			f.PV = explain.Failed[*PVFacts](err)
		default:
			f.PV = explain.Found(&its)
		}
	}
	return f, nil
}

// ReadDeletedClaim reads the in-flight logs' entries for claims of this namespace and name. found is false if they hold
// none, or cannot be read.
func ReadDeletedClaim(ctx context.Context, c explain.Cluster, namespace, name string) (f DeletedClaimFacts,
	found bool) {
	f.ClusterFacts = ClusterFacts{Now: c.Now(), Role: c.Role, InFlight: c.InFlight(ctx)}
	entries := f.entriesOf(namespace, name)
	if len(entries) == 0 {
		return f, false
	}
	f.PVs = c.PVs(ctx)
	f.Events = c.Events(ctx, namespace, &metav1.ObjectMeta{UID: entries[0].Claim.UID})
	f.LeaseEvents = c.Events(ctx, entries[0].Lease.Namespace, &metav1.ObjectMeta{UID: entries[0].LeaseUID})
	return f, true
}

// ReadStatus reads the facts for the status of a driver, or of all drivers if driver is empty. It returns an error if
// the PVs cannot be read.
func ReadStatus(ctx context.Context, c explain.Cluster, driver string) (StatusFacts, error) {
	f := StatusFacts{ClusterFacts: readCluster(ctx, c, nil),
		Claims: map[volume.ClaimRef]explain.Read[*v1.PersistentVolumeClaim]{}}
	if f.PVs.Err != nil {
		return StatusFacts{}, fmt.Errorf("list PVs: %w", f.PVs.Err)
	}
	// A driver without PVs may have volumes in flight. Anyone may write entries, so their drivers' names are not used.
	f.Leases = c.Leases(ctx, LeasesFor(f.PVs.Value, slices.Concat([]string{driver}, f.Installed.Value,
		f.OnNodes.Value)...))
	if slices.ContainsFunc(f.PVs.Value, func(pv explain.PV) bool { return pv.FormerPlugin != "" }) {
		f.Minor = c.Minor(ctx)
	}
	readClaims(ctx, c, f.ClaimsToRead(driver), f.Claims)
	f.Admission = c.Admission(ctx)
	return f, nil
}

// ReadRelease reads the facts for the release of a driver's PVs. It returns an error if the PVs cannot be read.
func ReadRelease(ctx context.Context, c explain.Cluster, driver string) (StatusFacts, error) {
	f, err := ReadStatus(ctx, c, driver)
	if err == nil {
		f.Sidecars = c.Sidecars(ctx, driver)
	}
	return f, err
}

// Leaders returns the pods that lead for a driver as NAMESPACE/NAME, sorted: one for the whole cluster, or one for each
// node. Several pods also mean that it is not known which of them leads.
func Leaders(ctx context.Context, c explain.Cluster, driver string) ([]string, error) {
	f := StatusFacts{ClusterFacts: ClusterFacts{Now: c.Now(), Leases: c.Leases(ctx, objects.ElectionLeases(driver))}}
	if f.Leases.Err != nil {
		return nil, f.Leases.Err
	}
	if leaders := f.LeadersOf(driver); len(leaders) > 0 {
		return leaders, nil
	}
	f.Sidecars = c.Sidecars(ctx, driver)
	return podsOf(f.onNodes(driver)), f.Sidecars.Err
}

// CheckDriver lists the kinds that may name a driver, until one of them does: see ClusterFacts.CheckDriver.
func CheckDriver(ctx context.Context, c explain.Cluster, driver string) error {
	var w ClusterFacts
	if w.Installed = c.Installed(ctx); driver == "" || slices.Contains(w.Installed.Value, driver) {
		return nil
	}
	if w.OnNodes = c.OnNodes(ctx); slices.Contains(w.OnNodes.Value, driver) {
		return nil
	}
	w.InFlight, w.PVs = c.InFlight(ctx), c.PVs(ctx)
	return w.CheckDriver(driver)
}

// concurrentReads limits the number of parallel GETs.
const concurrentReads = 10

func readClaims(ctx context.Context, c explain.Cluster, claims []volume.ClaimRef,
	into map[volume.ClaimRef]explain.Read[*v1.PersistentVolumeClaim]) {
	var (
		mu      sync.Mutex
		readers errgroup.Group
	)
	readers.SetLimit(concurrentReads)
	for _, claim := range claims {
		readers.Go(func() error {
			return panics.Contain(ctx, func() { // a claim whose read panics stays unread
				read := explain.Optional(c.Claim(ctx, claim.Namespace, claim.Name))
				mu.Lock()
				defer mu.Unlock()
				into[claim] = read
			}, "claim", claim)
		})
	}
	_ = readers.Wait() // the errors are in the results
}

// readCluster reads the objects that all PVs share, and the Leases of these names.
func readCluster(ctx context.Context, c explain.Cluster, leases []string) ClusterFacts {
	w := ClusterFacts{Now: c.Now(), Role: c.Role}
	w.PVs = c.PVs(ctx)
	w.Attachments = c.Attachments(ctx)
	w.Installed = c.Installed(ctx)
	w.OnNodes = c.OnNodes(ctx)
	w.Leases = c.Leases(ctx, leases)
	w.InFlight = c.InFlight(ctx)
	return w
}

// LeasesFor returns the names of the Leases of volume-guard, and of all programs that may manage these PVs or belong to
// these drivers, sorted.
func LeasesFor(pvs []explain.PV, drivers ...string) []string {
	names := []string{explain.VolumeGuard}
	for _, pv := range pvs {
		drivers = append(drivers, pv.Owner())
	}
	for _, driver := range slices.Compact(slices.Sorted(slices.Values(drivers))) {
		if explain.CSIName(driver) {
			names = append(names, objects.ElectionLeases(driver)...)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// ReadVolumes reads the facts that decide the outcome of these PVs: the state of the cluster, the claims of PVs that
// share a volume with them, and the Leases of their drivers and of volume-guard. Failed reads are part of the facts.
func ReadVolumes(ctx context.Context, c explain.Cluster, pvs []string) ClusterFacts {
	w := readCluster(ctx, c, nil).Indexed()
	var found []explain.PV
	for _, name := range pvs {
		if pv, known := w.FindPV(name); known {
			found = append(found, pv)
		}
	}
	w.Leases = c.Leases(ctx, LeasesFor(found))
	w.readSiblingClaims(ctx, c, found...)
	return w
}

// readSiblingClaims reads the claims of PVs that share a volume with one of these, and are due for deletion.
func (w *ClusterFacts) readSiblingClaims(ctx context.Context, c explain.Cluster, pvs ...explain.PV) {
	var claims []volume.ClaimRef
	for _, pv := range pvs {
		for _, other := range w.SiblingsOf(pv) {
			if other.Deletable() {
				claims = append(claims, other.Claim)
			}
		}
	}
	w.SiblingClaims = map[volume.ClaimRef]explain.Read[*v1.PersistentVolumeClaim]{}
	readClaims(ctx, c, claims, w.SiblingClaims)
}
