package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/version"
	policyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Cluster is a cluster to explain. It is safe for concurrent use.
type Cluster struct {
	// Source provides the objects that a page keeps in watch caches. API reads all others from the API server.
	Source
	API
	// Role is the role in which csi-reclaimer decides. RoleUnknown has it guessed for each driver.
	Role volume.Role
	// Clock is the source of the times of reads.
	Clock clock.PassiveClock
}

// API has the clients of a cluster. Every read through them is live.
type API struct {
	kube.Clients
	Policy  policyv1.PolicyV1Interface
	Fencing *client.Client
}

// Live returns the Cluster of config, all of whose reads are live. It copies config and reads nothing yet.
func Live(config *rest.Config, role volume.Role) (Cluster, error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return Cluster{}, err
	}
	policy, err := policyv1.NewForConfig(kube.ConfigOf(config))
	if err != nil {
		return Cluster{}, fmt.Errorf("create a client for policy/v1: %w", err)
	}
	fencing, err := client.New(config)
	if err != nil {
		return Cluster{}, err
	}
	api := API{clients, policy, fencing}
	return Cluster{Source: live{api}, API: api, Role: role, Clock: clock.RealClock{}}, nil
}

// Live returns the Cluster without caches. What proves the end of processes is only evidence if it was read after
// their pod, so such reads are live, and none of them is made once for several pods.
func (c Cluster) Live() Cluster {
	c.Source = live{c.API}
	return c
}

// Now returns the present time of Clock.
func (c Cluster) Now() time.Time { return c.Clock.Now() }

// Source provides the objects that explanations need, from the API server or from watch caches. Its methods are safe
// for concurrent use. The returned objects are read-only and never change.
type Source interface {
	// PV and the next methods read single objects. For an object that does not exist, they return an error for which
	// kube.AnyAbsent is true.
	PV(ctx context.Context, name string) (*v1.PersistentVolume, error)
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	Node(ctx context.Context, name string) (*v1.Node, error)
	Class(ctx context.Context, name string) (*storagev1.StorageClass, error)
	// KubeletLease returns the Lease of a node's kubelet.
	KubeletLease(ctx context.Context, node string) (*coordinationv1.Lease, error)

	// The next methods read collections, which may be large.
	PVs(ctx context.Context) Read[[]PV]
	// NamedPVs returns the PVs with these names, which are sorted, and nil for a PV that does not exist.
	NamedPVs(ctx context.Context, names []string) Read[map[string]*v1.PersistentVolume]
	// EachClaim visits the claims of a namespace, or of all namespaces if namespace is empty.
	EachClaim(ctx context.Context, namespace string, visit func(*v1.PersistentVolumeClaim)) error
	// Pods returns the pods of a namespace, or of all namespaces if namespace is empty. PodsOn returns the pods that are
	// bound to a node.
	Pods(ctx context.Context, namespace string) Read[[]Pod]
	PodsOn(ctx context.Context, node string) Read[[]Pod]
	// Nodes returns all nodes, with only the fields that decisions need.
	Nodes(ctx context.Context) Read[[]*v1.Node]
	// Fences returns all NodeFences. Err is ErrNoFencing if the API server does not serve the kind.
	Fences(ctx context.Context) Read[[]*v1alpha1.NodeFence]
	Classes(ctx context.Context) Read[[]*storagev1.StorageClass]
	// Namespaces returns the labels of the namespace with this name, or of all if name is empty, by name.
	Namespaces(ctx context.Context, name string) Read[map[string]map[string]string]
	Attachments(ctx context.Context) Read[[]storagev1.VolumeAttachment]
	// Installed returns the names of all CSIDrivers, OnNodes the names of all drivers in CSINodes.
	Installed(ctx context.Context) Read[[]string]
	OnNodes(ctx context.Context) Read[[]string]
	// Leases returns the Leases with these names in all namespaces.
	Leases(ctx context.Context, names []string) Read[[]coordinationv1.Lease]
	// Sidecars returns the Leases of all namespaces with the label of a driver's csi-reclaimer.
	Sidecars(ctx context.Context, driver string) Read[[]coordinationv1.Lease]
	InFlight(ctx context.Context) Read[InFlightLogs]
	// Events returns the Events about an object, the latest last.
	Events(ctx context.Context, namespace string, about metav1.Object) Read[[]v1.Event]
	// Admission returns the coverage by the admission policies, and by the webhooks for older API servers, that add the
	// finalizer in the same write that binds a PV or sets its policy to Delete.
	Admission(ctx context.Context) Read[admission.Coverage]
	// Minor returns the API server's minor version, 0 if unknown.
	Minor(ctx context.Context) int
}

// live is the Source that asks the API server at each call.
type live struct{ API }

func (l live) PV(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return kube.GetObject(ctx, kube.PV.Resource, name, l.Core.PersistentVolumes().Get)
}

func (l live) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return kube.GetObject(ctx, kube.Claim.Resource, name, l.Core.PersistentVolumeClaims(namespace).Get)
}

func (l live) Node(ctx context.Context, name string) (*v1.Node, error) {
	return kube.GetObject(ctx, kube.Node.Resource, name, l.Core.Nodes().Get)
}

func (l live) Class(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	return kube.GetObject(ctx, kube.StorageClass.Resource, name, l.Storage.StorageClasses().Get)
}

func (l live) KubeletLease(ctx context.Context, node string) (*coordinationv1.Lease, error) {
	return kube.GetObject(ctx, kube.NodeLease.Resource, node, l.Coordination.Leases(v1.NamespaceNodeLease).Get)
}

func (l live) PVs(ctx context.Context) Read[[]PV] {
	return ReadOf(kube.ListAll(ctx, l.Core.PersistentVolumes().List, metav1.ListOptions{}, PVOf))
}

// maxGets is the number of PVs up to which GETs are cheaper than a list of all PVs.
const maxGets = 50

func (l live) NamedPVs(ctx context.Context, names []string) Read[map[string]*v1.PersistentVolume] {
	found := map[string]*v1.PersistentVolume{}
	if len(names) > maxGets {
		err := kube.EachOf(ctx, l.Core.PersistentVolumes().List, metav1.ListOptions{}, func(o *v1.PersistentVolume) {
			if _, needed := slices.BinarySearch(names, o.Name); needed {
				found[o.Name] = o
			}
		})
		return ReadOf(found, err)
	}
	for _, name := range names {
		read := Optional(l.PV(ctx, name))
		if read.Err != nil {
			return Failed[map[string]*v1.PersistentVolume](read.Err)
		}
		found[name] = read.Value
	}
	return Found(found)
}

func (l live) EachClaim(ctx context.Context, namespace string, visit func(*v1.PersistentVolumeClaim)) error {
	return kube.EachOf(ctx, l.Core.PersistentVolumeClaims(namespace).List, metav1.ListOptions{}, visit)
}

func (l live) Pods(ctx context.Context, namespace string) Read[[]Pod] {
	return ReadOf(kube.ListAll(ctx, l.Core.Pods(namespace).List, metav1.ListOptions{}, PodOf))
}

func (l live) PodsOn(ctx context.Context, node string) Read[[]Pod] {
	return ReadOf(kube.ListAll(ctx, l.Core.Pods(metav1.NamespaceAll).List, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}, PodOf))
}

func (l live) Nodes(ctx context.Context) Read[[]*v1.Node] {
	return ReadOf(kube.ListAll(ctx, l.Core.Nodes().List, metav1.ListOptions{}, NodeOf))
}

func (l live) Fences(ctx context.Context) Read[[]*v1alpha1.NodeFence] {
	all, err := kube.ListAll(ctx, l.Fencing.Fences.List, metav1.ListOptions{}, Same[v1alpha1.NodeFence])
	return ReadOf(all, FencingError(err))
}

func (l live) Classes(ctx context.Context) Read[[]*storagev1.StorageClass] {
	return ReadOf(kube.ListAll(ctx, l.Storage.StorageClasses().List, metav1.ListOptions{}, Same[storagev1.StorageClass]))
}

func (l live) Namespaces(ctx context.Context, name string) Read[map[string]map[string]string] {
	found := map[string]map[string]string{}
	if name == metav1.NamespaceAll {
		err := kube.EachOf(ctx, l.Core.Namespaces().List, metav1.ListOptions{},
			func(o *v1.Namespace) { found[o.Name] = o.Labels })
		return ReadOf(found, err)
	}
	o := Optional(l.Core.Namespaces().Get(ctx, name, metav1.GetOptions{}))
	if o.Value != nil {
		found[name] = o.Value.Labels
	}
	return ReadOf(found, o.Err)
}

func (l live) Attachments(ctx context.Context) Read[[]storagev1.VolumeAttachment] {
	return ReadOf(kube.ListAll(ctx, l.Storage.VolumeAttachments().List, metav1.ListOptions{},
		Value[storagev1.VolumeAttachment]))
}

func (l live) Installed(ctx context.Context) Read[[]string] {
	return ReadOf(kube.ListAll(ctx, l.Storage.CSIDrivers().List, metav1.ListOptions{},
		func(o *storagev1.CSIDriver) string { return o.Name }))
}

func (l live) OnNodes(ctx context.Context) Read[[]string] {
	names, err := kube.ListAll(ctx, l.Storage.CSINodes().List, metav1.ListOptions{}, DriversOf)
	return ReadOf(slices.Compact(slices.Sorted(slices.Values(slices.Concat(names...)))), err)
}

// DriversOf returns the names of the drivers that run on a node.
func DriversOf(o *storagev1.CSINode) (names []string) {
	for _, driver := range o.Spec.Drivers {
		names = append(names, driver.Name)
	}
	return names
}

// Leases makes one request per name, because the full list also holds the kubelet's Lease of each node.
func (l live) Leases(ctx context.Context, names []string) Read[[]coordinationv1.Lease] {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	var all []coordinationv1.Lease
	for _, name := range names {
		found, err := l.leases(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
		if err != nil {
			return Failed[[]coordinationv1.Lease](err)
		}
		all = append(all, found...)
	}
	return Found(all)
}

func (l live) leases(ctx context.Context, of metav1.ListOptions) ([]coordinationv1.Lease, error) {
	return kube.ListAll(ctx, l.Coordination.Leases(metav1.NamespaceAll).List, of, Value[coordinationv1.Lease])
}

func (l live) Sidecars(ctx context.Context, driver string) Read[[]coordinationv1.Lease] {
	return ReadOf(l.leases(ctx, metav1.ListOptions{LabelSelector: labels.Set{objects.DriverLabel: driver}.String()}))
}

func (l live) InFlight(ctx context.Context) Read[InFlightLogs] {
	return Then(ReadOf(inflight.List(ctx, l.Coordination, metav1.ListOptions{}, nil)), InFlightOf)
}

func (l live) Events(ctx context.Context, namespace string, about metav1.Object) Read[[]v1.Event] {
	return l.EventsOf(ctx, namespace, fields.Set{"involvedObject.uid": string(about.GetUID())})
}

// EventsOf returns the Events that match any of the field selectors, the latest last.
func (a API) EventsOf(ctx context.Context, namespace string, selectors ...fields.Set) Read[[]v1.Event] {
	var all []v1.Event
	for _, selects := range selectors {
		found, err := kube.ListAll(ctx, a.Core.Events(namespace).List, metav1.ListOptions{
			FieldSelector: selects.AsSelector().String()}, Value[v1.Event])
		if err != nil {
			return Failed[[]v1.Event](err)
		}
		all = append(all, found...)
	}
	SortEvents(all)
	return Found(all)
}

func (l live) Minor(ctx context.Context) int {
	body, err := l.Core.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
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

// Admission returns no coverage for an API server that does not serve such policies.
func (l live) Admission(ctx context.Context) Read[admission.Coverage] {
	return ReadOf(admission.ReadCoverage(ctx, l.Clients.Admission))
}

// Fence reads the NodeFence of a node, see FenceRead.
func (a API) Fence(ctx context.Context, node string) Read[*v1alpha1.NodeFence] {
	o, err := a.Fencing.Fences.Get(ctx, node, metav1.GetOptions{})
	return FenceRead(o, err, node)
}

// Value and Same keep the whole objects of a list, see kube.ListAll.
func Value[O any](o *O) O { return *o }

func Same[O any](o *O) *O { return o }

// Read is the result of one read of the API server. The zero value means that no read was made.
type Read[T any] struct {
	Made  bool
	Value T
	// Err is the reason for a failed read; Value is then zero.
	Err error
}

// OK reports whether the read succeeded, so that Value is the API server's answer.
func (r Read[T]) OK() bool { return r.Made && r.Err == nil }

func Found[T any](value T) Read[T] { return Read[T]{Made: true, Value: value} }

func Failed[T any](err error) Read[T] { return Read[T]{Made: true, Err: err} }

// ReadOf converts the answer to a request.
func ReadOf[T any](value T, err error) Read[T] {
	if err != nil {
		return Failed[T](err)
	}
	return Found(value)
}

// Optional converts the answer to a GET of an object that may not exist; Value is nil if the API server says so.
func Optional[T any](o *T, err error) Read[*T] {
	if kube.AnyAbsent(err) {
		return Found[*T](nil)
	}
	return ReadOf(o, err)
}

// ByName returns the objects of a list by their names.
func ByName[O metav1.Object](all Read[[]O]) Read[map[string]O] {
	return Then(all, func(all []O) map[string]O {
		by := make(map[string]O, len(all))
		for _, o := range all {
			by[o.GetName()] = o
		}
		return by
	})
}

// Then converts the value of a read that succeeded.
func Then[T, U any](r Read[T], convert func(T) U) Read[U] {
	to := Read[U]{Made: r.Made, Err: r.Err}
	if r.OK() {
		to.Value = convert(r.Value)
	}
	return to
}

// Filter returns the elements that fit.
func Filter[E any](all []E, fits func(E) bool) (fit []E) {
	for _, e := range all {
		if fits(e) {
			fit = append(fit, e)
		}
	}
	return fit
}
