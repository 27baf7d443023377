package capacity

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
)

// surveyKey is the only key of the survey's queue, so that one survey covers many nodes that join together.
type surveyKey struct{}

// survey looks up the owner and the driver's segments, and enqueues the items that have to change.
func (c *Controller) survey(ctx context.Context, _ surveyKey) controller.Result {
	if err := c.findOwner(ctx); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Info("The owner of the capacity objects is unknown, so none is created; retrying",
				"reason", ReasonOwnerUnknown, "err", err)
		}
		return c.retries().Retry()
	}
	segments, err := c.refreshSegments()
	if err != nil {
		klog.FromContext(ctx).Info("The driver's topology segments are unknown; retrying", "reason", ReasonAPIReadFailed,
			"err", err)
		return c.retries().Retry()
	}
	for _, item := range c.due(segments) {
		c.items.Enqueue(item)
	}
	return controller.Done()
}

// findOwner looks up the owner of the objects, until it succeeds once.
func (c *Controller) findOwner(ctx context.Context) error {
	t := c.tracker
	t.mu.Lock()
	known := t.ownerKnown
	t.mu.Unlock()
	if known {
		return nil
	}
	if c.cfg.Owner == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ownerKnown = true
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	owner, err := c.cluster.owner(ctx, *c.cfg.Owner)
	if err != nil {
		return fmt.Errorf("find the owner of the capacity objects: %w", err)
	}
	klog.FromContext(ctx).Info("Capacity objects are deleted with their owner", "apiVersion", owner.APIVersion, "kind",
		owner.Kind, "name", owner.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owner, t.ownerKnown = &owner, true
	return nil
}

func (c *Controller) refreshSegments() (map[Segment]bool, error) {
	segments, err := c.segments()
	if err != nil {
		return nil, err
	}
	t := c.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	if !maps.Equal(t.segments, segments) {
		klog.Background().V(2).Info("The driver's nodes are in these segments", "segments", len(segments))
	}
	t.segments = segments
	return segments, nil
}

// due returns the wanted items without an answer of the driver so far, and unwanted items with an object or a record.
func (c *Controller) due(segments map[Segment]bool) []WorkItem {
	goal := c.goalOf(segments)
	visit := map[WorkItem]bool{}
	c.objects.Each(func(o Object) {
		if !goal[o.Item] {
			visit[o.Item] = true
		}
	})
	t := c.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	for item := range goal {
		if t.records[item].at.IsZero() {
			visit[item] = true
		}
	}
	for item := range t.records {
		if !goal[item] {
			visit[item] = true // its record is dropped
		}
	}
	return slices.Collect(maps.Keys(visit))
}

// goalOf returns the items that need an object: each published class in each segment.
func (c *Controller) goalOf(segments map[Segment]bool) map[WorkItem]bool {
	goal := map[WorkItem]bool{}
	c.classes.Each(func(k class) {
		for place := range segments {
			if k.ours && (!k.immediate || c.cfg.ForImmediate) {
				goal[WorkItem{k.name, place}] = true
			}
		}
	})
	return goal
}
