package locks

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
)

// ReadList reads the facts about the locks of a namespace, or of all namespaces if namespace is empty. It returns an
// error if claims or pods cannot be read, because an unseen object would look as if it did not exist.
func ReadList(ctx context.Context, c explain.Cluster, namespace string) (f Facts, err error) {
	f.Modes = readModes(ctx, c, namespace)
	f.Claims.Made = true
	err = c.EachClaim(ctx, namespace, func(o *v1.PersistentVolumeClaim) {
		f.Claims.Value = append(f.Claims.Value, ClaimOf(o))
	})
	if err != nil {
		return Facts{}, fmt.Errorf("list claims: %w", err)
	}
	if f.ListFacts, err = pods.ReadList(ctx, c, namespace); err != nil {
		return Facts{}, err
	}
	needsClasses, names := f.toRead()
	if needsClasses {
		f.Classes = readClasses(ctx, c)
	}
	if len(names) > 0 {
		f.PVs = c.NamedPVs(ctx, names)
	}
	f.Guards = explain.ReadGuards(ctx, c)
	return f, nil
}

// readModes reads the single-node mode of a namespace, or of all namespaces if namespace is empty.
func readModes(ctx context.Context, c explain.Cluster, namespace string) explain.Read[map[string]singlenode.Mode] {
	namespaces := c.Namespaces(ctx, namespace)
	modes := make(map[string]singlenode.Mode, len(namespaces.Value))
	for name, labels := range namespaces.Value {
		modes[name] = singlenode.ModeOf(labels)
	}
	return explain.ReadOf(modes, namespaces.Err)
}

func readClasses(ctx context.Context, c explain.Cluster) explain.Read[map[string]map[string]string] {
	classes := c.Classes(ctx)
	asks := make(map[string]map[string]string, len(classes.Value))
	for _, o := range classes.Value {
		asks[o.Name] = Asking(o)
	}
	return explain.ReadOf(asks, classes.Err)
}

// toRead reports whether a decision may depend on a StorageClass, and names the PVs on which one may depend: the PVs
// of gated pods' claims, and, for their drivers, of locked claims that terminating pods use. The names are sorted.
func (f Facts) toRead() (classes bool, pvs []string) {
	i := f.index()
	need := map[string]bool{}
	for _, p := range f.Pods.Value {
		for _, claim := range p.Claims {
			c := i.claims[key{p.Namespace, claim}]
			if !p.Gated && (!p.Terminating || !c.Locked) {
				continue
			}
			classes = classes || c.Class != ""
			if c.Volume != "" {
				need[c.Volume] = true
			}
		}
	}
	return classes, slices.Sorted(maps.Keys(need))
}

// ReadPod reads the facts about a pod, and about the locks that it waits for, all live. It returns an error if the pod
// does not exist or cannot be read; all other failed reads are part of the facts.
func ReadPod(ctx context.Context, c explain.Cluster, namespace, name string) (PodFacts, error) {
	its, err := pods.Read(ctx, c, namespace, name)
	if err != nil {
		return PodFacts{}, err
	}
	f := PodFacts{Facts: its}
	if p := explain.PodOf(its.Pod); p.Gated && !p.Terminating {
		f.Locks = explain.ReadOf(ReadList(ctx, c.Live(), namespace))
		f.Holder = readHolder(ctx, c, f.waitsForPod)
	}
	return f, nil
}

// ReadClaim reads the facts about the lock of a claim, all live. It reads no more if the claim has no lock and its
// namespace is not known to ask for locks.
func ReadClaim(ctx context.Context, c explain.Cluster, o *v1.PersistentVolumeClaim) ClaimFacts {
	c = c.Live()
	f := ClaimFacts{Claim: ClaimOf(o)}
	if modes := readModes(ctx, c, o.Namespace); f.Claim.has() || modes.Value[o.Namespace] > singlenode.ModeOff {
		f.Locks = explain.ReadOf(ReadList(ctx, c, o.Namespace))
		if now, found := f.Locks.Value.index().claims[key{o.Namespace, o.Name}]; found && now.UID == o.UID {
			f.Claim = now
		}
		f.Holder = readHolder(ctx, c, f.holder)
	}
	return f
}

// readHolder reads the pod that another waits for, if it is terminating. The list suffices for any other pod.
func readHolder(ctx context.Context, c explain.Cluster, of func() (explain.Pod, bool)) explain.Read[*pods.Facts] {
	p, found := of()
	if !found || !p.Terminating {
		return explain.Read[*pods.Facts]{}
	}
	its, err := pods.Read(ctx, c, p.Namespace, p.Name)
	switch {
	case apierrors.IsNotFound(err):
		return explain.Found[*pods.Facts](nil)
	case err != nil:
		return explain.Failed[*pods.Facts](err)
	case its.Pod.UID != p.UID:
		return explain.Found[*pods.Facts](nil)
	}
	return explain.Found(&its)
}
