package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/version"
	admissionv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Config holds the settings of a Reader. The zero value is usable.
type Config struct {
	// Role is the one in which csi-reclaimer decides. Default: guessed for each driver.
	Role volume.Role
	// Clock is replaced in tests. Default the real one.
	Clock clock.PassiveClock
}

// Reader reads what is explained. Its methods are safe for concurrent use.
type Reader struct {
	cfg       Config
	clients   kube.Clients
	admission admissionv1.AdmissionregistrationV1Interface
}

// New returns a Reader of the cluster that config describes. config is copied. Nothing is read yet.
func New(config *rest.Config, cfg Config) (*Reader, error) {
	if config == nil {
		return nil, errors.New("create a reader: no cluster is given")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	admission, err := admissionv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for admissionregistration.k8s.io/v1: %w", err)
	}
	return &Reader{cfg: cfg, clients: clients, admission: admission}, nil
}

// PV reads the facts about the PV with this name. An error means that the PV itself does not exist or could
// not be read; every other read that failed is part of the facts.
func (r *Reader) PV(ctx context.Context, name string) (PVFacts, error) {
	pv, err := r.clients.Core.PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return PVFacts{}, fmt.Errorf("read PV %q: %w", name, err)
	}
	return r.related(ctx, pv, r.cluster(ctx, leasesFor(PVOf(pv))))
}

// related reads what belongs to a PV. The PV is read again last, as before a deletion: people rescue a volume by
// editing its PV.
func (r *Reader) related(ctx context.Context, pv *v1.PersistentVolume, w ClusterFacts) (PVFacts, error) {
	f := PVFacts{ClusterFacts: w, Nodes: map[string]Read[*v1.Node]{}}
	for i := range w.Attachments.Value {
		a := &w.Attachments.Value[i]
		if name := a.Spec.Source.PersistentVolumeName; name == nil || *name != pv.Name {
			continue
		}
		node := a.Spec.NodeName
		f.Nodes[node] = Optional(r.clients.Core.Nodes().Get(ctx, node, metav1.GetOptions{}))
	}
	if ref := pv.Spec.ClaimRef; ref != nil {
		f.Claim = Optional(r.clients.Core.PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{}))
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
	f.Events = r.events(ctx, metav1.NamespaceDefault, pv)
	if pv.Spec.CSI == nil {
		f.Minor = r.minor(ctx)
	}
	name := pv.Name
	pv, err := r.clients.Core.PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return PVFacts{}, fmt.Errorf("read PV %q: %w", name, err)
	}
	f.PV = pv
	return f, nil
}

// Claim reads the facts about a claim, and about its PV. An error means that the claim itself does not exist or
// could not be read. See DeletedClaim for one that does not exist.
func (r *Reader) Claim(ctx context.Context, namespace, name string) (ClaimFacts, error) {
	claim, err := r.clients.Core.PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ClaimFacts{}, fmt.Errorf("read claim %q: %w", namespace+"/"+name, err)
	}
	f := ClaimFacts{Claim: claim, Events: r.events(ctx, namespace, claim)}
	if class := className(claim); class != "" {
		f.Class = Optional(r.clients.Storage.StorageClasses().Get(ctx, class, metav1.GetOptions{}))
	}
	pods, err := kube.ListAll(ctx, r.clients.Core.Pods(namespace).List, metav1.ListOptions{},
		func(o *v1.Pod) pvc.Pod { return pvc.PodOf(o) })
	f.Pods = Read[[]pvc.Pod]{Made: true, Value: pods, Err: err}
	var pv Read[*v1.PersistentVolume]
	leases := leasesFor(PV{})
	if claim.Spec.VolumeName != "" {
		pv = Optional(r.clients.Core.PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{}))
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

// DeletedClaim reads the entries of the in-flight logs for claims of this namespace and name. found is false if there
// are none, or they cannot be read.
func (r *Reader) DeletedClaim(ctx context.Context, namespace, name string) (w ClusterFacts, found bool) {
	w = ClusterFacts{Now: r.cfg.Clock.Now(), Role: r.cfg.Role, InFlight: r.inFlight(ctx)}
	if len(w.entriesOf(namespace, name)) == 0 {
		return w, false
	}
	pvs, err := kube.ListAll(ctx, r.clients.Core.PersistentVolumes().List, metav1.ListOptions{}, PVOf)
	w.PVs = Read[[]PV]{true, pvs, err}
	return w, true
}

// Status reads the facts for the status of a driver, or of all where none is named. An error means that
// the PVs could not be read.
func (r *Reader) Status(ctx context.Context, driver string) (StatusFacts, error) {
	f := StatusFacts{ClusterFacts: r.cluster(ctx, nil), Claims: map[volume.ClaimRef]Read[*v1.PersistentVolumeClaim]{}}
	if f.PVs.Err != nil {
		return StatusFacts{}, fmt.Errorf("list PVs: %w", f.PVs.Err)
	}
	var names []string
	for _, pv := range f.PVs.Value {
		names = append(names, leasesFor(pv)...)
	}
	f.Leases = r.leases(ctx, names)
	r.readClaims(ctx, f.ClaimsToRead(driver), f.Claims)
	f.Admission = r.readAdmission(ctx)
	return f, nil
}

// concurrentReads is how many objects are read at the same time.
const concurrentReads = 10

// readClaims reads claims into a map.
func (r *Reader) readClaims(ctx context.Context, claims []volume.ClaimRef,
	into map[volume.ClaimRef]Read[*v1.PersistentVolumeClaim]) {
	var (
		mu      sync.Mutex
		readers errgroup.Group
	)
	readers.SetLimit(concurrentReads)
	for _, claim := range claims {
		readers.Go(func() error {
			read := Optional(r.clients.Core.PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{}))
			mu.Lock()
			defer mu.Unlock()
			into[claim] = read
			return nil
		})
	}
	_ = readers.Wait() // the errors are in what was read
}

// cluster reads what all PVs have in common, and the Leases of these names.
func (r *Reader) cluster(ctx context.Context, leases []string) ClusterFacts {
	w := ClusterFacts{Now: r.cfg.Clock.Now(), Role: r.cfg.Role}
	pvs, err := kube.ListAll(ctx, r.clients.Core.PersistentVolumes().List, metav1.ListOptions{}, PVOf)
	w.PVs = Read[[]PV]{true, pvs, err}
	attachments, err := kube.ListAll(ctx, r.clients.Storage.VolumeAttachments().List, metav1.ListOptions{},
		func(o *storagev1.VolumeAttachment) storagev1.VolumeAttachment { return *o })
	w.Attachments = Read[[]storagev1.VolumeAttachment]{true, attachments, err}
	installed, err := kube.ListAll(ctx, r.clients.Storage.CSIDrivers().List, metav1.ListOptions{},
		func(o *storagev1.CSIDriver) string { return o.Name })
	w.Installed = Read[[]string]{true, installed, err}
	onNodes, err := kube.ListAll(ctx, r.clients.Storage.CSINodes().List, metav1.ListOptions{},
		func(o *storagev1.CSINode) (names []string) {
			for _, driver := range o.Spec.Drivers {
				names = append(names, driver.Name)
			}
			return names
		})
	w.OnNodes = Read[[]string]{true, slices.Compact(slices.Sorted(slices.Values(slices.Concat(onNodes...)))), err}
	w.Leases = r.leases(ctx, leases)
	w.InFlight = r.inFlight(ctx)
	return w
}

// leasesFor returns the names of the Leases of the programs that manage a PV.
func leasesFor(pv PV) []string {
	names := []string{volumeGuard}
	if owner := pv.Owner(); owner != "" && !strings.HasPrefix(owner, inTreePrefix) {
		names = append(names, leaseNames(owner)...)
	}
	return names
}

// leases reads the Leases of these names in all namespaces: a cluster has one of the
// kubelet's for each node besides.
func (r *Reader) leases(ctx context.Context, names []string) Read[[]coordinationv1.Lease] {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	var all []coordinationv1.Lease
	for _, name := range names {
		found, err := kube.ListAll(ctx, r.clients.Coordination.Leases(metav1.NamespaceAll).List,
			metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()},
			func(o *coordinationv1.Lease) coordinationv1.Lease { return *o })
		if err != nil {
			return Failed[[]coordinationv1.Lease](err)
		}
		all = append(all, found...)
	}
	return Found(all)
}

// addInFlight reads the in-flight logs of all provisioners, in all namespaces.
func (r *Reader) inFlight(ctx context.Context) Read[InFlightLogs] {
	shards, err := kube.ListAll(ctx, r.clients.Coordination.Leases(metav1.NamespaceAll).List,
		metav1.ListOptions{LabelSelector: inflight.LabelLog + "=true"},
		func(o *coordinationv1.Lease) coordinationv1.Lease { return *o })
	if err != nil {
		return Failed[InFlightLogs](err)
	}
	var logs InFlightLogs
	logs.Entries, logs.Problems = inflight.Locate(shards)
	return Found(logs)
}

// events reads the Events about an object. Those about PVs are in the namespace default.
func (r *Reader) events(ctx context.Context, namespace string, o metav1.Object) Read[[]v1.Event] {
	found, err := kube.ListAll(ctx, r.clients.Core.Events(namespace).List,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(o.GetUID())).String()},
		func(o *v1.Event) v1.Event { return *o })
	SortEvents(found)
	return Read[[]v1.Event]{true, found, err}
}

// minor reads the API server's version, of 1.36 the 36; 0 where it is not known.
func (r *Reader) minor(ctx context.Context) int {
	body, err := r.clients.Core.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	var v version.Info
	if err != nil || json.Unmarshal(body, &v) != nil {
		return 0
	}
	minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	if err != nil {
		return 0
	}
	return minor
}

// readAdmission reads which drivers' PVs are protected in the write that binds them. An API server that does not know
// such policies has none.
func (r *Reader) readAdmission(ctx context.Context) Read[Admission] {
	standing, err := admission.ReadCoverage(ctx, r.admission)
	if err != nil {
		return Failed[Admission](err)
	}
	return Found(Admission{InForce: standing.InForce, Lists: standing.Lists})
}

// Optional returns the result of a read of an object that may not exist; its Value is then nil.
func Optional[T any](o *T, err error) Read[*T] {
	switch {
	case apierrors.IsNotFound(err):
		return Found[*T](nil)
	case err != nil:
		return Failed[*T](err)
	}
	return Found(o)
}
