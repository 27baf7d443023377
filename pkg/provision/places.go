package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
)

// errNodesUnread: the first list of nodes has not come yet.
var errNodesUnread = errors.New("the nodes are not known yet")

// places are where a driver's nodes are, from watch caches that keep no more than that.
type places struct {
	driver  string
	clients kube.Clients
	// labels are those of the Nodes, keys what the driver registered in the CSINodes.
	labels *kube.Cache[topology.Node]
	keys   *kube.Cache[topology.Node]
}

func newPlaces(clients kube.Clients, driver string) *places {
	p := &places{driver: driver, clients: clients}
	p.labels = kube.NewCache(clients.Core.RESTClient(), "nodes", &v1.Node{}, recordLabels, nobody{})
	p.keys = kube.NewCache(clients.Storage.RESTClient(), "csinodes", &storagev1.CSINode{}, p.recordKeys, nobody{})
	return p
}

// nobody is told of changes: no claim waits for one.
type nobody struct{}

func (nobody) Added(topology.Node)                  {}
func (nobody) Updated(topology.Node, topology.Node) {}
func (nobody) Deleted(topology.Node, bool)          {}

func recordLabels(object runtime.Object, _ bool) (topology.Node, bool, error) {
	node, ok := object.(*v1.Node)
	if !ok {
		return topology.Node{}, false, fmt.Errorf("watch nodes: got a %T", object)
	}
	return topology.Node{Name: node.Name, Labels: maps.Clone(node.Labels)}, true, nil
}

// recordKeys keeps those CSINodes alone on which the driver is.
func (p *places) recordKeys(object runtime.Object, _ bool) (topology.Node, bool, error) {
	csiNode, ok := object.(*storagev1.CSINode)
	if !ok {
		return topology.Node{}, false, fmt.Errorf("watch CSINodes: got a %T", object)
	}
	keys := slices.Clone(topology.NodeOf(&v1.Node{}, csiNode, p.driver).Keys)
	return topology.Node{Name: csiNode.Name, Keys: keys}, len(keys) > 0, nil
}

func (p *places) watch(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { p.labels.Run(ctx) })
	all.Go(func() { p.keys.Run(ctx) })
	all.Wait()
}

func (p *places) synced() bool { return p.labels.Synced() && p.keys.Synced() }

// nodes returns all nodes.
func (p *places) nodes() ([]topology.Node, error) {
	if !p.synced() {
		return nil, errNodesUnread
	}
	var all []topology.Node
	p.labels.Each(func(n topology.Node) {
		if on, found := p.keys.Get(n.Name); found {
			n.Keys = on.Keys
		}
		all = append(all, n)
	})
	return all, nil
}

// node returns the node of that name, nil if there is none. One on which the caches do not show the
// driver is read live: it may have joined a moment ago. known is what somebody has read of it, or
// nil.
func (p *places) node(ctx context.Context, name string, known *v1.Node) (*topology.Node, error) {
	n, found := p.labels.Get(name)
	on, registered := p.keys.Get(name)
	if n.Keys = on.Keys; found && registered {
		return &n, nil
	}
	if known == nil || known.Name != name {
		var err error
		if known, err = p.readNode(ctx, name); err != nil || known == nil {
			return nil, err
		}
	}
	csiNode, err := p.clients.Storage.CSINodes().Get(ctx, name, metav1.GetOptions{})
	if csiNode, err = orNil(csiNode, err, "CSINode", name); err != nil {
		return nil, err
	}
	live := topology.NodeOf(known, csiNode, p.driver)
	return &live, nil
}

func (p *places) readNode(ctx context.Context, name string) (*v1.Node, error) {
	node, err := p.clients.Core.Nodes().Get(ctx, name, metav1.GetOptions{})
	return orNil(node, err, "node", name)
}
