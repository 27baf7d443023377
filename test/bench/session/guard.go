//go:build unix

package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

const (
	volumeGuard = "volume-guard"
	// guardNamespace is where the shipped policies expect volume-guard.
	guardNamespace = "csi-reclaimer"
	// playedNodes is how many nodes the pods are on: a played node works on one pod at a time.
	playedNodes = 10
)

// InstallGuard installs controllers of volume-guard as an operator does, and returns the kubeconfig of its account.
func (env *Environment) InstallGuard(ctx context.Context, controllers, files []string) (kubeconfig string, err error) {
	client := env.Users[0]
	_, err = client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: guardNamespace}},
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	if err := manifests.Apply(ctx, env.Cluster.Admin(), files...); err != nil {
		return "", err
	}
	if _, err := rbac.GrantGuardController(ctx, client, guardNamespace, volumeGuard, controllers...); err != nil {
		return "", err
	}
	account, err := env.Cluster.ServiceAccount(ctx, guardNamespace, volumeGuard)
	if err != nil {
		return "", err
	}
	return env.Cluster.Kubeconfig(account)
}

// StartGuard starts volume-guard with these controllers.
func StartGuard(ctx context.Context, kubeconfig string, controllers []string) (*program.Program, error) {
	guard, err := program.Start(ctx, program.Options{Name: volumeGuard, Args: []string{"--kubeconfig=" + kubeconfig,
		"--controllers=" + strings.Join(controllers, ",") + ",-intree", "--leader-election=false"}})
	if err != nil {
		return nil, err
	}
	if err := guard.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, guard.Stop())
	}
	return guard, nil
}

// GuardCalls counts volume-guard's requests for some resources since a time, without watches.
func (env *Environment) GuardCalls(ctx context.Context, since time.Time, resources ...string) (c guardCalls,
	err error) {
	if err := env.AuditComplete(ctx); err != nil {
		return c, err
	}
	user := "system:serviceaccount:" + guardNamespace + ":" + volumeGuard
	calls, err := env.Cluster.AuditEventsOf(user, func(e controlplane.AuditEvent) bool {
		return e.Received.After(since) && slices.Contains(resources, e.Resource) && e.Verb != "watch"
	})
	for _, call := range calls {
		switch call.Verb {
		case "get":
			c.Reads++
		case "list":
			c.Lists++
		default:
			c.Writes++
		}
	}
	return c, err
}

// guardCalls are numbers of calls.
type guardCalls struct{ Reads, Lists, Writes int }

// LockingControllers returns the controllers of volume-guard that single-node needs.
func LockingControllers() []string { return []string{"pod-safety", "single-node"} }

// LockingManifests returns the manifests of these controllers.
func LockingManifests(env *Environment) []string {
	v := env.Cluster.Version()
	return slices.Concat(manifests.PodSafety(v), manifests.SingleNode(v))
}

// WaitPolicies returns once new pods are held and have the gate, or neither. In between, the API server refuses them.
func (env *Environment) WaitPolicies(ctx context.Context, namespace string, want bool) error {
	return Until(ctx, 50*time.Millisecond, "the policies are in force", func() (bool, error) {
		probe, err := env.Users[0].CoreV1().Pods(namespace).Create(ctx, PodForScheduler("probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil && want == (len(probe.Spec.SchedulingGates) > 0) && want == (len(probe.Finalizers) > 0), err
	})
}

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
