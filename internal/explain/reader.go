package explain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Config holds the settings of a Reader, and its zero value is usable.
type Config struct {
	// Role is the role in which csi-reclaimer decides, and is guessed for each driver by default.
	Role volume.Role
	// Clock defaults to the real clock; only tests replace it.
	Clock clock.PassiveClock
}

// Reader reads the facts for explanations, and its methods are safe for concurrent use.
type Reader struct {
	cfg    Config
	source Source
}

// New returns a Reader of the cluster that config describes. It copies config and reads nothing yet.
func New(config *rest.Config, cfg Config) (*Reader, error) {
	if config == nil {
		return nil, errors.New("create a reader: nil rest.Config")
	}
	source, err := Live(config)
	if err != nil {
		return nil, err
	}
	return NewFrom(source, cfg), nil
}

// NewFrom returns a Reader that reads from source.
func NewFrom(source Source, cfg Config) *Reader {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Reader{cfg: cfg, source: source}
}

// PV reads the facts about the PV with this name. It returns an error if the PV does not exist or cannot be read; all
// other failed reads are part of the facts.
func (r *Reader) PV(ctx context.Context, name string) (PVFacts, error) {
	pv, err := r.source.PV(ctx, name)
	if err != nil {
		return PVFacts{}, fmt.Errorf("read PV %q: %w", name, err)
	}
	return r.related(ctx, pv, r.cluster(ctx, leasesFor(PVOf(pv))))
}

// related reads the objects around a PV. It reads the PV again last, as the sidecar does before a deletion, because
// people rescue a volume by editing its PV.
func (r *Reader) related(ctx context.Context, pv *v1.PersistentVolume, w ClusterFacts) (PVFacts, error) {
	f := PVFacts{ClusterFacts: w, Nodes: map[string]Read[*v1.Node]{}}
	for i := range w.Attachments.Value {
		a := &w.Attachments.Value[i]
		if name := a.Spec.Source.PersistentVolumeName; name == nil || *name != pv.Name {
			continue
		}
		node := a.Spec.NodeName
		f.Nodes[node] = Optional(r.source.Node(ctx, node))
	}
	if ref := pv.Spec.ClaimRef; ref != nil {
		f.Claim = Optional(r.source.Claim(ctx, ref.Namespace, ref.Name))
		if f.Claim.Value != nil && pv.DeletionTimestamp != nil {
			f.Pods = r.source.Pods(ctx, ref.Namespace)
		}
	}
	f.ClusterFacts = f.indexed()
	f.SiblingClaims = map[volume.ClaimRef]Read[*v1.PersistentVolumeClaim]{}
	var claims []volume.ClaimRef
	for _, other := range f.siblingsOf(PVOf(pv)) {
		if wantsDeletion(other.PV) {
			claims = append(claims, other.Claim)
		}
	}
	r.readClaims(ctx, claims, f.SiblingClaims)
	f.Events = r.source.Events(ctx, metav1.NamespaceDefault, pv)
	if pv.Spec.CSI == nil {
		f.Minor = r.source.Minor(ctx)
	}
	name := pv.Name
	pv, err := r.source.PV(ctx, name)
	if err != nil {
		return PVFacts{}, fmt.Errorf("read PV %q: %w", name, err)
	}
	f.PV = pv
	return f, nil
}

// Claim reads the facts about a claim and its PV. It returns an error if the claim does not exist or cannot be read;
// see DeletedClaim for a claim that does not exist.
func (r *Reader) Claim(ctx context.Context, namespace, name string) (ClaimFacts, error) {
	claim, err := r.source.Claim(ctx, namespace, name)
	if err != nil {
		return ClaimFacts{}, fmt.Errorf("read claim %q: %w", namespace+"/"+name, err)
	}
	f := ClaimFacts{Claim: claim, Events: r.source.Events(ctx, namespace, claim)}
	if class := className(claim); class != "" {
		f.Class = Optional(r.source.Class(ctx, class))
	}
	f.Pods = r.source.Pods(ctx, namespace)
	var pv Read[*v1.PersistentVolume]
	leases := leasesFor(PV{})
	if claim.Spec.VolumeName != "" {
		pv = Optional(r.source.PV(ctx, claim.Spec.VolumeName))
		f.PV = Read[*PVFacts]{Made: true, Err: pv.Err}
	}
	if pv.Value != nil {
		leases = leasesFor(PVOf(pv.Value))
	} else if driver := f.provisioner(); driver != "" {
		leases = append(leases, leaseNames(driver)...)
	}
	f.ClusterFacts = r.cluster(ctx, leases)
	if pv.Value != nil {
		its, err := r.related(ctx, pv.Value, f.ClusterFacts)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			f.PV = Failed[*PVFacts](err)
		default:
			f.PV = Found(&its)
		}
	}
	return f, nil
}

// DeletedClaim reads the in-flight logs' entries for claims of this namespace and name. found is false if they hold
// none, or cannot be read.
func (r *Reader) DeletedClaim(ctx context.Context, namespace, name string) (f DeletedClaimFacts, found bool) {
	f.ClusterFacts = ClusterFacts{Now: r.cfg.Clock.Now(), Role: r.cfg.Role, InFlight: r.source.InFlight(ctx)}
	entries := f.entriesOf(namespace, name)
	if len(entries) == 0 {
		return f, false
	}
	f.PVs = r.source.PVs(ctx)
	f.Events = r.source.Events(ctx, namespace, &metav1.ObjectMeta{UID: entries[0].Claim.UID})
	f.LeaseEvents = r.source.Events(ctx, entries[0].Lease.Namespace, &metav1.ObjectMeta{UID: entries[0].LeaseUID})
	return f, true
}

// Status reads the facts for the status of a driver, or of all drivers if driver is empty. It returns an error if the
// PVs cannot be read.
func (r *Reader) Status(ctx context.Context, driver string) (StatusFacts, error) {
	f := StatusFacts{ClusterFacts: r.cluster(ctx, nil), Claims: map[volume.ClaimRef]Read[*v1.PersistentVolumeClaim]{}}
	if f.PVs.Err != nil {
		return StatusFacts{}, fmt.Errorf("list PVs: %w", f.PVs.Err)
	}
	f.Leases = r.source.Leases(ctx, LeasesFor(f.PVs.Value))
	if slices.ContainsFunc(f.PVs.Value, func(pv PV) bool { return pv.FormerPlugin != "" }) {
		f.Minor = r.source.Minor(ctx)
	}
	r.readClaims(ctx, f.ClaimsToRead(driver), f.Claims)
	f.Admission = r.source.Admission(ctx)
	return f, nil
}

// Release reads the facts for the release of a driver's PVs. It returns an error if the PVs cannot be read.
func (r *Reader) Release(ctx context.Context, driver string) (StatusFacts, error) {
	f, err := r.Status(ctx, driver)
	if err == nil {
		f.Sidecars = r.source.Sidecars(ctx, driver)
	}
	return f, err
}

// Leaders returns the pods that lead for a driver as NAMESPACE/NAME, sorted: one for the whole cluster, or one for each
// node. Several pods also mean that it is not known which of them leads.
func (r *Reader) Leaders(ctx context.Context, driver string) ([]string, error) {
	f := StatusFacts{ClusterFacts: ClusterFacts{Now: r.cfg.Clock.Now(), Leases: r.source.Leases(ctx, leaseNames(driver))}}
	if f.Leases.Err != nil {
		return nil, f.Leases.Err
	}
	if leaders := f.LeadersOf(driver); len(leaders) > 0 {
		return leaders, nil
	}
	f.Sidecars = r.source.Sidecars(ctx, driver)
	return podsOf(f.onNodes(driver)), f.Sidecars.Err
}

// CheckDriver lists the kinds that may name a driver, until one of them does: see ClusterFacts.CheckDriver.
func (r *Reader) CheckDriver(ctx context.Context, driver string) error {
	var w ClusterFacts
	if w.Installed = r.source.Installed(ctx); driver == "" || slices.Contains(w.Installed.Value, driver) {
		return nil
	}
	if w.OnNodes = r.source.OnNodes(ctx); slices.Contains(w.OnNodes.Value, driver) {
		return nil
	}
	w.InFlight, w.PVs = r.source.InFlight(ctx), r.source.PVs(ctx)
	return w.CheckDriver(driver)
}

// concurrentReads limits the number of parallel GETs.
const concurrentReads = 10

func (r *Reader) readClaims(ctx context.Context, claims []volume.ClaimRef,
	into map[volume.ClaimRef]Read[*v1.PersistentVolumeClaim]) {
	var (
		mu      sync.Mutex
		readers errgroup.Group
	)
	readers.SetLimit(concurrentReads)
	for _, claim := range claims {
		readers.Go(func() error {
			return panics.Contain(ctx, func() { // a claim whose read panics stays unread
				read := Optional(r.source.Claim(ctx, claim.Namespace, claim.Name))
				mu.Lock()
				defer mu.Unlock()
				into[claim] = read
			}, "claim", claim)
		})
	}
	_ = readers.Wait() // the errors are in the results
}

// cluster reads the objects that all PVs share, and the Leases of these names.
func (r *Reader) cluster(ctx context.Context, leases []string) ClusterFacts {
	w := ClusterFacts{Now: r.cfg.Clock.Now(), Role: r.cfg.Role}
	w.PVs = r.source.PVs(ctx)
	w.Attachments = r.source.Attachments(ctx)
	w.Installed = r.source.Installed(ctx)
	w.OnNodes = r.source.OnNodes(ctx)
	w.Leases = r.source.Leases(ctx, leases)
	w.InFlight = r.source.InFlight(ctx)
	return w
}

// LeasesFor returns the names of the Leases of all programs that manage these PVs, sorted.
func LeasesFor(pvs []PV) []string {
	names := map[string]bool{volumeGuard: true}
	drivers := map[string]bool{}
	for _, pv := range pvs {
		if owner := pv.Owner(); !drivers[owner] {
			drivers[owner] = true
			for _, name := range leasesFor(pv) {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// leasesFor returns the names of the Leases of all programs that may manage a PV.
func leasesFor(pv PV) []string {
	names := []string{volumeGuard}
	if owner := pv.Owner(); CSIName(owner) {
		names = append(names, leaseNames(owner)...)
	}
	return names
}

// Optional converts the answer to a GET of an object that may not exist; Value is nil if it does not.
func Optional[T any](o *T, err error) Read[*T] {
	switch {
	case apierrors.IsNotFound(err):
		return Found[*T](nil)
	case err != nil:
		return Failed[*T](err)
	}
	return Found(o)
}
