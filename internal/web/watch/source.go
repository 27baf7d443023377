package watch

import (
	"cmp"
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
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

// KubeletLease watches the Lease from the first call on.
func (c *Cluster) KubeletLease(_ context.Context, node string) (*coordinationv1.Lease, error) {
	t := c.lease(types.NamespacedName{Namespace: v1.NamespaceNodeLease, Name: node})
	if t == nil {
		return nil, errTooMany
	}
	found, err := one(t, coordinationv1.GroupName, v1.NamespaceNodeLease+"/"+node, node)
	if err != nil {
		return nil, err
	}
	return &found, nil
}

func (c *Cluster) NamedPVs(_ context.Context, names []string) explain.Read[map[string]*v1.PersistentVolume] {
	found := map[string]*v1.PersistentVolume{}
	for _, name := range names {
		its, _, err := c.pvs.find(name)
		if err != nil {
			return explain.Failed[map[string]*v1.PersistentVolume](err)
		}
		found[name] = its.object
	}
	return explain.Found(found)
}

// EachClaim visits the claims of Config.Namespace, without the time of a lock, which managedFields would show.
func (c *Cluster) EachClaim(_ context.Context, namespace string, visit func(*v1.PersistentVolumeClaim)) error {
	claims := c.claims.read()
	for _, o := range claims.Value {
		if namespace == metav1.NamespaceAll || o.Namespace == namespace {
			visit(o)
		}
	}
	return claims.Err
}

func (c *Cluster) Nodes(context.Context) explain.Read[[]*v1.Node] { return c.nodes.read() }

func (c *Cluster) Fences(context.Context) explain.Read[[]*v1alpha1.NodeFence] {
	fences := c.fences.read()
	if fences.Err != nil {
		fences.Err = explain.FencingError(fences.Err)
	}
	return fences
}

func (c *Cluster) Classes(context.Context) explain.Read[[]*storagev1.StorageClass] {
	return c.classes.read()
}

// labelsAge is the age up to which the labels of namespaces, which no cache holds, are not read again.
const labelsAge = 30 * time.Second

func (c *Cluster) Namespaces(ctx context.Context, name string) explain.Read[map[string]map[string]string] {
	if name != c.cfg.Namespace {
		return c.Source.Namespaces(ctx, name)
	}
	c.slow.mu.Lock()
	labels, read := c.slow.labels, c.slow.labelsRead
	c.slow.mu.Unlock()
	now := c.now()
	if labels.OK() && now.Sub(read) <= labelsAge {
		return labels
	}
	labels = c.Source.Namespaces(ctx, name) // without the lock, for which all tables wait
	c.slow.mu.Lock()
	defer c.slow.mu.Unlock()
	c.slow.labels, c.slow.labelsRead = labels, now
	return labels
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

func (c *Cluster) InFlight(context.Context) explain.Read[explain.InFlightLogs] {
	return deriveFrom(&c.inFlight, c.shards, explain.InFlightOf)
}

// podIndex holds the pods that use a claim, by "namespace/name", and the pods of each node.
type podIndex struct{ ofClaim, onNode map[string][]*explain.Pod }

func (c *Cluster) podIndex() explain.Read[podIndex] {
	return deriveFrom(&c.podsOf, c.pods, func(all []explain.Pod) podIndex {
		i := podIndex{map[string][]*explain.Pod{}, map[string][]*explain.Pod{}}
		for at := range all {
			p := &all[at]
			i.onNode[p.Node] = append(i.onNode[p.Node], p)
			for _, claim := range p.Claims {
				i.ofClaim[p.Namespace+"/"+claim] = append(i.ofClaim[p.Namespace+"/"+claim], p)
			}
		}
		return i
	})
}

func pick(from []*explain.Pod) []explain.Pod {
	all := make([]explain.Pod, 0, len(from))
	for _, p := range from {
		all = append(all, *p)
	}
	return all
}

func (c *Cluster) Pods(_ context.Context, namespace string) explain.Read[[]explain.Pod] {
	read := c.pods.read()
	if namespace != metav1.NamespaceAll {
		read.Value = slices.DeleteFunc(slices.Clone(read.Value), func(p explain.Pod) bool { return p.Namespace != namespace })
	}
	return read
}

func (c *Cluster) PodsOn(_ context.Context, node string) explain.Read[[]explain.Pod] {
	read := c.podIndex()
	return explain.ReadOf(pick(read.Value.onNode[node]), read.Err)
}

// Admission returns the result of the last poll.
func (c *Cluster) Admission(context.Context) explain.Read[admission.Coverage] {
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
