package fakenode

import (
	"context"
	"errors"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
