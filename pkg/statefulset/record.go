package statefulset

import (
	"reflect"
	"slices"
	"time"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// keyOf returns the key of an object in caches and queues.
func keyOf(namespace, name string) string { return cache.NewObjectName(namespace, name).String() }

// setOf returns the cached record of a StatefulSet. The cache keeps every set, because a set without a policy may give
// a claim the same name as another set.
func setOf(o *appsv1.StatefulSet) *statefulset.Set {
	s := statefulset.SetOf(o)
	s.Namespace = unique.Make(o.Namespace).Value()
	return &s
}

// claim is the cached part of a claim, small for most of the very many claims that a cluster may have.
type claim struct {
	namespace, name, version string
	uid                      types.UID
	terminating              bool
	protected                bool
	hold                     bool
	bound                    bool
	// created is the Unix time at which kube-controller-manager created the claim, 0 for a claim of another creator.
	created uint32
	// more has the mark and owners, and is nil for a claim that has neither.
	more *claimMore
}

type claimMore struct {
	marked bool
	mark   statefulset.Mark
	owners []metav1.OwnerReference
}

// recordClaim and recordPod keep the claims and pods that may concern a set, even if the set appears only later.
var recordClaim, recordPod = kube.RecordIf(claimOf, (*claim).matters), kube.RecordIf(podOf, podMatters)

// shaped reports whether a set may give the name to a claim, or to a pod.
func shaped(name string) bool {
	_, _, ok := statefulset.SplitClaimName(name)
	return ok
}

// claimOf returns the cached record of a claim.
func claimOf(o *v1.PersistentVolumeClaim) claim {
	all := statefulset.ClaimOf(o)
	c := claim{
		namespace: unique.Make(o.Namespace).Value(), name: o.Name, version: o.ResourceVersion, uid: o.UID,
		terminating: all.Terminating, protected: all.Protected, hold: all.Hold, bound: all.Bound,
	}
	if !all.ByController.IsZero() {
		c.created = uint32(all.ByController.Unix())
	}
	if all.Marked || len(all.Owners) > 0 {
		c.more = &claimMore{marked: all.Marked, mark: all.Mark, owners: all.Owners}
	}
	return c
}

func (c *claim) matters() bool { return shaped(c.name) || c.marked() }

func (c *claim) key() string { return keyOf(c.namespace, c.name) }

func (c *claim) marked() bool { return c.more != nil && c.more.marked }

// facts returns the claim for decisions, without its volume, which decisions do not depend on.
func (c *claim) facts() statefulset.Claim {
	f := statefulset.Claim{Namespace: c.namespace, Name: c.name, UID: c.uid, ResourceVersion: c.version,
		Terminating: c.terminating, Protected: c.protected, Hold: c.hold, Bound: c.bound}
	if c.created > 0 {
		f.ByController = time.Unix(int64(c.created), 0)
	}
	if c.more != nil {
		f.Marked, f.Mark, f.Owners = c.more.marked, c.more.mark, c.more.owners
	}
	return f
}

// same reports whether two states are equal in everything that decisions depend on.
func (c *claim) same(other *claim) bool {
	a, b := *c, *other
	a.version, b.version = "", ""
	return reflect.DeepEqual(a, b)
}

// podOf returns the cached record of a pod, without the names of claims that no set can have made.
func podOf(o *v1.Pod) statefulset.Pod {
	p := statefulset.PodOf(o)
	p.Namespace, p.Controller = unique.Make(o.Namespace).Value(), unique.Make(p.Controller).Value()
	p.Claims = slices.Clip(slices.DeleteFunc(p.Claims, func(name string) bool { return !shaped(name) }))
	return p
}

func podMatters(p *statefulset.Pod) bool { return shaped(p.Name) || len(p.Claims) > 0 }
