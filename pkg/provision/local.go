package provision

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Local has a Provisioner make the volumes of its own node alone: those of claims for which this node
// was selected.
type Local struct {
	// Node is the node. Required.
	Node volume.Node
	// Immediate has the node bid for claims that bind immediately, for which nobody selects one.
	Immediate bool
	// BaseDelay and MaxDelay bound how long it waits before it bids: at first any time up to
	// BaseDelay, then longer each time, up to MaxDelay. Default 20 seconds and 1 minute, as in the
	// stock external-provisioner.
	BaseDelay, MaxDelay time.Duration
}

func (l Local) withDefaults() Local {
	if l.BaseDelay == 0 {
		l.BaseDelay = 20 * time.Second
	}
	if l.MaxDelay == 0 {
		l.MaxDelay = time.Minute
	}
	return l
}

// validate returns what is wrong with it.
func (l Local) validate() error {
	full := l.withDefaults()
	switch {
	case l.Node.Name == "" || len(l.Node.Segments) == 0:
		return errors.New("node: its name or its segments are not given")
	case full.BaseDelay < 0 || full.MaxDelay < full.BaseDelay:
		return fmt.Errorf("node: from %v to %v is no growing delay", full.BaseDelay, full.MaxDelay)
	}
	return nil
}

// at returns what a claim's selected node is to this process.
func (p *Provisioner) at(claim *v1.PersistentVolumeClaim) provisioning.NodeSelection {
	if p.cfg.Local == nil {
		return provisioning.NodeAny
	}
	switch claim.Annotations[annSelectedNode] {
	case "":
		return provisioning.NodeNone
	case p.cfg.Local.Node.Name:
		return provisioning.NodeHere
	}
	return provisioning.NodeElsewhere
}

// node returns the node whose volumes alone are made, nil for the whole cluster.
func (c Config) node() *volume.Node {
	if c.Local == nil {
		return nil
	}
	return &c.Local.Node
}

// nodeLister answers the library's questions about nodes: of a process that answers for one node, only
// that one is asked for, and it is there even where its object is not.
func nodeLister(node volume.Node) corelisters.NodeLister {
	only := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	// The only error is that of an object without a name.
	_ = only.Add(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Segments}})
	return corelisters.NewNodeLister(only)
}

// allowed reports whether a class lets volumes be where the node is.
func allowed(class *storagev1.StorageClass, node volume.Node) bool {
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	here := topology.NodeAt(node.Name, node.Segments)
	_, err := topology.Require(topology.Facts{Allowed: class.AllowedTopologies, Selected: &here, Strict: true})
	return err == nil
}

func late(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}
