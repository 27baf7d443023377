package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// nodeVariable names the pod's node, as in the stock external-provisioner.
const nodeVariable = "NODE_NAME"

// nodeOptions are the flags for a process that only handles the volumes of its own node.
type nodeOptions struct {
	on, immediate       bool
	baseDelay, maxDelay time.Duration
	name                string
}

// flags adds the flags of the stock external-provisioner, with its names and defaults.
func (o *nodeOptions) flags(fs *pflag.FlagSet) {
	o.name = os.Getenv(nodeVariable)
	fs.BoolVar(&o.on, "node-deployment", false,
		"Run beside the driver on each node, for drivers whose volumes are local to a node, and create and delete only "+
			"the volumes of this node. Requires the environment variable "+nodeVariable+
			", and a driver whose NodeGetInfo returns a topology that is unique to each node. With --leader-election each "+
			"node has its own Lease, so the second of two pods on one node waits for the first.")
	fs.BoolVar(&o.immediate, "node-deployment-immediate-binding", true,
		"With --node-deployment: provision claims with immediate binding, too, by the first node that selects itself. "+
			"false: only claims for which the scheduler selects the node.")
	fs.DurationVar(&o.baseDelay, "node-deployment-base-delay", 20*time.Second,
		"With --node-deployment: longest random delay before a node first selects itself for a claim with immediate "+
			"binding, so that not all nodes write at once.")
	fs.DurationVar(&o.maxDelay, "node-deployment-max-delay", time.Minute,
		"With --node-deployment: longest delay before a node selects itself again. The delay doubles each time.")
}

// validate records all invalid settings, given whether the feature gate Topology is on.
func (o *nodeOptions) validate(wrong *settings.Wrong, topology bool) {
	if !o.on {
		return
	}
	wrong.If(o.name == "", "--node-deployment: the environment variable %s, which names the node, is not set; take it "+
		"from spec.nodeName", nodeVariable)
	wrong.If(!topology, "--node-deployment: the topology of a volume says to which node it belongs; leave out "+
		"--feature-gates=Topology=false")
	wrong.If(o.baseDelay <= 0, "--node-deployment-base-delay=%v: must be positive", o.baseDelay)
	wrong.If(o.maxDelay < o.baseDelay, "--node-deployment-max-delay=%v: must not be below "+
		"--node-deployment-base-delay=%v", o.maxDelay, o.baseDelay)
}

// node returns the only node whose volumes this process handles, or nil for the whole cluster.
func (o *nodeOptions) node(ctx context.Context, driver *csidriver.Driver) (*volume.Node, error) {
	if !o.on {
		return nil, nil
	}
	segments, err := driver.Segments(ctx)
	if err != nil {
		return nil, fmt.Errorf("--node-deployment: %w", err)
	}
	klog.FromContext(ctx).Info("Handling the volumes of one node", "node", o.name, "segments", segments)
	return &volume.Node{Name: o.name, Segments: segments}, nil
}

// nodesOf returns a lister of the driver's nodes, which knows only its own node in a process of one node.
func nodesOf(config *rest.Config, driver string, node *volume.Node) (*nodes.Lister, error) {
	if node == nil {
		return nodes.New(config, driver)
	}
	return nodes.At(node.Name, node.Segments), nil
}

// local returns the settings for volumes of one node, or nil for the whole cluster.
func (o *nodeOptions) local(node *volume.Node) *provision.Local {
	if node == nil {
		return nil
	}
	return &provision.Local{Node: *node, Immediate: o.immediate, BaseDelay: o.baseDelay, MaxDelay: o.maxDelay}
}

// nodeOwner returns a function that finds the Node as the owner of the in-flight log, and returns nil if it cannot be
// read. It uses LIST, because a process for one node has the permission to list nodes anyway.
func nodeOwner(nodes corev1client.NodeInterface, name string) func(context.Context) *metav1.OwnerReference {
	return func(ctx context.Context) *metav1.OwnerReference {
		list, err := nodes.List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
		if err == nil {
			for i := range list.Items {
				if node := &list.Items[i]; node.Name == name && node.UID != "" {
					return &metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}
				}
			}
			err = errors.New("there is no such Node")
		}
		klog.FromContext(ctx).Info("The Node cannot be read, so the Lease of the in-flight log stays when it is deleted",
			"node", name, "err", err)
		return nil
	}
}

// maxName is the maximum length of the name of a Lease for leader election. Existing names depend on it.
const maxName = 253 - len("-0")

// lease returns the name of this node's Lease for leader election, given the name for the whole cluster.
func (o *nodeOptions) lease(cluster string) string { return o.leaseOf(cluster, maxName) }

// logName is lease for the base name of the in-flight log, whose Leases have suffixes.
func (o *nodeOptions) logName(cluster string) string { return o.leaseOf(cluster, inflight.MaxName) }

func (o *nodeOptions) leaseOf(cluster string, most int) string {
	if !o.on {
		return cluster
	}
	name := cluster + "-" + o.name
	if len(name) > most {
		return cluster + "-" + hashOf(name)
	}
	return name
}

// hashOf returns the FNV-1a hash of a text in 8 hexadecimal digits, as the stock external-provisioner writes it.
func hashOf(text string) string {
	hash := fnv.New32a()
	hash.Write([]byte(text)) // never fails (hash.Hash)
	return fmt.Sprintf("%08x", hash.Sum32())
}

const maxLabel = 63

// managedBy returns the label value that identifies this node's capacity objects, or "" for the whole cluster, which
// selects the default. It equals the value of the stock external-provisioner, so that either program takes over from
// the other, even if the node's name is too long for a label.
func (o *nodeOptions) managedBy() string {
	const program = "external-provisioner"
	name, room := program+"-"+o.name, maxLabel-len("-12345678-")-len(o.name)
	switch {
	case !o.on:
		return ""
	case len(name) <= maxLabel:
		return name
	case room > 0:
		return program[:room] + "-" + hashOf(program) + "-" + o.name
	}
	return program + "-" + hashOf(name)
}
