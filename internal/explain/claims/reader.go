package claims

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// ReadPreview reads the facts for a preview of a StatefulSet. It returns an error if the set, or the claims or pods of
// its namespace, cannot be read; all other failed reads are part of the facts.
func ReadPreview(ctx context.Context, c explain.Cluster, namespace, name string) (PreviewFacts, error) {
	set, err := c.Apps.StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return PreviewFacts{}, fmt.Errorf("read StatefulSet %q: %w", namespace+"/"+name, err)
	}
	f := PreviewFacts{Set: SetOf(set)}
	f.Facts = readObjects(ctx, c, namespace)
	for what, err := range map[string]error{"claims": f.Claims.Err, "pods": f.Pods.Err} {
		if err != nil {
			return PreviewFacts{}, fmt.Errorf("list %s of namespace %q: %w", what, namespace, err)
		}
	}
	f.Claims.Value = slices.DeleteFunc(f.Claims.Value, func(c Claim) bool { return !f.HasClaim(c.Name) })
	f.readVolumes(ctx, c)
	return f, nil
}

// ReadRetained reads the facts about retained claims of a namespace, or of all namespaces if namespace is empty. It
// returns an error if StatefulSets, claims or pods cannot be read, because a claim in use may look retained without
// them.
func ReadRetained(ctx context.Context, c explain.Cluster, namespace string) (Facts, error) {
	f := readObjects(ctx, c, namespace)
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
	f.readVolumes(ctx, c)
	return f, nil
}

// ReadClaim reads the facts about a claim, its set and its PV. Sets and pods are only read for a claim with a mark, or
// with a name that ends with an ordinal. It returns an error if the claim does not exist or cannot be read.
func ReadClaim(ctx context.Context, c explain.Cluster, namespace, name string) (ClaimFacts, error) {
	its, err := volumes.ReadClaim(ctx, c, namespace, name)
	if err != nil {
		return ClaimFacts{}, err
	}
	f := ClaimFacts{ClaimFacts: its}
	if _, _, numbered := statefulset.SplitClaimName(name); numbered || statefulset.ClaimOf(its.Claim).Marked {
		f.Pods = readPods(ctx, c, namespace)
		f.Sets = readSets(ctx, c, namespace)
	}
	return f, nil
}

// readObjects reads the objects of a namespace live: the claims first, then the pods, then the sets, as before a
// deletion.
func readObjects(ctx context.Context, c explain.Cluster, namespace string) (f Facts) {
	f.Claims = explain.ReadOf(kube.ListAll(ctx, c.Core.PersistentVolumeClaims(namespace).List, metav1.ListOptions{},
		ClaimOf))
	f.Pods = readPods(ctx, c, namespace)
	f.Sets = readSets(ctx, c, namespace)
	return f
}

func readPods(ctx context.Context, c explain.Cluster, namespace string) explain.Read[[]statefulset.Pod] {
	return explain.ReadOf(kube.ListAll(ctx, c.Core.Pods(namespace).List, metav1.ListOptions{}, statefulset.PodOf))
}

func readSets(ctx context.Context, c explain.Cluster, namespace string) explain.Read[[]Set] {
	return explain.ReadOf(kube.ListAll(ctx, c.Apps.StatefulSets(namespace).List, metav1.ListOptions{}, SetOf))
}

// readVolumes reads the facts that decide the outcome of the claims' volumes.
func (f *Facts) readVolumes(ctx context.Context, c explain.Cluster) {
	var pvs []string
	unbound := false
	for _, claim := range f.Claims.Value {
		pvs = append(pvs, claim.Volume)
		unbound = unbound || claim.Volume == "" && claim.Class != ""
	}
	f.ClusterFacts = volumes.ReadVolumes(ctx, c, pvs)
	if !unbound {
		return
	}
	classes := c.Classes(ctx)
	f.Classes = explain.ReadOf(map[string]string{}, classes.Err)
	for _, o := range classes.Value {
		f.Classes.Value[o.Name] = o.Provisioner
	}
}
