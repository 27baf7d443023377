package statefulset

import (
	"reflect"
	"time"
	"unique"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
)

// claim is the cached part of a claim, small for most of the very many claims that a cluster may have.
type claim struct {
	namespace, name, version string
	uid                      types.UID
	terminating              bool
	protected                bool
	hold                     bool
	bound                    bool
	// created is the Unix time at which kube-controller-manager created the claim, 0 without proof of it.
	created uint32
	// more has the mark and owners, and is nil for a claim that has neither.
	more *claimMore
}

type claimMore struct {
	marked bool
	mark   statefulset.Mark
	owners []metav1.OwnerReference
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

// claimChanges handles the events of the watch of claims.
type claimChanges struct{ *observer }

func (o claimChanges) Added(now *claim) {
	o.index.claim(now, true)
	o.concern(now)
}

func (o claimChanges) Updated(before, now *claim) {
	if before.uid != now.uid {
		o.forgetClaim(before)
	}
	if !before.same(now) {
		o.concern(now)
	}
}

func (o claimChanges) Deleted(last *claim, _ bool) {
	o.index.claim(last, false)
	o.forgetClaim(last)
	o.concern(last)
}

// concern enqueues everything that the state of a claim affects.
func (o *observer) concern(c *claim) {
	if !o.wake.working() {
		return
	}
	o.wakeClaim(c.namespace, c.name)
	base, _, _ := statefulset.SplitClaimName(c.name)
	for _, s := range o.setsWith(c.namespace, base) {
		if matters(s) {
			o.changed(s)
		}
	}
}

// wakeClaim enqueues a claim, if it may need work.
func (o *observer) wakeClaim(namespace, name string) {
	key := keyOf(namespace, name)
	if c, found := o.claims.Get(key); found && o.concerned(c) {
		o.wake.claim(key)
	}
}
