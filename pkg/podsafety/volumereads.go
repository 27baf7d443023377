package podsafety

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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
