package locks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Claim holds the fields of a claim that explanations need.
type Claim struct {
	singlenode.Claim
	// Class is the name of the claim's StorageClass, and Volume the name of its PV. Each is empty for none.
	Class, Volume string
	// Written is the time of the last write by the lock's field manager, zero if it is unknown.
	Written time.Time

	asks, shared bool
}

// ClaimOf converts a claim into a value that keeps no reference to o.
func ClaimOf(o *v1.PersistentVolumeClaim) Claim {
	c := Claim{Claim: singlenode.ClaimOf(o), Volume: o.Spec.VolumeName, Class: objects.ClaimClass(o),
		asks: singlenode.Asks(o.Labels), shared: objects.Shared(o.Spec.AccessModes)}
	if c.Locked {
		c.Written = explain.AnnotatedAt(o, singlenode.LockAnnotation)
	}
	return c
}

// Facts holds the results of all reads about the locks of one or all namespaces, with the input of their decisions.
// The zero value of each field is unknown.
type Facts struct {
	// ListFacts holds the pods, read after the claims, and the facts about their nodes, read after the pods.
	pods.ListFacts
	// Namespaces holds the labels of the namespaces, by name.
	Namespaces explain.Read[map[string]map[string]string]
	Claims     explain.Read[[]Claim]
	// Classes holds the StorageClasses by name. PVs holds the PVs that decisions need, nil for a PV that does not exist.
	// Both are only read if a decision may depend on them.
	Classes explain.Read[map[string]*storagev1.StorageClass]
	PVs     explain.Read[map[string]*v1.PersistentVolume]
	// Guards holds volume-guard's leader election Leases.
	Guards explain.Read[[]coordinationv1.Lease]
}

type key struct{ namespace, name string }

type index struct {
	Facts
	claims map[key]Claim
	pods   map[key]explain.Pod
	// users holds the pods without the gate that name a claim.
	users map[key][]explain.Pod
}

func (f Facts) index() *index {
	i := &index{Facts: f, claims: map[key]Claim{}, pods: map[key]explain.Pod{}, users: map[key][]explain.Pod{}}
	for _, c := range f.Claims.Value {
		i.claims[key{c.Namespace, c.Name}] = c
	}
	for _, p := range f.Pods.Value {
		i.pods[key{p.Namespace, p.Name}] = p
		if p.Gated {
			continue
		}
		for _, claim := range p.Claims {
			i.users[key{p.Namespace, claim}] = append(i.users[key{p.Namespace, claim}], p)
		}
	}
	return i
}

// mode returns the single-node mode of a namespace, ModeOff for a namespace that was deleted.
func (f Facts) mode(namespace string) singlenode.Mode {
	if !f.Namespaces.OK() {
		return singlenode.ModeUnknown
	}
	return singlenode.ModeOf(f.Namespaces.Value[namespace])
}

// claim adds the labels and fields of a claim's class and PV that decisions need.
func (i *index) claim(c Claim) singlenode.Claim {
	asks := singlenode.Asking{Namespace: i.mode(c.Namespace), Claim: c.asks, Shared: c.shared,
		ClassSeen: c.Class == ""}
	if class := i.Classes.Value[c.Class]; class != nil {
		asks.Class, asks.ClassSeen = singlenode.Asks(class.Labels), true
	}
	if pv, read := i.PVs.Value[c.Volume]; i.PVs.OK() && read && pv != nil {
		asks.PV, asks.PVSeen = singlenode.Asks(pv.Labels), true
		c.Claim.Volume = objects.VolumeOf(pv)
	}
	c.Unasked = asks.Unasked()
	return c.Claim
}

// endOf returns the facts about the end of a pod.
func (i *index) endOf(p explain.Pod) singlenode.User {
	hold, of := i.Hold(p), p.Pod
	return singlenode.User{Pod: of, EndedSince: singlenode.NewTracker().Saw(of, hold.NodeSeen, i.Now),
		NodeSeen: hold.NodeSeen, FenceSeen: hold.FenceSeen, Storage: hold.Storage, Fence: hold.Fence, Node: hold.Node}
}

// holder returns the pod with the name in a lock, the zero value if it does not exist.
func (i *index) holder(c Claim) singlenode.User {
	p, found := i.pods[key{c.Namespace, c.Lock.Name}]
	if !found {
		return singlenode.User{}
	}
	return i.endOf(p)
}

// gate returns volume-guard's facts about a gated pod.
func (i *index) gate(p explain.Pod) singlenode.Facts {
	f := singlenode.Facts{Pod: p.Pod, Mode: i.mode(p.Namespace)}
	seen := map[types.UID]bool{p.UID: true}
	for _, name := range p.Claims {
		at := key{p.Namespace, name}
		its := singlenode.ClaimFacts{Claim: singlenode.Claim{Namespace: p.Namespace, Name: name}}
		if c, found := i.claims[at]; found {
			its.Claim, its.Holder = i.claim(c), i.holder(c)
		}
		f.Claims = append(f.Claims, its)
		for _, user := range i.users[at] {
			if !seen[user.UID] {
				f.Users = append(f.Users, i.endOf(user))
				seen[user.UID] = true
			}
		}
	}
	return f
}

// lock returns volume-guard's facts about the lock of a claim.
func (i *index) lock(c Claim) singlenode.LockFacts {
	return singlenode.LockFacts{Claim: i.claim(c), Holder: i.holder(c)}
}

// ReadList reads the facts about the locks of a namespace, or of all namespaces if namespace is empty. It returns an
// error if claims or pods cannot be read, because an unseen object would look as if it did not exist.
func ReadList(ctx context.Context, c explain.Cluster, namespace string) (f Facts, err error) {
	f.Namespaces = c.Namespaces(ctx, namespace)
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
		f.Classes = explain.ByName(c.Classes(ctx))
	}
	if len(names) > 0 {
		f.PVs = c.NamedPVs(ctx, names)
	}
	f.Guards = explain.ReadGuards(ctx, c)
	return f, nil
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
	namespace := c.Namespaces(ctx, o.Namespace).Value[o.Namespace]
	if f.Claim.has() || singlenode.ModeOf(namespace) > singlenode.ModeOff {
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
