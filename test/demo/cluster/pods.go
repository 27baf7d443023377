//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
)

// The names of nodes.
const (
	Node1 = "node-1"
	Node2 = "node-2"
)

// Nodes are played: they exist only in the API, and their reports stand for running processes.
type Nodes struct {
	plane   *controlplane.ControlPlane
	silence map[string]func() error
	boots   map[string]int // of nodes that were booted again
}

// PlayNodes returns nodes that end with the cluster, at first none.
func (c *Cluster) PlayNodes() *Nodes {
	n := &Nodes{plane: c.Plane, silence: map[string]func() error{}, boots: map[string]int{}}
	c.OnEnd(func() error {
		var errs []error
		for _, silence := range n.silence {
			errs = append(errs, silence())
		}
		return errors.Join(errs...)
	})
	return n
}

// Start plays a node until it is silenced.
func (n *Nodes) Start(ctx context.Context, name string) error {
	_, silence, err := fakenode.Play(context.WithoutCancel(ctx), n.plane, name,
		fakenode.Config{BootID: fmt.Sprintf("%s-%d", name, n.boots[name])})
	if err == nil {
		n.silence[name] = silence
	}
	return err
}

// Silence ends the reports of a node.
func (n *Nodes) Silence(name string) error {
	silence := n.silence[name]
	delete(n.silence, name)
	return silence()
}

// Boot plays a node after its reboot.
func (n *Nodes) Boot(ctx context.Context, name string) error {
	n.boots[name]++
	return n.Start(ctx, name)
}

// StartNode plays Node1 with pods that use volumes of the driver, and waits for csi-reclaimer.
func (c *CSI) StartNode(ctx context.Context) (*Nodes, error) {
	if _, err := c.Maker.MakeDriver(ctx, nil); err != nil {
		return nil, err
	}
	nodes := c.PlayNodes()
	if err := nodes.Start(ctx, Node1); err != nil {
		return nil, err
	}
	return nodes, c.Program.WaitReady(ctx)
}

// Sets returns the client of StatefulSets.
func (c *CSI) Sets() typedappsv1.StatefulSetInterface {
	return c.Client.AppsV1().StatefulSets(c.Maker.Namespace)
}

// MakeSet makes a StatefulSet of pods on Node1. Each has a claim data-NAME-NUMBER of the class with policy Delete, with
// this policy for a scale-down.
func (c *CSI) MakeSet(ctx context.Context, name string, replicas int32,
	whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType) error {
	labels := map[string]string{"app": name}
	claim := v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	claim.Spec = v1.PersistentVolumeClaimSpec{
		AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		StorageClassName: ptr.To(ClassName(v1.PersistentVolumeReclaimDelete)),
		Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{
			v1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	_, err := c.Sets().Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: name,
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: whenScaled},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{claim},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{
				NodeName: Node1, TerminationGracePeriodSeconds: ptr.To[int64](5),
				AutomountServiceAccountToken: ptr.To(false),
				Containers: []v1.Container{{Name: "main", Image: "none",
					VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			}},
		},
	}, metav1.CreateOptions{})
	return err
}

// ScaleSet gives a StatefulSet another number of replicas.
func (c *CSI) ScaleSet(ctx context.Context, name string, replicas int) error {
	_, err := c.Sets().Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas),
		metav1.PatchOptions{})
	return err
}

// WaitSet waits until a set has that many pods, all ready. A node that is played does not wait for volumes.
func (c *CSI) WaitSet(ctx context.Context, name string, pods int32) error {
	return Until(ctx, fmt.Sprintf("%d pods of %s", pods, name), func(ctx context.Context) (bool, error) {
		set, err := c.Sets().Get(ctx, name, metav1.GetOptions{})
		return err == nil && set.Status.ReadyReplicas == pods && set.Status.ObservedGeneration == set.Generation, err
	})
}
