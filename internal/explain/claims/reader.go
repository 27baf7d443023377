package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// Reader reads the facts for explanations, and its methods are safe for concurrent use.
type Reader struct {
	cluster *explain.Reader
	clients kube.Clients
	apps    typedappsv1.AppsV1Interface
}

// New returns a Reader of the cluster that config describes. It copies config and reads nothing yet.
func New(config *rest.Config, cfg explain.Config) (*Reader, error) {
	if config == nil {
		return nil, errors.New("create a reader: nil rest.Config")
	}
	cluster, err := explain.New(config, cfg)
	if err != nil {
		return nil, err
	}
	return NewFrom(cluster, config)
}

// NewFrom is New with a given reader of the cluster. StatefulSets, and the pods and claims of a namespace, are read
// from the cluster that config describes.
func NewFrom(cluster *explain.Reader, config *rest.Config) (*Reader, error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	apps, err := typedappsv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for apps/v1: %w", err)
	}
	return &Reader{cluster: cluster, clients: clients, apps: apps}, nil
}

// Preview reads the facts for a preview of a StatefulSet. It returns an error if the set, or the claims or pods of its
// namespace, cannot be read; all other failed reads are part of the facts.
func (r *Reader) Preview(ctx context.Context, namespace, name string) (PreviewFacts, error) {
	set, err := r.apps.StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return PreviewFacts{}, fmt.Errorf("read StatefulSet %q: %w", namespace+"/"+name, err)
	}
	f := PreviewFacts{Set: SetOf(set)}
	f.Facts = r.objects(ctx, namespace)
	for what, err := range map[string]error{"claims": f.Claims.Err, "pods": f.Pods.Err} {
		if err != nil {
			return PreviewFacts{}, fmt.Errorf("list %s of namespace %q: %w", what, namespace, err)
		}
	}
	f.Claims.Value = slices.DeleteFunc(f.Claims.Value, func(c Claim) bool { return !f.HasClaim(c.Name) })
	r.volumes(ctx, &f.Facts)
	return f, nil
}

// Retained reads the facts about retained claims of a namespace, or of all namespaces if namespace is empty. It
// returns an error if StatefulSets, claims or pods cannot be read, because a claim in use may look retained without
// them.
func (r *Reader) Retained(ctx context.Context, namespace string) (Facts, error) {
	f := r.objects(ctx, namespace)
	for what, err := range map[string]error{"StatefulSets": f.Sets.Err, "claims": f.Claims.Err, "pods": f.Pods.Err} {
		if err != nil {
			return Facts{}, fmt.Errorf("list %s: %w", what, err)
		}
	}
	by := f.index()
	f.Claims.Value = slices.DeleteFunc(f.Claims.Value, func(c Claim) bool {
		_, is := by.retained(c)
		return !is
	})
	r.volumes(ctx, &f)
	return f, nil
}

// Claim reads the facts about a claim, its set and its PV. Sets and pods are only read for a claim with a mark, or
// with a name that ends with an ordinal. It returns an error if the claim does not exist or cannot be read.
func (r *Reader) Claim(ctx context.Context, namespace, name string) (ClaimFacts, error) {
	its, err := r.cluster.Claim(ctx, namespace, name)
	if err != nil {
		return ClaimFacts{}, err
	}
	f := ClaimFacts{ClaimFacts: its}
	if _, _, numbered := statefulset.SplitClaimName(name); numbered || statefulset.ClaimOf(its.Claim).Marked {
		f.Pods = r.pods(ctx, namespace)
		f.Sets = r.sets(ctx, namespace)
	}
	return f, nil
}

// objects reads the objects of a namespace: the claims first, then the pods, then the sets, as before a deletion.
func (r *Reader) objects(ctx context.Context, namespace string) (f Facts) {
	claims, err := kube.ListAll(ctx, r.clients.Core.PersistentVolumeClaims(namespace).List, metav1.ListOptions{}, ClaimOf)
	f.Claims = explain.Read[[]Claim]{Made: true, Value: claims, Err: err}
	f.Pods = r.pods(ctx, namespace)
	f.Sets = r.sets(ctx, namespace)
	return f
}

func (r *Reader) pods(ctx context.Context, namespace string) explain.Read[[]statefulset.Pod] {
	pods, err := kube.ListAll(ctx, r.clients.Core.Pods(namespace).List, metav1.ListOptions{},
		func(o *v1.Pod) statefulset.Pod { return statefulset.PodOf(o) })
	return explain.Read[[]statefulset.Pod]{Made: true, Value: pods, Err: err}
}

func (r *Reader) sets(ctx context.Context, namespace string) explain.Read[[]Set] {
	sets, err := kube.ListAll(ctx, r.apps.StatefulSets(namespace).List, metav1.ListOptions{},
		func(o *appsv1.StatefulSet) Set { return SetOf(o) })
	return explain.Read[[]Set]{Made: true, Value: sets, Err: err}
}

// volumes reads the facts that decide the outcome of the claims' volumes.
func (r *Reader) volumes(ctx context.Context, f *Facts) {
	var pvs []string
	unbound := false
	for _, c := range f.Claims.Value {
		if pvs = append(pvs, c.Volume); c.Volume == "" && c.Class != "" {
			unbound = true
		}
	}
	f.ClusterFacts = r.cluster.Volumes(ctx, pvs)
	if !unbound {
		return
	}
	f.Classes = explain.Read[map[string]string]{Made: true, Value: map[string]string{}}
	_, f.Classes.Err = kube.ListAll(ctx, r.clients.Storage.StorageClasses().List, metav1.ListOptions{},
		func(o *storagev1.StorageClass) string {
			f.Classes.Value[o.Name] = o.Provisioner
			return o.Name
		})
}
