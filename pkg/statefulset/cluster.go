package statefulset

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// cluster is the API server as the controller uses it. Every read is live: it is answered by the API server, and is as
// new as the request. For a missing object, a read succeeds without a result.
type cluster interface {
	readClaim(ctx context.Context, namespace, name string) (c statefulset.Claim, found bool, err error)
	readPod(ctx context.Context, namespace, name string) (p statefulset.Pod, found bool, err error)
	readSet(ctx context.Context, namespace, name string) (s statefulset.Set, found bool, err error)
	// patchClaim sets the mark and the owners of an Ask.
	patchClaim(ctx context.Context, ask statefulset.Ask) error
	deleteClaim(ctx context.Context, ask statefulset.Ask) error
	deletePod(ctx context.Context, ask statefulset.Ask) error
	// patchWoken sets WokenAnnotation of a set, or removes it if value is nil.
	patchWoken(ctx context.Context, s statefulset.Set, value *string) error
	// eachClaim and eachSet visit all objects of the cluster, page by page.
	eachClaim(ctx context.Context, visit func(statefulset.Claim)) error
	eachSet(ctx context.Context, visit func(statefulset.Set)) error
}

// apiServer implements cluster with real clients.
type apiServer struct {
	clients kube.Clients
}

func (a apiServer) readClaim(ctx context.Context, namespace, name string) (statefulset.Claim, bool, error) {
	return kube.Get(ctx, kube.Claim, namespace, name, a.clients.Core.PersistentVolumeClaims(namespace).Get,
		statefulset.ClaimOf)
}

func (a apiServer) readPod(ctx context.Context, namespace, name string) (statefulset.Pod, bool, error) {
	return kube.Get(ctx, kube.Pod, namespace, name, a.clients.Core.Pods(namespace).Get, statefulset.PodOf)
}

func (a apiServer) readSet(ctx context.Context, namespace, name string) (statefulset.Set, bool, error) {
	return kube.Get(ctx, kube.StatefulSet, namespace, name, a.clients.Apps.StatefulSets(namespace).Get,
		statefulset.SetOf)
}

// patchClaim checks the claim in the response: if an admission policy reverts the change, the write succeeds without an
// effect.
func (a apiServer) patchClaim(ctx context.Context, ask statefulset.Ask) error {
	patch := kube.MetadataPatch{Name: ask.Name, UID: ask.UID, ResourceVersion: ask.ResourceVersion,
		Annotations: map[string]*string{statefulset.MarkAnnotation: nil}, Owners: &ask.Owners}
	if mark := ask.Mark.String(); mark != "" {
		patch.Annotations[statefulset.MarkAnnotation] = &mark
	}
	o, err := kube.PatchMetadata(ctx, a.clients.Core.PersistentVolumeClaims(ask.Namespace), patch)
	if err != nil {
		return err
	}
	after := statefulset.ClaimOf(o)
	sameOwner := func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }
	if after.Mark != ask.Mark || after.Marked != (ask.Mark != statefulset.Mark{}) ||
		!slices.EqualFunc(after.Owners, ask.Owners, sameOwner) {
		return fmt.Errorf("change the owners of claim %q: %w", keyOf(ask.Namespace, ask.Name), kube.ErrUndone)
	}
	return nil
}

func (a apiServer) deleteClaim(ctx context.Context, ask statefulset.Ask) error {
	return kube.DeleteClaim(ctx, a.clients.Core.PersistentVolumeClaims(ask.Namespace), ask.Name, ask.UID,
		ask.ResourceVersion)
}

func (a apiServer) deletePod(ctx context.Context, ask statefulset.Ask) error {
	return kube.Delete(ctx, "pod", a.clients.Core.Pods(ask.Namespace), ask.Name, ask.UID, "")
}

func (a apiServer) patchWoken(ctx context.Context, s statefulset.Set, value *string) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	o, err := kube.PatchMetadata(ctx, a.clients.Apps.StatefulSets(s.Namespace), kube.MetadataPatch{Name: s.Name,
		UID: s.UID, Annotations: map[string]*string{statefulset.WokenAnnotation: value}})
	if err != nil {
		return err
	}
	if o.Annotations[statefulset.WokenAnnotation] != ptr.Deref(value, "") {
		return fmt.Errorf("change annotation %s of StatefulSet %q: %w", statefulset.WokenAnnotation,
			keyOf(s.Namespace, s.Name), kube.ErrUndone)
	}
	return nil
}

func (a apiServer) eachClaim(ctx context.Context, visit func(statefulset.Claim)) error {
	return kube.Each(ctx, "claims", metav1.ListOptions{}, a.clients.Core.PersistentVolumeClaims(metav1.NamespaceAll).List,
		func(o *v1.PersistentVolumeClaim) { visit(statefulset.ClaimOf(o)) })
}

func (a apiServer) eachSet(ctx context.Context, visit func(statefulset.Set)) error {
	return kube.Each(ctx, "StatefulSets", metav1.ListOptions{}, a.clients.Apps.StatefulSets(metav1.NamespaceAll).List,
		func(o *appsv1.StatefulSet) { visit(statefulset.SetOf(o)) })
}
