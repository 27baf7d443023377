package podsafety

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

const (
	// maxGets is the number of claims of a namespace up to which they are read one by one. A pod has room for the names
	// of 10,000 claims, none of which has to exist, so that a list of the namespace's claims then costs less.
	maxGets = 50
	// maxReads bounds the claims that are read for one node before others have their turn. The volumes of bound claims
	// are remembered, so the next try gets further.
	maxReads = 1000
)

// errManyReads means that some claims were not read, and that their volumes are unknown.
var errManyReads = errors.New("more claims of its pods have to be read")

// volumeReads reads the volumes of claims for one pass over the pods of a node, each claim once. Only one goroutine
// uses it.
type volumeReads struct {
	*Controller
	// claims counts the claims that were read.
	claims int
	// reported means that errManyReads was returned to the caller.
	reported bool
	of       map[string]*namespaceReads
}

// namespaceReads is the part of volumeReads for one namespace.
type namespaceReads struct {
	// volumes has the results by claim, the zero value for a claim without a volume.
	volumes map[string]volume
	// naming has the claims that name a PV, nil before the list.
	naming map[string]bool
}

func (c *Controller) newVolumeReads() *volumeReads {
	return &volumeReads{Controller: c, of: map[string]*namespaceReads{}}
}

// report returns true at its first call.
func (r *volumeReads) report() bool {
	first := !r.reported
	r.reported = true
	return first
}

// volumesOf returns the volumes of a pod's claims. The volume of a claim that is not bound has no name, and is read
// again in the next pass, because such a claim of a pod that was created with a node can be bound later. With an error,
// the volumes are those of the claims that were read.
func (r *volumeReads) volumesOf(ctx context.Context, p objects.Pod) (volumes []volume, err error) {
	for _, claim := range p.Claims {
		v, known := r.volumeLocks.known(p.UID, claim)
		if !known {
			if v, err = r.volumeOf(ctx, p.Namespace, claim); err != nil {
				return volumes, err
			}
			if v.name != "" {
				r.volumeLocks.note(p.UID, claim, v)
			}
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}

func (r *volumeReads) volumeOf(ctx context.Context, namespace, claim string) (v volume, err error) {
	in := r.of[namespace]
	if in == nil {
		in = &namespaceReads{volumes: map[string]volume{}}
		r.of[namespace] = in
	}
	if v, read := in.volumes[claim]; read {
		return v, nil
	}
	if in.naming == nil && len(in.volumes) >= maxGets {
		if in.naming, err = r.cluster.claimsNamingPVs(ctx, namespace); err != nil {
			return volume{}, err
		}
	}
	switch {
	case in.naming != nil && !in.naming[claim]:
		return volume{}, nil
	case r.claims >= maxReads:
		return volume{}, fmt.Errorf("%w: %d were read for its VolumeLock", errManyReads, maxReads)
	}
	r.claims++
	if v, err = r.cluster.readVolume(ctx, namespace, claim); err == nil {
		in.volumes[claim] = v
	}
	return v, err
}

// volumeOfPod returns the volume of the PV with this name, or the zero value if no claim of the pod is bound to it. It
// reads no other claim: a pod may name thousands, and each would delay the end of the locks of other pods.
func (c *Controller) volumeOfPod(ctx context.Context, p objects.Pod, pv string) (objects.Volume, error) {
	for _, claim := range p.Claims {
		if v, known := c.volumeLocks.known(p.UID, claim); known && v.name == pv {
			return v.Volume, nil
		}
	}
	claim, err := c.cluster.readClaimOf(ctx, pv)
	if err != nil || claim.Namespace != p.Namespace || !slices.Contains(p.Claims, claim.Name) {
		return objects.Volume{}, err
	}
	v, err := c.cluster.readVolume(ctx, claim.Namespace, claim.Name)
	if err != nil || v.name != pv {
		return objects.Volume{}, err
	}
	c.volumeLocks.note(p.UID, claim.Name, v)
	return v.Volume, nil
}

// fairly sorts pods by the number of claims that their namespace has in them and in the pods before them, where pods
// with few claims come first. So a namespace with many pods or claims does not delay the locks of others.
func fairly(pods []*pod) []*pod {
	byClaims := func(a, b *pod) int { return cmp.Compare(len(a.facts().Claims), len(b.facts().Claims)) }
	slices.SortStableFunc(pods, byClaims)
	claims, upTo := map[string]int{}, map[*pod]int{}
	for _, p := range pods {
		claims[p.namespace] += len(p.facts().Claims)
		upTo[p] = claims[p.namespace]
	}
	slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(upTo[a], upTo[b]) })
	return pods
}

// fenceReads has the live reads of a node's fence, and then of the node, for one pass over the node's lock.
type fenceReads struct {
	evidence nodefence.Evidence
	node     objects.Node
	read     session.Read
	// covered has the facts by which a volume needs no lock because of the fence, as often as that was decided.
	covered map[string][]podsafety.LockFacts
}

func newFenceReads() *fenceReads { return &fenceReads{covered: map[string][]podsafety.LockFacts{}} }

// readFence makes both reads.
func (c *Controller) readFence(ctx context.Context, node string, r *fenceReads) error {
	sent := c.cfg.Clock.Now()
	evidence, err := c.cluster.readFence(ctx, node)
	if err != nil {
		return err
	}
	n, err := c.cluster.readNode(ctx, node)
	if err != nil {
		return err
	}
	r.evidence, r.node, r.read = evidence, n, session.Read{Sent: sent, Order: 1}
	return nil
}

// in returns facts with these reads.
func (r *fenceReads) in(f podsafety.LockFacts) podsafety.LockFacts {
	f.Fence, f.Node, f.FenceRead = r.evidence(f.Pod.UID), r.node, r.read
	return f
}

// decideLock returns the next step for the lock of a volume, after reads of fence and node if the decision needs them.
// It adds the volume to the covered ones if the fence is the reason that it needs none.
func (c *Controller) decideLock(ctx context.Context, f podsafety.LockFacts, volume string,
	byFence *fenceReads) (podsafety.LockAction, error) {
	action := podsafety.DecideLock(f, c.cfg.Clock.Now())
	if action != podsafety.ReadLockFence {
		return action, nil
	}
	if c.cfg.Clock.Since(byFence.read.Sent) > session.LiveFor/2 {
		if err := c.readFence(ctx, f.Pod.Node, byFence); err != nil {
			return podsafety.KeepLock, err
		}
	}
	if f = byFence.in(f); f.Covered() {
		byFence.covered[volume] = append(byFence.covered[volume], f)
	}
	if action = podsafety.DecideLock(f, c.cfg.Clock.Now()); action == podsafety.ReadLockFence {
		return podsafety.KeepLock, controller.ErrOutdated // the reads took too long
	}
	return action, nil
}

// confirm reads the fence again if a volume of the lock before that would leave it needs none because of the fence. It
// adds the volumes to left that the fence does not cover any more. The write of left has to use the returned context.
func (c *Controller) confirm(ctx context.Context, before volumeLock, left map[string]holder,
	byFence *fenceReads) (context.Context, error) {
	var lifted []string
	for volume := range before.volumes {
		if _, stays := left[volume]; !stays && len(byFence.covered[volume]) > 0 {
			lifted = append(lifted, volume)
		}
	}
	if len(lifted) == 0 {
		return ctx, nil
	}
	err := c.readFence(ctx, before.node, byFence)
	ended := func(f podsafety.LockFacts) bool { return !byFence.in(f).Covered() }
	for _, volume := range lifted {
		if err != nil || slices.ContainsFunc(byFence.covered[volume], ended) {
			left[volume] = before.volumes[volume]
		}
	}
	if err != nil {
		return ctx, err // the write frees nothing for the fence
	}
	return controller.WhileLive(ctx, c.cfg.Clock, byFence.read.Sent), nil
}
