// Package fakenode writes to the Kubernetes API as a kubelet would, and runs nothing.
//
// A test control plane has no nodes, but the controllers around a storage controller wait for reports of nodes: that a
// pod runs or is gone, that a node is alive, its volumes in use, its drivers, and its topology for the scheduler. A
// [Node] reports these facts as the node's own user, within the rights of a node (node authorizer and NodeRestriction).
// When its context ends, it falls silent as a dead machine does: its Node object stays, and the controllers find out by
// themselves.
//
// It mounts nothing and does not wait for a volume to be attached. The attach-detach controller does attach volumes for
// it, unless their driver's CSIDriver object says that it needs none: see [Node.SetVolumesInUse]. Package
// test/framework/nodes runs nodes that mount.
package fakenode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

const (
	// defaultHeartbeat is well below the 40 s after which the node lifecycle controller gives a node up.
	defaultHeartbeat = 5 * time.Second
	// retryInterval is the delay after a failed request, for example while the API server is away.
	retryInterval = 200 * time.Millisecond
)

// controllerManagedAttach has the attach-detach controller attach volumes for a node, as a kubelet sets it by default
// (enableControllerAttachDetach; k8s.io/kubernetes/pkg/volume/util.ControllerManagedAttachAnnotation). It leaves other
// nodes alone.
const controllerManagedAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// Config says how a node differs from the plain one. The zero value is valid.
type Config struct {
	// Drivers are the CSI drivers on the node, by name. They can be changed by SetDrivers.
	Drivers map[string]Driver
	// Labels are added to the Node object. Nodes may not set all of them on themselves (NodeRestriction).
	Labels map[string]string
	// Heartbeat is how often the node renews its Lease. Default: 5 seconds.
	Heartbeat time.Duration
	// BootID is reported as status.nodeInfo.bootID, which a machine changes with each boot. Default: none.
	BootID string
	// WaitForClaims delays the start of a pod until its claims are bound and none of them is terminating, as a kubelet
	// does.
	WaitForClaims bool
	// Ending is how long a pod takes to end after its deletion, a second more or less. Default: no time.
	Ending time.Duration
}

// Driver is a CSI driver's report to the kubelet of a node (NodeGetInfo).
type Driver struct {
	// NodeID is the node's id at the driver. Default: the node's name.
	NodeID string
	// Place is where the node is, as the driver has it. Its keys go into the CSINode, and keys and values into the
	// labels of the Node, which is where schedulers and provisioners look for them. Default: the driver knows no places.
	Place map[string]string
}

// Node is a node that exists only in the API.
type Node struct {
	name       string
	config     Config
	client     kubernetes.Interface
	addresses  addresses
	registered chan struct{}

	// mu orders the writes of the condition Ready. ready is the last argument of SetReady.
	mu    sync.Mutex
	ready bool
}

// User is the user name that a node of this name has, and Group its group.
func User(name string) string { return "system:node:" + name }

// Group is the group of all nodes.
const Group = "system:nodes"

// New makes a node that speaks to the API by client, whose user must be User(name) in Group.
func New(client *rest.Config, name string, config Config) (*Node, error) {
	clientset, err := kubernetes.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("make node %q: %w", name, err)
	}
	if config.Heartbeat == 0 {
		config.Heartbeat = defaultHeartbeat
	}
	return &Node{
		name: name, config: config, client: clientset,
		addresses: newAddresses(name), registered: make(chan struct{}),
	}, nil
}

// Name is the node's name.
func (n *Node) Name() string { return n.name }

// Registered is closed once the API has the node, its status, its Lease and its drivers.
func (n *Node) Registered() <-chan struct{} { return n.registered }

// Run registers the node and keeps it alive until ctx ends. It returns when everything that it started has ended.
// Failed requests are retried: a node survives the loss of the API server.
func (n *Node) Run(ctx context.Context) error {
	if err := untilDone(ctx, n.register); err != nil {
		return nil //nolint:nilerr // only the end of ctx ends it, which is what Run is for
	}
	close(n.registered)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.heartbeats(ctx) })
	group.Go(func() error { return n.runPods(ctx) })
	return group.Wait()
}

// register writes the node's objects, and overwrites objects from an earlier run.
func (n *Node) register(ctx context.Context) error {
	labels := map[string]string{corev1.LabelHostname: n.name, corev1.LabelOSStable: "linux"}
	maps.Copy(labels, n.config.Labels)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: labels,
		Annotations: map[string]string{controllerManagedAttach: "true"}}}
	if _, err := n.client.CoreV1().Nodes().Create(ctx, node,
		metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node %q: %w", n.name, err)
	}
	if err := n.renewLease(ctx); err != nil {
		return err
	}
	if err := n.SetDrivers(ctx, n.config.Drivers); err != nil {
		return err
	}
	return n.SetReady(ctx, true)
}

// status is the status of a node with ample resources.
func (n *Node) status(ready bool, now metav1.Time) corev1.NodeStatus {
	readiness := nodeCondition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", now)
	if !ready {
		readiness = nodeCondition(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady", now)
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourcePods:             resource.MustParse("1000"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	return corev1.NodeStatus{
		Capacity:    capacity,
		Allocatable: capacity,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: n.addresses.node()},
			{Type: corev1.NodeHostName, Address: n.name},
		},
		NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", KubeletVersion: "v0.0.0-fakenode", BootID: n.config.BootID},
		Conditions: []corev1.NodeCondition{
			readiness,
			nodeCondition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", now),
			nodeCondition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", now),
			nodeCondition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", now),
		},
	}
}

func nodeCondition(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string,
	now metav1.Time) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now,
	}
}

// SetVolumesInUse says which volumes the node has in use (node.status.volumesInUse), each as
// "kubernetes.io/csi/<driver>^<volume handle>". The attach-detach controller does not detach those.
func (n *Node) SetVolumesInUse(ctx context.Context, volumes ...corev1.UniqueVolumeName) error {
	if volumes == nil {
		volumes = []corev1.UniqueVolumeName{} // an explicit empty list: null is not one
	}
	return n.patchStatus(ctx, map[string]any{"volumesInUse": volumes})
}

// SetReady reports whether the node is healthy. Its heartbeats continue, and repeat the report if the node lifecycle
// controller finds the node unreachable.
func (n *Node) SetReady(ctx context.Context, ready bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ready = ready
	return n.patchStatus(ctx, n.status(ready, metav1.Now()))
}

// SetDrivers says which CSI drivers the node has, by name. Labels that an earlier driver has brought stay, as with a
// kubelet.
func (n *Node) SetDrivers(ctx context.Context, drivers map[string]Driver) error {
	if err := n.setPlaces(ctx, drivers); err != nil {
		return err
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		owner, err := n.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		csiNodes := n.client.StorageV1().CSINodes()
		csiNode, err := csiNodes.Get(ctx, n.name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return err
		}
		if missing {
			csiNode = &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.name, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: owner.Name, UID: owner.UID,
			}}}}
		}
		csiNode.Spec.Drivers = nil
		for _, name := range slices.Sorted(maps.Keys(drivers)) {
			csiNode.Spec.Drivers = append(csiNode.Spec.Drivers, storagev1.CSINodeDriver{
				Name: name, NodeID: cmp.Or(drivers[name].NodeID, n.name),
				TopologyKeys: slices.Sorted(maps.Keys(drivers[name].Place)),
			})
		}
		if missing {
			_, err = csiNodes.Create(ctx, csiNode, metav1.CreateOptions{})
			return err
		}
		_, err = csiNodes.Update(ctx, csiNode, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("set drivers of node %q: %w", n.name, err)
	}
	return nil
}

// setPlaces puts the drivers' places into the node's labels.
func (n *Node) setPlaces(ctx context.Context, drivers map[string]Driver) error {
	labels := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		maps.Copy(labels, drivers[name].Place)
	}
	if len(labels) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err == nil {
		_, err = n.client.CoreV1().Nodes().Patch(ctx, n.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("label node %q: %w", n.name, err)
	}
	return nil
}

// patchStatus merges into the node's status. It never updates: an update that raced a controller's taint would carry
// the former taints, which NodeRestriction forbids to a node.
func (n *Node) patchStatus(ctx context.Context, status any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err == nil {
		_, err = n.client.CoreV1().Nodes().PatchStatus(ctx, n.name, patch) // a strategic merge
	}
	if err != nil {
		return fmt.Errorf("patch status of node %q: %w", n.name, err)
	}
	return nil
}

// untilDone repeats do until it succeeds. It returns the error of an ended context.
func untilDone(ctx context.Context, do func(context.Context) error) error {
	for {
		if err := do(ctx); err == nil {
			return nil
		}
		if err := pause(ctx, retryInterval); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// addresses gives the node and its pods addresses by their names. Nothing answers there; that
// two may have the same one is of no consequence.
type addresses struct{ third, fourth byte }

func newAddresses(name string) addresses {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	sum := hash.Sum32()
	return addresses{third: byte(sum), fourth: byte(sum >> 8)}
}

func (a addresses) node() string { return fmt.Sprintf("172.16.%d.%d", a.third, a.fourth) }

func (a addresses) pod(uid string) string {
	pod := newAddresses(uid)
	return fmt.Sprintf("10.%d.%d.%d", a.third, pod.third, pod.fourth)
}

// leaseSeconds is the lease duration of a kubelet.
const leaseSeconds int32 = 40

// heartbeats renews the node's Lease until ctx ends. A kubelet writes its node's status only when it differs, or every
// 5 minutes; the Lease shows that the kubelet lives.
func (n *Node) heartbeats(ctx context.Context) error {
	for {
		if err := pause(ctx, n.config.Heartbeat); err != nil {
			return nil //nolint:nilerr // the end of ctx is the regular end
		}
		_ = errors.Join(n.renewLease(ctx), n.correctStatus(ctx)) // a missed heartbeat is made up for by the next
	}
}

// correctStatus writes the node's status again where the node lifecycle controller has found the node unreachable: an
// API server was away, or the machine was too busy to renew the Lease in time. A kubelet compares the status with its
// own every 10 seconds (pkg/kubelet/kubelet_node_status.go, tryUpdateNodeStatus).
func (n *Node) correctStatus(ctx context.Context) error {
	node, err := n.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %q: %w", n.name, err)
	}
	if !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	}) {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.patchStatus(ctx, n.status(n.ready, metav1.Now()))
}

func (n *Node) renewLease(ctx context.Context) error {
	leases := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now, seconds := metav1.NowMicro(), leaseSeconds
	spec := coordinationv1.LeaseSpec{HolderIdentity: &n.name, LeaseDurationSeconds: &seconds, RenewTime: &now}
	lease, err := leases.Get(ctx, n.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.name}, Spec: spec}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	case err == nil:
		lease.Spec = spec
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew lease of node %q: %w", n.name, err)
	}
	return nil
}
