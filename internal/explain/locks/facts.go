package locks

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Claim holds the fields of a claim that explanations need.
type Claim struct {
	singlenode.Claim
	AccessModes []v1.PersistentVolumeAccessMode
	// Class is the name of the claim's StorageClass, and Volume the name of its PV. Each is empty for none.
	Class, Volume string
	// Written is the time of the last write by the lock's field manager, zero if it is unknown.
	Written time.Time

	asks map[string]string
}

// ClaimOf converts a claim into a value that keeps no reference to o.
func ClaimOf(o *v1.PersistentVolumeClaim) Claim {
	c := Claim{Claim: singlenode.ClaimOf(o), AccessModes: slices.Clone(o.Spec.AccessModes), Volume: o.Spec.VolumeName,
		Class: explain.ClaimClass(o), asks: Asking(o)}
	if c.Locked {
		c.Written = explain.AnnotatedAt(o, singlenode.LockAnnotation)
	}
	return c
}

// Asking returns the label that asks for a lock, without the object's other labels.
func Asking(o metav1.Object) map[string]string {
	if value, found := o.GetLabels()[singlenode.Label]; found {
		return map[string]string{singlenode.Label: value}
	}
	return nil
}

// Facts holds the results of all reads about the locks of one or all namespaces, with the input of their decisions.
// The zero value of each field is unknown.
type Facts struct {
	// ListFacts holds the pods, read after the claims, and the facts about their nodes, read after the pods.
	pods.ListFacts
	// Modes holds the single-node mode of each namespace, by name.
	Modes  explain.Read[map[string]singlenode.Mode]
	Claims explain.Read[[]Claim]
	// Classes holds, by StorageClass, the label that asks for a lock. PVs holds the PVs that decisions need, nil for a PV
	// that does not exist. Both are only read if a decision may depend on them.
	Classes explain.Read[map[string]map[string]string]
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

func (f Facts) mode(namespace string) singlenode.Mode {
	mode, found := f.Modes.Value[namespace]
	switch {
	case !f.Modes.OK():
		return singlenode.ModeUnknown
	case !found: // the namespace was deleted
		return singlenode.ModeOff
	}
	return mode
}

// claim adds the labels and fields of a claim's class and PV that decisions need.
func (i *index) claim(c Claim) singlenode.Claim {
	asks := singlenode.Asking{Namespace: i.mode(c.Namespace), Claim: c.asks, AccessModes: c.AccessModes}
	if i.Classes.OK() || c.Class == "" {
		asks.Class, asks.ClassSeen = i.Classes.Value[c.Class], true
	}
	if pv, read := i.PVs.Value[c.Volume]; i.PVs.OK() && read && pv != nil {
		asks.PV, asks.PVSeen = Asking(pv), true
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
