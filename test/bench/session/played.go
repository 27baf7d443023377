//go:build unix

package session

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
)

// PlayNodes plays all nodes until ctx ends, and returns once they are registered.
func (env *Environment) PlayNodes(ctx context.Context, background *errgroup.Group) error {
	for i := range playedNodes {
		if err := env.playNode(ctx, background, fmt.Sprintf("node-%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// playNode plays a node until ctx ends, and returns once it is registered.
func (env *Environment) playNode(ctx context.Context, background *errgroup.Group, name string) error {
	user, err := env.Cluster.ConfigFor(fakenode.User(name), fakenode.Group)
	if err != nil {
		return err
	}
	node, err := fakenode.New(user, name, fakenode.Config{})
	if err != nil {
		return err
	}
	background.Go(func() error { return node.Run(ctx) })
	select {
	case <-node.Registered():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func PodWithClaim(name string, i int) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		NodeName:   fmt.Sprintf("node-%d", i%playedNodes),
		Containers: []v1.Container{{Name: "main", Image: "played"}},
		Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}},
	}}
}

func PodName(i int) string { return fmt.Sprintf("pod-%d", i) }

// MakeNfsClaim creates an NFS volume and the claim that is to be bound to it.
func MakeNfsClaim(ctx context.Context, client kubernetes.Interface, namespace,
	name string) (*v1.PersistentVolumeClaim, error) {
	pv := nfsVolume(namespace, name)
	if _, err := client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	return client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeClaimSpec{AccessModes: pv.Spec.AccessModes, StorageClassName: new(string),
			VolumeName: pv.Name, Resources: v1.VolumeResourceRequirements{Requests: pv.Spec.Capacity}},
	}, metav1.CreateOptions{})
}

func nfsVolume(namespace, claim string) *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + claim},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
			AccessModes:                   []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: v1.PersistentVolumeSource{
				NFS: &v1.NFSVolumeSource{Server: "nfs.test", Path: "/" + claim}},
			ClaimRef: &v1.ObjectReference{Namespace: namespace, Name: claim},
		},
	}
}

// PodForScheduler returns a pod that uses the claim of its name.
func PodForScheduler(name string) *v1.Pod {
	pod := PodWithClaim(name, 0)
	pod.Spec.NodeName = ""
	return pod
}
