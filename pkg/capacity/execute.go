package capacity

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// maxSteps bounds the steps of one run: GetCapacity and a write take two, and each duplicate takes one more.
const maxSteps = 16

// errNegative is an answer that the CSI specification does not allow ("GetCapacity").
var errNegative = errors.New("the driver answers with a negative size")

// session is one run for an item, up to a Wait.
type session struct {
	*Controller
	item  WorkItem
	facts Facts
}

func (c *Controller) reconcile(ctx context.Context, item WorkItem) controller.Result {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("storageClass", item.Class, "segment", item.Segment))
	s := &session{Controller: c, item: item}
	d, err := controller.Steps(ctx, maxSteps, s.decide, s.do)
	switch {
	case err != nil:
		return c.fail(ctx, err)
	case d.Gone:
		c.tracker.forget(item)
	}
	return controller.Every(d.After) // without a delay, the survey or a change enqueues the item
}

func (s *session) decide() Decision {
	now := s.cfg.Clock.Now()
	s.facts = s.observe(s.item)
	return Decide(s.facts, now)
}

func (s *session) do(ctx context.Context, d Decision) (over bool, err error) {
	if d.Action == GetCapacity {
		// The driver client has its own timeout, so kube.Timeout does not apply.
		return false, reasons.Because(ReasonGetCapacityFailed, s.getCapacity(ctx, s.item))
	}
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	switch d.Action {
	case Create:
		err = s.create(ctx, s.item, s.facts.Capacity)
	case Update:
		err = s.update(ctx, s.item, s.facts.Capacity, d.Object)
	case Delete:
		err = s.remove(ctx, d.Object)
	case GetCapacity, Wait:
	}
	if err == nil {
		klog.FromContext(ctx).V(3).Info("Changed a CSIStorageCapacity", "action", d.Action, "reason", d.Reason, "object",
			d.Object.Name)
	}
	return false, reasons.Because(ReasonAPIWriteFailed, err)
}

// fail leaves the object unchanged and chooses the delay of the next try.
func (c *Controller) fail(ctx context.Context, err error) controller.Result {
	failure := controller.FailureOf(ctx, err)
	switch {
	case ctx.Err() == nil && errors.Is(err, kube.ErrGone):
		// In other controllers the work ends with the object; here the item remains, and the cache soon shows the deletion.
		failure = controller.Transient
	case failure == controller.Retryable, failure == controller.Lasting:
		klog.FromContext(ctx).Info("A step for a CSIStorageCapacity failed; retrying",
			"reason", reasons.Of(err, ReasonAPIReadFailed), "err", err)
	}
	return failure.Result(c.retries())
}

func (c *Controller) retries() controller.Backoff {
	return controller.Backoff{First: c.cfg.RetryStart, Max: c.cfg.RetryMax}
}

// getCapacity asks the driver for the free capacity of an item, with the class's unchanged parameters.
func (c *Controller) getCapacity(ctx context.Context, item WorkItem) error {
	known, found := c.classes.Get(item.Class)
	if !found {
		return nil // the next decision finds the class gone
	}
	request := &csi.GetCapacityRequest{Parameters: known.parameters}
	if item.Segment != "" {
		request.AccessibleTopology = &csi.Topology{Segments: item.Segment.Labels()}
	}
	c.tracker.asking(item)
	now := c.cfg.Clock.Now()
	response, err := c.driver.GetCapacity(ctx, request)
	a := Capacity{Available: Size{response.GetAvailableCapacity(), true}}
	if largest := response.GetMaximumVolumeSize(); largest != nil {
		a.MaximumVolumeSize = Size{largest.GetValue(), true}
	}
	if err == nil && (a.Available.Bytes < 0 || a.MaximumVolumeSize.Bytes < 0) {
		err = errclass.Mark(errclass.Refused, fmt.Errorf("get the capacity: %w", errNegative))
	}
	c.tracker.answered(item, a, now, err == nil)
	return err
}

func (c *Controller) create(ctx context.Context, item WorkItem, a Capacity) error {
	stored, err := c.cluster.create(ctx, newObject(item, a, c.labels, c.tracker.ownedBy()))
	if err != nil {
		return err
	}
	c.wrote(item, stored)
	return nil
}

func (c *Controller) update(ctx context.Context, item WorkItem, a Capacity, o Object) error {
	body, err := patchOf(o, a, c.tracker.ownedBy())
	if err != nil {
		return err
	}
	stored, err := c.cluster.patch(ctx, o.Name, body)
	if err != nil {
		return err
	}
	c.wrote(item, stored)
	return nil
}

// wrote records a stored object, because the next decision may come before the cache shows it.
func (c *Controller) wrote(item WorkItem, stored *storagev1.CSIStorageCapacity) {
	if o := objectOf(stored, c.labels); o.Item == item {
		c.tracker.wrote(o)
	}
}

func (c *Controller) remove(ctx context.Context, o Object) error {
	c.tracker.deleting(o.UID)
	err := c.cluster.remove(ctx, o)
	switch {
	case errors.Is(err, kube.ErrGone):
		return nil
	case err != nil:
		c.tracker.forgetDeletion(o.UID)
	}
	return err
}
