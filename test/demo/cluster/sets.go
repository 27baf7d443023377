//go:build unix

package cluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/ptr"
)

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
