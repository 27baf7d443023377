package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/version"
	admissionv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// Source provides the objects to a Reader, from the API server or from watch caches. Its methods are safe for
// concurrent use. The returned objects are read-only and never change. For an object that does not exist, a method
// returns an error for which apierrors.IsNotFound is true.
type Source interface {
	Objects
	Lists
}

type Objects interface {
	PV(ctx context.Context, name string) (*v1.PersistentVolume, error)
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	Node(ctx context.Context, name string) (*v1.Node, error)
	Class(ctx context.Context, name string) (*storagev1.StorageClass, error)
}

// Lists reads collections, which may be large.
type Lists interface {
	PVs(ctx context.Context) Read[[]PV]
	Attachments(ctx context.Context) Read[[]storagev1.VolumeAttachment]
	// Installed returns the names of all CSIDrivers, OnNodes the names of all drivers in CSINodes.
	Installed(ctx context.Context) Read[[]string]
	OnNodes(ctx context.Context) Read[[]string]
	// Leases returns the Leases with these names in all namespaces.
	Leases(ctx context.Context, names []string) Read[[]coordinationv1.Lease]
	// Sidecars returns the Leases of all namespaces with the label of a driver's csi-reclaimer.
	Sidecars(ctx context.Context, driver string) Read[[]coordinationv1.Lease]
	InFlight(ctx context.Context) Read[InFlightLogs]
	Pods(ctx context.Context, namespace string) Read[[]pvc.Pod]
	// Events returns the Events about an object, the latest last.
	Events(ctx context.Context, namespace string, about metav1.Object) Read[[]v1.Event]
	Admission(ctx context.Context) Read[Admission]
	// Minor returns the API server's minor version, 0 if unknown.
	Minor(ctx context.Context) int
}

type live struct {
	clients   kube.Clients
	admission admissionv1.AdmissionregistrationV1Interface
}

// Live returns the Source that asks the API server at each call. It copies config and reads nothing yet.
func Live(config *rest.Config) (Source, error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	admission, err := admissionv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for admissionregistration.k8s.io/v1: %w", err)
	}
	return live{clients, admission}, nil
}

func (l live) PV(ctx context.Context, name string) (*v1.PersistentVolume, error) {
	return l.clients.Core.PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
}

func (l live) Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	return l.clients.Core.PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (l live) Node(ctx context.Context, name string) (*v1.Node, error) {
	return l.clients.Core.Nodes().Get(ctx, name, metav1.GetOptions{})
}

func (l live) Class(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	return l.clients.Storage.StorageClasses().Get(ctx, name, metav1.GetOptions{})
}

func (l live) PVs(ctx context.Context) Read[[]PV] {
	return readOf(kube.ListAll(ctx, l.clients.Core.PersistentVolumes().List, metav1.ListOptions{}, PVOf))
}

func (l live) Attachments(ctx context.Context) Read[[]storagev1.VolumeAttachment] {
	return readOf(kube.ListAll(ctx, l.clients.Storage.VolumeAttachments().List, metav1.ListOptions{},
		func(o *storagev1.VolumeAttachment) storagev1.VolumeAttachment { return *o }))
}

func (l live) Installed(ctx context.Context) Read[[]string] {
	return readOf(kube.ListAll(ctx, l.clients.Storage.CSIDrivers().List, metav1.ListOptions{},
		func(o *storagev1.CSIDriver) string { return o.Name }))
}

func (l live) OnNodes(ctx context.Context) Read[[]string] {
	names, err := kube.ListAll(ctx, l.clients.Storage.CSINodes().List, metav1.ListOptions{}, DriversOf)
	return readOf(slices.Compact(slices.Sorted(slices.Values(slices.Concat(names...)))), err)
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
		found, err := kube.ListAll(ctx, l.clients.Coordination.Leases(metav1.NamespaceAll).List,
			metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()},
			func(o *coordinationv1.Lease) coordinationv1.Lease { return *o })
		if err != nil {
			return Failed[[]coordinationv1.Lease](err)
		}
		all = append(all, found...)
	}
	return Found(all)
}

func (l live) Sidecars(ctx context.Context, driver string) Read[[]coordinationv1.Lease] {
	return readOf(kube.ListAll(ctx, l.clients.Coordination.Leases(metav1.NamespaceAll).List,
		metav1.ListOptions{LabelSelector: labels.Set{objects.DriverLabel: driver}.String()},
		func(o *coordinationv1.Lease) coordinationv1.Lease { return *o }))
}

func (l live) InFlight(ctx context.Context) Read[InFlightLogs] {
	shards, err := kube.ListAll(ctx, l.clients.Coordination.Leases(metav1.NamespaceAll).List,
		metav1.ListOptions{LabelSelector: inflight.LabelLog + "=true"},
		func(o *coordinationv1.Lease) coordinationv1.Lease { return *o })
	if err != nil {
		return Failed[InFlightLogs](err)
	}
	return Found(InFlightOf(shards))
}

// InFlightOf decodes the Leases of in-flight logs.
func InFlightOf(shards []coordinationv1.Lease) (logs InFlightLogs) {
	logs.Entries, logs.Problems = inflight.Locate(shards, nil)
	logs.Fill = inflight.FillOf(shards)
	return logs
}

func (l live) Pods(ctx context.Context, namespace string) Read[[]pvc.Pod] {
	return readOf(kube.ListAll(ctx, l.clients.Core.Pods(namespace).List, metav1.ListOptions{},
		func(o *v1.Pod) pvc.Pod { return pvc.PodOf(o) }))
}

func (l live) Events(ctx context.Context, namespace string, about metav1.Object) Read[[]v1.Event] {
	found, err := kube.ListAll(ctx, l.clients.Core.Events(namespace).List, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(about.GetUID())).String(),
	}, func(o *v1.Event) v1.Event { return *o })
	SortEvents(found)
	return readOf(found, err)
}

func (l live) Minor(ctx context.Context) int {
	body, err := l.clients.Core.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
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

// Admission reads the drivers whose PVs get their finalizer in the write that binds them. An API server that does not
// serve such policies has none.
func (l live) Admission(ctx context.Context) Read[Admission] {
	standing, err := admission.ReadCoverage(ctx, l.admission)
	if err != nil {
		return Failed[Admission](err)
	}
	return Found(Admission{InForce: standing.InForce, Lists: standing.Lists})
}

func readOf[T any](value T, err error) Read[T] { return Read[T]{Made: true, Value: value, Err: err} }
