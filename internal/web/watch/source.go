package watch

import (
	"cmp"
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
)

var _ explain.Source = &Cluster{}

// one returns a record, or an error like the API server's if the object does not exist.
func one[R any](t *table[R], group, key, name string) (r R, err error) {
	r, found, err := t.find(key)
	if err == nil && !found {
		err = apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: t.kind.resource}, name)
	}
	return r, err
}

func (c *Cluster) PV(_ context.Context, name string) (*v1.PersistentVolume, error) {
	found, err := one(c.pvs, "", name, name)
	return found.object, err
}

func (c *Cluster) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	if c.beyond(namespace) {
		return nil, errOtherNamespace
	}
	return one(c.claims, "", namespace+"/"+name, name)
}

func (c *Cluster) Node(_ context.Context, name string) (*v1.Node, error) {
	return one(c.nodes, "", name, name)
}

func (c *Cluster) Class(_ context.Context, name string) (*storagev1.StorageClass, error) {
	return one(c.classes, storagev1.GroupName, name, name)
}

// PVs returns all PVs, sorted by name.
func (c *Cluster) PVs(context.Context) explain.Read[[]explain.PV] {
	return deriveFrom(&c.pvRecords, c.pvs, func(all []pv) []explain.PV {
		records := make([]explain.PV, 0, len(all))
		for i := range all {
			records = append(records, all[i].PV)
		}
		slices.SortFunc(records, func(a, b explain.PV) int { return cmp.Compare(a.Name, b.Name) })
		return records
	})
}

func (c *Cluster) Attachments(context.Context) explain.Read[[]storagev1.VolumeAttachment] {
	return c.attachments.read()
}

func (c *Cluster) Installed(context.Context) explain.Read[[]string] { return c.drivers.read() }

func (c *Cluster) OnNodes(context.Context) explain.Read[[]string] {
	return deriveFrom(&c.onNodes, c.csiNodes, func(all [][]string) []string {
		return slices.Compact(slices.Sorted(slices.Values(slices.Concat(all...))))
	})
}

// Leases returns the Leases with these names in all namespaces, and watches them from the first call on.
func (c *Cluster) Leases(_ context.Context, names []string) explain.Read[[]coordinationv1.Lease] {
	var all []coordinationv1.Lease
	var failed error
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		t := c.lease(types.NamespacedName{Name: name})
		if t == nil {
			failed = errTooMany
			continue
		}
		read := t.read()
		if read.Err != nil {
			failed = read.Err
		}
		all = append(all, read.Value...)
	}
	if failed != nil {
		return explain.Failed[[]coordinationv1.Lease](failed)
	}
	return explain.Found(all)
}

// Sidecars reads the Leases from the API server.
func (c *Cluster) Sidecars(ctx context.Context, driver string) explain.Read[[]coordinationv1.Lease] {
	return c.live.Sidecars(ctx, driver)
}

func (c *Cluster) InFlight(context.Context) explain.Read[explain.InFlightLogs] {
	return deriveFrom(&c.inFlight, c.shards, explain.InFlightOf)
}

type podIndex struct {
	inNamespace, ofClaim map[string][]pvc.Pod
	onNode               map[string][]pod
}

func (c *Cluster) podIndex() explain.Read[podIndex] {
	return deriveFrom(&c.podsOf, c.pods, func(all []pod) podIndex {
		i := podIndex{inNamespace: map[string][]pvc.Pod{}, ofClaim: map[string][]pvc.Pod{}, onNode: map[string][]pod{}}
		for _, p := range all {
			i.inNamespace[p.Namespace] = append(i.inNamespace[p.Namespace], p.uses)
			i.onNode[p.Node] = append(i.onNode[p.Node], p)
			for _, claim := range p.Claims {
				i.ofClaim[p.Namespace+"/"+claim] = append(i.ofClaim[p.Namespace+"/"+claim], p.uses)
			}
		}
		return i
	})
}

func (c *Cluster) Pods(_ context.Context, namespace string) explain.Read[[]pvc.Pod] {
	read := c.podIndex()
	return explain.Read[[]pvc.Pod]{Made: true, Err: read.Err, Value: read.Value.inNamespace[namespace]}
}

// Events reads the Events about an object from the API server.
func (c *Cluster) Events(ctx context.Context, namespace string, about metav1.Object) explain.Read[[]v1.Event] {
	return c.live.Events(ctx, namespace, about)
}

// Admission returns the result of the last poll.
func (c *Cluster) Admission(context.Context) explain.Read[explain.Admission] {
	c.slow.mu.Lock()
	defer c.slow.mu.Unlock()
	return c.slow.admission
}

// Minor returns the result of the last poll, or of Load.
func (c *Cluster) Minor(context.Context) int {
	c.slow.mu.Lock()
	defer c.slow.mu.Unlock()
	return c.slow.minor
}
