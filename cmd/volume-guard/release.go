package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	fencingengine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	intreeengine "github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	engine "github.com/csi-reclaimer/csi-reclaimer/pkg/admission/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/statefulset"
)

// restartDelay is how long a release keeps running replicas from starting again, so that they can be removed.
const restartDelay = 10 * time.Minute

// release removes the finalizers that the controllers added, and prints the result. For that it takes over the Lease,
// which stops running replicas.
func (o *options) release(ctx context.Context, config *rest.Config, stdout io.Writer) error {
	out := printer{stdout}
	if !o.selected() {
		return out.releaseDrivers(ctx, config, o.releaseDrivers)
	}
	clock := o.leader.Clock(false)
	acting := app.LeaderConfig(config, clock)
	all, err := o.guards(acting, nil, nil)
	if err != nil {
		return err
	}
	missing, err := app.MissingPermissions(ctx, all.checkers())
	if err != nil {
		return err
	}
	for _, permission := range missing {
		err = errors.Join(err, errors.New(permission.String()))
	}
	if err != nil {
		return fmt.Errorf("release finalizers: %w", err)
	}
	elector, err := o.leader.Elector(config, name, clock)
	if err != nil {
		return err
	}
	err = elector.Seize(ctx, restartDelay, func(ctx context.Context) error {
		return o.releaseInOrder(ctx, acting, all, out)
	})
	if err != nil || elector == nil {
		return err
	}
	return out.say("No replica of volume-guard starts again for %v; to start one earlier, delete the Lease %s/%s",
		restartDelay, o.leader.Namespace(), name)
}

// releaseInOrder ends the protection of pods only once everything else is released: after a failure, the replicas lead
// again, and need the admission that adds gates and finalizers to new pods.
func (o *options) releaseInOrder(ctx context.Context, config *rest.Config, all guards, out printer) error {
	others, ofPods := all.split()
	var errs []error
	if len(o.releaseDrivers) > 0 {
		err := out.releaseDrivers(ctx, config, o.releaseDrivers)
		if errors.Is(err, admission.ErrInUse) {
			return err // before any change
		}
		errs = append(errs, err)
	}
	for _, one := range others {
		errs = append(errs, out.release(ctx, config, one))
	}
	for _, one := range ofPods {
		if err := errors.Join(errs...); err != nil {
			return errors.Join(err, wayOut(err))
		}
		errs = append(errs, out.release(ctx, config, one))
	}
	return errors.Join(errs...)
}

// wayOut returns the next step after an error before the release of pods. A held pod uses its claims until it is
// released, so to wait for the end of their use never succeeds. The word of a person releases the pod.
func wayOut(err error) error {
	const again = "remove the cause, and run the command again"
	if errors.Is(err, inuse.ErrInHand) {
		return errors.New("the protection of pods that was not reached stays in force, and a held pod uses its claims: if " +
			"its node does not return and its processes cannot run, kubectl reclaim delete-pod NAME -n NAMESPACE --force; " +
			again)
	}
	return errors.New("the protection of pods that was not reached stays in force: " + again)
}

type printer struct{ to io.Writer }

// release calls the method Release of one controller, and prints the result.
func (p printer) release(ctx context.Context, config *rest.Config, one guard) error {
	switch c := one.(type) {
	case *intree.Controller:
		done, err := c.Release(ctx)
		return errors.Join(err, p.inTree(done))
	case *pvc.Protector:
		done, err := c.Release(ctx)
		return errors.Join(err, p.protected("claim", pvc.Finalizer, done))
	case *pv.Protector:
		done, err := c.Release(ctx)
		return errors.Join(err, p.protected("PV", pv.Finalizer, done))
	case *singlenode.Controller:
		return p.releaseLocks(ctx, config, c)
	case *podsafety.Controller:
		return p.releasePods(ctx, config, c)
	case *statefulset.Controller:
		done, err := c.Release(ctx)
		return errors.Join(err, p.setClaims(done))
	case *fencing.Controller:
		done, err := c.Release(ctx)
		return errors.Join(err, p.fences(done))
	}
	return nil
}

func (p printer) say(format string, args ...any) error {
	_, err := fmt.Fprintf(p.to, format+"\n", args...)
	return err
}

// abandoned names PVs whose volumes remain in the storage system.
func (p printer) abandoned(pvs []string) error {
	var errs []error
	for _, pv := range pvs {
		errs = append(errs, p.say("PV %s was being deleted: its volume stays in the storage system", pv))
	}
	return errors.Join(errs...)
}

// releaseDrivers releases the drivers, and prints the result.
func (p printer) releaseDrivers(ctx context.Context, config *rest.Config, drivers []string) error {
	done, err := admission.Release(ctx, config, drivers)
	return errors.Join(err, p.drivers(done))
}

func (p printer) drivers(done admission.Released) error {
	errs := []error{
		p.say("%s of the drivers %s %s released", plural.Count(done.PVs, "PV"), strings.Join(done.Drivers, ", "),
			plural.Verb(done.PVs, "was", "were")),
		p.abandoned(done.Abandoned),
	}
	for _, e := range done.InFlight {
		errs = append(errs, p.say("volume %s of driver %s, for claim %s/%s, is in flight: whether it exists is not known, "+
			"and its PV keeps its finalizer (annotation %s of Lease %s)",
			e.Volume, e.Driver, e.Claim.Namespace, e.Claim.Name, e.Annotation, e.Lease))
	}
	if len(done.InFlight) > 0 {
		errs = append(errs, fmt.Errorf("%s %s in flight: run csi-reclaimer --release-finalizers in the driver's pod, "+
			"which finishes them, or %s",
			plural.Count(len(done.InFlight), "volume"), plural.Verb(len(done.InFlight), "is", "are"), inflight.ToSettle))
	}
	if len(done.Left) > 0 {
		errs = append(errs, fmt.Errorf("%s got the finalizer back: %s; stop the program that adds it, such as csi-reclaimer "+
			"beside the driver, and run the command again. If it is external-provisioner 5.0 or newer and is to stay, leave "+
			"its driver out of --release-drivers and of protectedDrivers",
			plural.Count(len(done.Left), "PV"), some(done.Left)))
	}
	return errors.Join(errs...)
}

func (p printer) inTree(done intree.Released) error {
	errs := []error{
		p.say("%s %s released, %s %s deleted", plural.Count(done.PVs, "in-tree PV"), plural.Verb(done.PVs, "was", "were"),
			plural.Count(done.Twins, "twin"), plural.Verb(done.Twins, "was", "were")),
		p.abandoned(done.Abandoned),
	}
	if len(done.Left) > 0 {
		errs = append(errs, p.say("%s %s the finalizer %s, because another program added it or is deleting the volume: %s",
			plural.Count(len(done.Left), "in-tree PV"), plural.Verb(len(done.Left), "keeps", "keep"), intreeengine.Finalizer,
			some(done.Left)))
	}
	return errors.Join(errs...)
}

// protected prints the result for objects of one kind, named in the singular, with Kubernetes' own finalizers.
func (p printer) protected(what, finalizer string, done inuse.Released) error {
	errs := []error{p.say("%s %s released from %s", plural.Count(done.Objects, what),
		plural.Verb(done.Objects, "was", "were"), finalizer)}
	switch {
	case done.Others:
		errs = append(errs, p.say("%s stays on %s: another controller manages it", finalizer,
			plural.Count(len(done.Left), what)))
	case len(done.Left) > 0:
		errs = append(errs, p.say("%s %s %s: %s", plural.Count(len(done.Left), what),
			plural.Verb(len(done.Left), "keeps", "keep"), finalizer, some(done.Left)))
	}
	if done.Objects > 0 && !done.Others {
		errs = append(errs, p.say("The API server still adds %[2]s to each new %[1]s, and nothing removes it: run "+
			"kube-controller-manager's own controller for it, or the API server without the admission plugin "+
			"StorageObjectInUseProtection", what, finalizer))
	}
	return errors.Join(errs...)
}

// releasePods removes the admission policies and webhook that add the finalizer to pods, and then the finalizer. The
// policy that keeps others from removing it remains in effect longer, because API servers observe a deletion with a
// delay.
func (p printer) releasePods(ctx context.Context, config *rest.Config, c *podsafety.Controller) error {
	err := p.removed(engine.RemoveAdmission(ctx, config))
	if err != nil {
		return errors.Join(err, errors.New("no pod was released, because new pods would still get the finalizer"))
	}
	done, err := c.Release(ctx)
	return errors.Join(err, p.pods(done), p.restored(engine.RemoveAdmission(ctx, config)))
}

// releaseLocks does the same for the scheduling gate of pods, and then frees the locks of claims.
func (p printer) releaseLocks(ctx context.Context, config *rest.Config, c *singlenode.Controller) error {
	err := p.removed(engine.RemoveGateAdmission(ctx, config))
	if err != nil {
		return errors.Join(err, errors.New("no scheduling gate was removed, because new pods would still get it"))
	}
	done, err := c.Release(ctx)
	return errors.Join(err, p.locks(done), p.restored(engine.RemoveGateAdmission(ctx, config)))
}

// restored takes the objects that had to be deleted once more after the release, and returns an error that names them:
// a program that creates them again would also do so later, when nothing releases the new pods.
func (p printer) restored(objects []string, err error) error {
	if len(objects) > 0 {
		err = errors.Join(err, fmt.Errorf("%s was created again during the release: stop the program that does so, such as "+
			"the automated sync of Argo CD or Flux, and run the command again", strings.Join(objects, " and ")))
	}
	return errors.Join(p.removed(objects, nil), err)
}

func (p printer) removed(objects []string, err error) error {
	errs := []error{err}
	for _, object := range objects {
		errs = append(errs, p.say("%s was deleted", object))
	}
	return errors.Join(errs...)
}

func (p printer) locks(done singlenode.Released) error {
	errs := []error{p.say("the scheduling gate %s was removed from %s, and the lock from %s", objects.VolumeGate,
		plural.Count(done.Pods, "pod"), plural.Count(done.Claims, "claim"))}
	for _, pod := range done.Unproven {
		errs = append(errs, p.say("pod %s: both may write to the volume", pod))
	}
	if len(done.Left) > 0 {
		errs = append(errs, fmt.Errorf("%s %s the scheduling gate or a lock: %s", plural.Count(len(done.Left), "object"),
			plural.Verb(len(done.Left), "keeps", "keep"), some(done.Left)))
	}
	return errors.Join(errs...)
}

func (p printer) pods(done podsafety.Released) error {
	errs := []error{p.say("%s %s released, %s, the finalizer of %s and %s on %s removed", plural.Count(done.Pods, "pod"),
		plural.Verb(done.Pods, "was", "were"), plural.Count(done.Locks, "VolumeLock"), plural.Count(done.Claims, "claim"),
		"the condition "+string(objects.NodeUnreachable), plural.Count(done.Conditions, "pod"))}
	for _, pod := range done.Unproven {
		errs = append(errs, p.say("pod %s was terminating, and nothing shows that its processes have ended: a replacement "+
			"may run beside them", pod))
	}
	if len(done.Left) > 0 {
		errs = append(errs, fmt.Errorf("%s %s the finalizer %s: %s", plural.Count(len(done.Left), "pod"),
			plural.Verb(len(done.Left), "keeps", "keep"), objects.RunningFinalizer, some(done.Left)))
	}
	return errors.Join(errs...)
}

func (p printer) setClaims(done statefulset.Released) error {
	errs := []error{p.say("%s of StatefulSets and %s %s cleared of the additions of statefulset-claims",
		plural.Count(done.Claims, "claim"), plural.Count(done.Sets, "StatefulSet"),
		plural.Verb(done.Claims+done.Sets, "was", "were"))}
	if len(done.Condemned) > 0 {
		errs = append(errs, p.say("%s %s of replicas that were scaled away, and %s: %s. If the data is not needed: kubectl "+
			"delete pvc", plural.Count(len(done.Condemned), "claim"), plural.Verb(len(done.Condemned), "is", "are"),
			plural.Verb(len(done.Condemned), "stays", "stay"), some(done.Condemned)))
	}
	if len(done.Left) > 0 {
		errs = append(errs, fmt.Errorf("%s changed meanwhile and %s not released: %s; run the command again",
			plural.Count(len(done.Left), "object"), plural.Verb(len(done.Left), "was", "were"), some(done.Left)))
	}
	return errors.Join(errs...)
}

func (p printer) fences(done fencing.Released) error {
	errs := []error{p.say("%s %s released from %s, and %s from the taint of node-fencing",
		plural.Count(done.Fences, "NodeFence"), plural.Verb(done.Fences, "was", "were"), fencingengine.Finalizer,
		plural.Count(done.Nodes, "Node"))}
	if len(done.Active) > 0 {
		it := plural.Verb(len(done.Active), "it", "them")
		errs = append(errs, p.say("%s had not ended, and no controller ends %s any more: %s. Undo the work of the agents "+
			"by hand, such as by powering on a node, and then delete %s (kubectl delete nodefence): a later installation "+
			"starts the agents of a fence without a proof, and with one, does not believe it and waits for a reboot of the "+
			"node. Pods that wait for such a node stay until it returns",
			plural.Count(len(done.Active), "NodeFence"), it, some(done.Active), it))
	}
	if len(done.Left) > 0 {
		errs = append(errs, fmt.Errorf("%s changed meanwhile and %s not released: %s; run the command again",
			plural.Count(len(done.Left), "object"), plural.Verb(len(done.Left), "was", "were"), some(done.Left)))
	}
	return errors.Join(errs...)
}

// some joins at most the first ten names of a list.
func some(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + ", …"
}
