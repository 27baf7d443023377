package capacity

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
)

// The survey finds the spots that there are to be, and wakes those that have to change. It is one
// key of a loop of its own: however many nodes come at once, one look takes them all in.
type surveyKey struct{}

// survey settles who owns the objects and where the driver is, and wakes spots.
func (c *Controller) survey(ctx context.Context, _ surveyKey) controller.Next {
	if err := c.findOwner(ctx); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Info("Nobody is known yet who owns the capacity objects, so none is made; it is tried again", "reason", ReasonOwnerUnknown, "err", err)
		}
		return c.usual()
	}
	places, err := c.look()
	if err != nil {
		klog.FromContext(ctx).Info("It is not known where the driver is; it is tried again", "reason", ReasonUnreadable, "err", err)
		return c.usual()
	}
	for _, spot := range c.toVisit(places) {
		c.wake(spot)
	}
	return controller.Next{}
}

// findOwner reads who owns the objects, once.
func (c *Controller) findOwner(ctx context.Context) error {
	m := c.memory
	m.mu.Lock()
	known := m.ownerKnown
	m.mu.Unlock()
	if known {
		return nil
	}
	if c.cfg.Owner == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.ownerKnown = true
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	owner, err := c.cluster.owner(ctx, *c.cfg.Owner)
	if err != nil {
		return fmt.Errorf("find the owner of the capacity objects: %w", err)
	}
	klog.FromContext(ctx).Info("Capacity objects go with their owner", "apiVersion", owner.APIVersion, "kind", owner.Kind, "name", owner.Name)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owner, m.ownerKnown = &owner, true
	return nil
}

// look notes where the driver is, and returns it.
func (c *Controller) look() (map[Place]bool, error) {
	places, err := c.placesNow()
	if err != nil {
		return nil, err
	}
	m := c.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if !maps.Equal(m.places, places) {
		klog.Background().V(2).Info("The driver's nodes are in these places", "places", len(places))
	}
	m.places = places
	return places, nil
}

// toVisit returns the spots that are to have an object and were never looked at, and those of objects
// that are not to be there.
func (c *Controller) toVisit(places map[Place]bool) []Spot {
	goal := c.goalOf(places)
	visit := map[Spot]bool{}
	c.objects.Each(func(o Object) {
		if !goal[o.Spot] {
			visit[o.Spot] = true
		}
	})
	m := c.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for spot := range goal {
		if m.spots[spot].at.IsZero() {
			visit[spot] = true
		}
	}
	for spot := range m.spots {
		if !goal[spot] {
			visit[spot] = true // to be forgotten
		}
	}
	return slices.Collect(maps.Keys(visit))
}

// goalOf returns the spots that are to have an object.
func (c *Controller) goalOf(places map[Place]bool) map[Spot]bool {
	goal := map[Spot]bool{}
	c.classes.Each(func(k class) {
		for place := range places {
			if k.ours && (!k.immediate || c.cfg.ForImmediate) {
				goal[Spot{k.name, place}] = true
			}
		}
	})
	return goal
}
