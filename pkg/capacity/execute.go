package capacity

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// maxSteps bounds the steps of one run. Asking and writing takes two; each duplicate one more.
const maxSteps = 16

// errNegative: a driver's answer that the CSI specification does not allow ("GetCapacity").
var errNegative = errors.New("the driver answers with a negative size")

// trouble is an error with the reason that it is told by.
type trouble struct {
	reason Reason
	err    error
}

func (t *trouble) Error() string { return t.err.Error() }
func (t *trouble) Unwrap() error { return t.err }

func because(reason Reason, err error) error {
	if err == nil {
		return nil
	}
	return &trouble{reason, err}
}

// work decides on a spot and acts until there is nothing to do now, or something fails.
func (c *Controller) work(ctx context.Context, spot Spot) controller.Next {
	logger := klog.FromContext(ctx).WithValues("storageClass", spot.Class, "place", spot.Place)
	ctx = klog.NewContext(ctx, logger)
	for range maxSteps {
		s := c.observe(spot)
		d := Decide(s, c.cfg.Clock.Now())
		logger.V(5).Info("Decided", "action", d.Action, "reason", d.Reason)
		if d.Action == Wait {
			return c.rest(spot, d)
		}
		if err := c.act(ctx, spot, s, d); err != nil {
			return c.afterTrouble(ctx, err)
		}
	}
	return c.usual()
}

// rest ends a run. Where no delay is named, the survey or a change of what there is comes back to it.
func (c *Controller) rest(spot Spot, d Decision) controller.Next {
	if d.Over {
		c.memory.forget(spot)
	}
	return controller.Next{Backoff: controller.Backoff{First: d.Again, Max: d.Again}}
}

func (c *Controller) act(ctx context.Context, spot Spot, s Snapshot, d Decision) error {
	if d.Action == Ask {
		return because(ReasonUnanswered, c.ask(ctx, spot)) // the driver has a time of its own
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var err error
	switch d.Action {
	case Create:
		err = c.create(ctx, spot, s.Answer)
	case Update:
		err = c.update(ctx, spot, s.Answer, d.Object)
	case Delete:
		err = c.remove(ctx, d.Object)
	case Ask, Wait:
	}
	if err == nil {
		klog.FromContext(ctx).V(3).Info("Changed what the cluster knows of the driver's capacity", "action", d.Action, "reason", d.Reason, "object", d.Object.Name)
	}
	return because(ReasonUnwritable, err)
}

// ask asks the driver what is left, with the class's parameters as they are.
func (c *Controller) ask(ctx context.Context, spot Spot) error {
	known, found := c.classes.Get(spot.Class)
	if !found {
		return nil // decided anew
	}
	request := &csi.GetCapacityRequest{Parameters: known.parameters}
	if spot.Place != "" {
		request.AccessibleTopology = &csi.Topology{Segments: spot.Place.Segments()}
	}
	c.memory.asking(spot)
	now := c.cfg.Clock.Now()
	response, err := c.asks.GetCapacity(ctx, request)
	a := Answer{Left: Size{response.GetAvailableCapacity(), true}}
	if largest := response.GetMaximumVolumeSize(); largest != nil {
		a.Largest = Size{largest.GetValue(), true}
	}
	if err == nil && (a.Left.Bytes < 0 || a.Largest.Bytes < 0) {
		err = errclass.Mark(errclass.Refused, fmt.Errorf("ask what is left: %w", errNegative))
	}
	c.memory.answered(spot, a, now, err == nil)
	return err
}

func (c *Controller) create(ctx context.Context, spot Spot, a Answer) error {
	stored, err := c.cluster.create(ctx, newObject(spot, a, c.marks, c.memory.ownedBy()))
	if err != nil {
		return err
	}
	c.wrote(spot, stored)
	return nil
}

func (c *Controller) update(ctx context.Context, spot Spot, a Answer, o Object) error {
	body, err := patchOf(o, a, c.memory.ownedBy())
	if err != nil {
		return err
	}
	stored, err := c.cluster.patch(ctx, o.Name, body)
	if err != nil {
		return err
	}
	c.wrote(spot, stored)
	return nil
}

// wrote notes an object as it is stored: the next decision may come before the cache shows it.
func (c *Controller) wrote(spot Spot, stored *storagev1.CSIStorageCapacity) {
	if o := objectOf(stored, c.marks); o.Spot == spot {
		c.memory.wrote(o)
	}
}

func (c *Controller) remove(ctx context.Context, o Object) error {
	c.memory.ends(o.UID)
	err := c.cluster.remove(ctx, o)
	switch {
	case errors.Is(err, kube.ErrGone):
		return nil
	case err != nil:
		c.memory.forgetEnd(o.UID)
	}
	return err
}

// afterTrouble says when to try again, by what the error means. The object stays as it is.
func (c *Controller) afterTrouble(ctx context.Context, err error) controller.Next {
	reason := ReasonUnreadable
	if t := (*trouble)(nil); errors.As(err, &t) {
		reason = t.reason
	}
	switch class := errclass.Of(err); {
	case ctx.Err() != nil:
		return controller.Next{} // the next leader goes on
	case errors.Is(err, kube.ErrChanged), errors.Is(err, kube.ErrGone):
		return c.usual() // the cache shows it in a moment
	case class == errclass.Refused, class == errclass.NotFound:
		klog.FromContext(ctx).Info("What the cluster knows of the driver's capacity stays as it is; it is tried again", "reason", reason, "err", err)
		return c.slow()
	default:
		klog.FromContext(ctx).Info("What the cluster knows of the driver's capacity stays as it is; it is tried again", "reason", reason, "err", err)
		return c.usual()
	}
}

func (c *Controller) usual() controller.Next {
	return controller.Next{Backoff: controller.Backoff{First: c.cfg.RetryStart, Max: c.cfg.RetryMax}}
}

// slow is for what a person has to mend first.
func (c *Controller) slow() controller.Next {
	return controller.Next{Backoff: controller.Backoff{First: min(10*c.cfg.RetryStart, c.cfg.RetryMax), Max: c.cfg.RetryMax}}
}
