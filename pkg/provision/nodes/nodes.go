// Package nodes provides the topology of a driver's nodes, which package topology evaluates, from small watch caches.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package nodes

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
)

// ErrUnread means that the first list of nodes has not arrived yet.
var ErrUnread = errors.New("the nodes are not known yet")

var csiNodes = kube.Kind{Resource: storagev1.Resource("csinodes"), Word: "CSINode"}

// Lister lists the driver's nodes with their topology. Several controllers may share one: the first caller of Watch
// keeps it up to date for all. It is safe for concurrent use.
type Lister struct {
	// only is the single node of the Lister, nil for all nodes of the cluster.
	only    *topology.Node
	driver  string
	clients kube.Clients
	// labels has the labels of the Nodes, keys the registrations of the driver in the CSINodes.
	labels *kube.Cache[topology.Node]
	keys   *kube.Cache[topology.Node]

	watching  atomic.Bool
	mu        sync.Mutex
	followers []func()
}

// At returns a Lister without watches of one node, for a process that provisions for this node only.
func At(node string, segments map[string]string) *Lister {
	only := topology.NodeAt(node, segments)
	return &Lister{only: &only}
}

// New returns a Lister of a driver's nodes on the cluster of config, which is copied, without starting a watch.
func New(config *rest.Config, driver string) (*Lister, error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	return of(clients, driver), nil
}

// NewForClient is New with a client that the caller has made, such as a fake clientset in a test.
func NewForClient(client kubernetes.Interface, driver string) *Lister {
	return of(kube.ClientsOf(client), driver)
}

func of(clients kube.Clients, driver string) *Lister {
	l := &Lister{driver: driver, clients: clients}
	l.labels = kube.NewTypedCache(clients.Core.Nodes(), "nodes", &v1.Node{}, kube.RecordAll(recordLabels), changes{l})
	l.keys = kube.NewTypedCache(clients.Storage.CSINodes(), "csinodes", &storagev1.CSINode{},
		kube.RecordSome(l.recordKeys), changes{l})
	return l
}

// Follow registers changed, which is called whenever a node appears, disappears or changes its topology, and must not
// block. Follow must be called before Watch.
func (l *Lister) Follow(changed func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.followers = append(l.followers, changed)
}

// changes notifies the followers of relevant changes, as opposed to a node's heartbeats.
type changes struct{ *Lister }

func (c changes) Added(topology.Node)         { c.notify() }
func (c changes) Deleted(topology.Node, bool) { c.notify() }
func (c changes) Updated(before, now topology.Node) {
	if !maps.Equal(before.Labels, now.Labels) || !slices.Equal(before.Keys, now.Keys) ||
		before.Registered != now.Registered {
		c.notify()
	}
}

func (l *Lister) notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, changed := range l.followers {
		changed()
	}
}

func recordLabels(node *v1.Node) topology.Node {
	return topology.Node{Name: node.Name, Labels: maps.Clone(node.Labels)}
}

// recordKeys keeps only the CSINodes on which the driver is registered.
func (l *Lister) recordKeys(csiNode *storagev1.CSINode, _ bool) (topology.Node, bool) {
	n := topology.NodeOf(&v1.Node{}, csiNode, l.driver)
	return topology.Node{Name: csiNode.Name, Registered: n.Registered, Keys: slices.Clone(n.Keys)}, n.Registered
}

// Watch keeps the nodes up to date until ctx ends.
func (l *Lister) Watch(ctx context.Context) {
	if l.only != nil || !l.watching.CompareAndSwap(false, true) {
		// No watch is needed, or another caller watches already, and for longer than this caller may.
		<-ctx.Done()
		return
	}
	var all sync.WaitGroup
	all.Go(func() { l.labels.Run(ctx) })
	all.Go(func() { l.keys.Run(ctx) })
	all.Wait()
}

// Synced reports whether all nodes are known that existed when Watch began.
func (l *Lister) Synced() bool { return l.only != nil || l.labels.Synced() && l.keys.Synced() }

// Nodes returns all nodes, or ErrUnread before they are known.
func (l *Lister) Nodes() ([]topology.Node, error) {
	switch {
	case l.only != nil:
		return []topology.Node{*l.only}, nil
	case !l.Synced():
		return nil, ErrUnread
	}
	var all []topology.Node
	l.labels.Each(func(n topology.Node) {
		if on, found := l.keys.Get(n.Name); found {
			n.Registered, n.Keys = on.Registered, on.Keys
		}
		all = append(all, n)
	})
	return all, nil
}

// Node returns the node with that name, nil if it does not exist. If the caches do not show the driver on the node, it
// is read live, because the node may have joined a moment ago. known is the Node if the caller has already read it,
// else nil.
func (l *Lister) Node(ctx context.Context, name string, known *v1.Node) (*topology.Node, error) {
	if l.only != nil {
		if name != l.only.Name {
			return nil, nil
		}
		return l.only, nil
	}
	n, found := l.labels.Get(name)
	on, registered := l.keys.Get(name)
	n.Registered, n.Keys = on.Registered, on.Keys
	if found && registered && len(n.Keys) > 0 {
		return &n, nil
	}
	if known == nil || known.Name != name {
		var err error
		known, err = kube.Read(ctx, kube.Node, "", name, l.clients.Core.Nodes().Get)
		if err != nil || known == nil {
			return nil, err
		}
	}
	csiNode, err := kube.Read(ctx, csiNodes, "", name, l.clients.Storage.CSINodes().Get)
	if err != nil {
		return nil, err
	}
	live := topology.NodeOf(known, csiNode, l.driver)
	return &live, nil
}

// Permissions returns the permissions for Watch, where without describes the effect of their absence.
func (l *Lister) Permissions(without string) []permission.Permission {
	if l.only != nil {
		return nil
	}
	var needed controller.Permissions
	needed.Add("", "nodes", without, "list", "watch")
	needed.Add("storage.k8s.io", "csinodes", without, "list", "watch")
	return needed.All
}
