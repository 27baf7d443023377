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

// Claim is what is kept of each claim.
type Claim struct {
	singlenode.Claim
	AccessModes []v1.PersistentVolumeAccessMode
	// Class is the name of its StorageClass, and Volume that of its PV, empty for none.
	Class, Volume string
	// Written is when the manager of the lock has last written to the claim, zero where that is not known.
	Written time.Time

	asks map[string]string
}

// ClaimOf reads what is needed of a claim, without keeping a reference to it.
func ClaimOf(o *v1.PersistentVolumeClaim) Claim {
	c := Claim{Claim: singlenode.ClaimOf(o), AccessModes: slices.Clone(o.Spec.AccessModes), Volume: o.Spec.VolumeName,
		Class: o.Annotations[v1.BetaStorageClassAnnotation], asks: asking(o)}
	if o.Spec.StorageClassName != nil && c.Class == "" {
		c.Class = *o.Spec.StorageClassName
	}
	if c.Locked {
		c.Written = explain.AnnotatedAt(o, singlenode.LockAnnotation)
	}
	return c
}

// asking returns the label by which an object asks for a lock, of all its labels.
func asking(o metav1.Object) map[string]string {
	if value, found := o.GetLabels()[singlenode.Label]; found {
		return map[string]string{singlenode.Label: value}
	}
	return nil
}

// PV is what is kept of a PV.
type PV struct {
	objects.Volume

	asks map[string]string
}

// PVOf reads what is needed of a PV, without keeping a reference to it.
func PVOf(o *v1.PersistentVolume) *PV {
	return &PV{objects.VolumeOf(o), asking(o)}
}

// Facts is what was read of the locks of a namespace, or of all, and of what decisions on them need. The zero value of
// each field is not known.
type Facts struct {
	// ListFacts has the pods, which were read after the claims, and what was read of their nodes after that.
	pods.ListFacts
	// Modes is what each namespace asks for, by name.
	Modes  explain.Read[map[string]singlenode.Mode]
	Claims explain.Read[[]Claim]
	// Classes are the StorageClasses, by name, as the labels by which they ask; PVs are those that decisions need, nil for
	// one that does not exist. They are read only where a decision may depend on one.
	Classes explain.Read[map[string]map[string]string]
	PVs     explain.Read[map[string]*PV]
	// Guards are the Leases by which the replicas of volume-guard elect a leader.
	Guards explain.Read[[]coordinationv1.Lease]
}

// key names an object of a namespace.
type key struct{ namespace, name string }

// index finds the objects of Facts.
type index struct {
	Facts
	claims map[key]Claim
	pods   map[key]pods.Pod
	// users are the pods without the gate that name a claim.
	users map[key][]pods.Pod
}

func (f Facts) index() *index {
	i := &index{Facts: f, claims: map[key]Claim{}, pods: map[key]pods.Pod{}, users: map[key][]pods.Pod{}}
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

// mode returns what a namespace asks for.
func (f Facts) mode(namespace string) singlenode.Mode {
	mode, found := f.Modes.Value[namespace]
	switch {
	case !f.Modes.OK():
		return singlenode.ModeUnknown
	case !found: // it was deleted
		return singlenode.ModeOff
	}
	return mode
}

// claim returns a claim with what decisions need of its class and its PV.
func (i *index) claim(c Claim) singlenode.Claim {
	asks := singlenode.Asking{Namespace: i.mode(c.Namespace), Claim: c.asks, AccessModes: c.AccessModes}
	if i.Classes.OK() || c.Class == "" {
		asks.Class, asks.ClassSeen = i.Classes.Value[c.Class], true
	}
	if pv, read := i.PVs.Value[c.Volume]; i.PVs.OK() && read && pv != nil {
		asks.PV, asks.PVSeen = pv.asks, true
		c.Claim.Volume = pv.Volume
	}
	c.Unasked = asks.Unasked()
	return c.Claim
}

// endOf returns what is known of the end of a pod.
func (i *index) endOf(p pods.Pod) singlenode.User {
	hold, of := i.Hold(p), p.Pod
	return singlenode.User{Pod: of, EndedSince: singlenode.NewTracker().Saw(of, i.Now), NodeSeen: hold.NodeSeen,
		FenceSeen: hold.FenceSeen, Storage: hold.Storage, Fence: hold.Fence, Node: hold.Node}
}

// holder returns the pod that has the name in a lock, the zero value for none.
func (i *index) holder(c Claim) singlenode.User {
	p, found := i.pods[key{c.Namespace, c.Lock.Name}]
	if !found {
		return singlenode.User{}
	}
	return i.endOf(p)
}

// gate returns what volume-guard decides about a gated pod from.
func (i *index) gate(p pods.Pod) singlenode.Facts {
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

// lock returns what volume-guard decides about the lock of a claim from.
func (i *index) lock(c Claim) singlenode.LockFacts {
	return singlenode.LockFacts{Claim: i.claim(c), Holder: i.holder(c)}
}
