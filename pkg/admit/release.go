package admit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// AllDrivers has Release release every driver that is listed, or was when a Release began before.
const AllDrivers = "*"

// releasedAnnotation on the ConfigMap is the drivers whose keys a Release took out, so that one that was cut off is
// gone on with by the next.
const releasedAnnotation = "csi-reclaimer.io/released-drivers"

const (
	// learnWithin is how long API servers may take to learn that a key is gone.
	learnWithin = time.Minute
	// settle is how long no finalizer must have come back.
	settle = 5 * time.Second
	// pvPage is how many PVs one request asks for.
	pvPage = 500
	// callTimeout bounds one call to the API server.
	callTimeout = time.Minute
)

// Released is what Release did.
type Released struct {
	// Drivers are those that are listed no more.
	Drivers []string
	// PVs is how many PVs carry none of our finalizers any more that did before.
	PVs int
	// Abandoned are the names of those that were being deleted: their volumes stay in the storage system.
	Abandoned []string
	// Left are the names of those that carry one still, or again: somebody puts it back.
	Left []string
}

// releaser is one run of Release.
type releaser struct {
	clients   kube.Clients
	namespace string
	clock     clock.Clock
	timeout   time.Duration

	// seen are the PVs whose finalizer was taken off, and whether they were being deleted.
	seen map[types.UID]*v1.PersistentVolume
}

// Release takes the keys of drivers out of the ConfigMap of [Parameters] in the namespace, and then csi-reclaimer's
// finalizers off the drivers' PVs, for with its key there each would come back in the write that takes it off. Nothing is
// deleted. Their csi-reclaimer must not run meanwhile. drivers are their names, or AllDrivers.
//
// A PV counts only when its finalizer stayed away for some seconds.
func Release(ctx context.Context, config *rest.Config, namespace string, drivers []string) (Released, error) {
	clients, err := kube.NewClients(config)
	if err != nil {
		return Released{}, err
	}
	r := newReleaser(clients, namespace, clock.RealClock{})
	out, err := r.run(ctx, drivers)
	if err != nil {
		return out, fmt.Errorf("release drivers: %w", err)
	}
	return out, nil
}

func newReleaser(clients kube.Clients, namespace string, clock clock.Clock) *releaser {
	return &releaser{clients, namespace, clock, callTimeout, map[types.UID]*v1.PersistentVolume{}}
}

func (r *releaser) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.timeout)
}

func (r *releaser) run(ctx context.Context, drivers []string) (out Released, err error) {
	if out.Drivers, err = r.unlist(ctx, drivers); err != nil {
		return out, err
	}
	var left []string
	for until := r.clock.Now().Add(learnWithin); ; {
		again, err := r.pass(ctx, out.Drivers)
		if err != nil {
			return out, err
		}
		quiet := len(again) == 0 && len(left) == 0
		left = again
		if quiet || !r.clock.Now().Before(until) {
			break
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-r.clock.After(settle):
		}
	}
	out.Left = left
	for _, pv := range r.seen {
		if slices.Contains(left, pv.Name) {
			continue
		}
		out.PVs++
		if pv.DeletionTimestamp != nil && pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete && pv.Spec.ClaimRef != nil {
			out.Abandoned = append(out.Abandoned, pv.Name)
		}
	}
	slices.Sort(out.Abandoned)
	return out, nil
}

// unlist takes the keys out and returns which drivers are released.
func (r *releaser) unlist(ctx context.Context, asked []string) ([]string, error) {
	for {
		drivers, err := r.unlistOnce(ctx, asked)
		if !apierrors.IsConflict(err) { // else somebody else changed it meanwhile
			return drivers, err
		}
	}
}

func (r *releaser) unlistOnce(ctx context.Context, asked []string) ([]string, error) {
	ctx, cancel := r.bound(ctx)
	defer cancel()
	of := r.clients.Core.ConfigMaps(r.namespace)
	o, err := of.Get(ctx, PolicyName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		o = &v1.ConfigMap{}
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", r.namespace, PolicyName, err)
	}
	drivers := unlisted(o, asked)
	if !slices.ContainsFunc(drivers, func(d string) bool { _, listed := o.Data[d]; return listed }) {
		return drivers, nil
	}
	patch, err := unlistPatch(o, drivers)
	if err != nil {
		return nil, err
	}
	if _, err = of.Patch(ctx, PolicyName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return nil, fmt.Errorf("take drivers out of ConfigMap %s/%s: %w", r.namespace, PolicyName, err)
	}
	return drivers, nil
}

// unlisted returns the drivers that are asked for by name, or all that are listed, or were.
func unlisted(o *v1.ConfigMap, asked []string) []string {
	drivers := slices.DeleteFunc(slices.Clone(asked), func(d string) bool { return d == AllDrivers })
	if slices.Contains(asked, AllDrivers) {
		drivers = slices.AppendSeq(drivers, maps.Keys(o.Data))
		drivers = slices.AppendSeq(drivers, strings.FieldsFuncSeq(o.Annotations[releasedAnnotation], func(c rune) bool { return c == ',' }))
	}
	slices.Sort(drivers)
	return slices.Compact(drivers)
}

func unlistPatch(o *v1.ConfigMap, drivers []string) ([]byte, error) {
	data := map[string]any{}
	for _, driver := range drivers {
		data[driver] = nil
	}
	patch, err := json.Marshal(map[string]any{"data": data, "metadata": map[string]any{
		"resourceVersion": o.ResourceVersion, "annotations": map[string]string{releasedAnnotation: strings.Join(drivers, ",")},
	}})
	if err != nil {
		return nil, fmt.Errorf("write the patch of a ConfigMap: %w", err)
	}
	return patch, nil
}

// pass takes the finalizers off once, and returns the names of the PVs that had one.
func (r *releaser) pass(ctx context.Context, drivers []string) (names []string, err error) {
	var todo []*v1.PersistentVolume
	err = kube.EachPage(ctx, metav1.ListOptions{Limit: pvPage}, r.timeout, func(ctx context.Context, o metav1.ListOptions) (string, error) {
		page, err := r.clients.Core.PersistentVolumes().List(ctx, o)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			if pv := &page.Items[i]; len(releasable(pv, drivers)) > 0 {
				todo = append(todo, pv)
			}
		}
		return page.Continue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list PVs: %w", err)
	}
	for _, pv := range todo {
		names = append(names, pv.Name)
		if err := r.bare(ctx, pv, releasable(pv, drivers)); err != nil {
			return nil, err
		}
		r.seen[pv.UID] = pv
	}
	return names, nil
}

// bare takes finalizers off a PV as it was read. One that is gone has none, and one that changed is met by the next pass.
func (r *releaser) bare(ctx context.Context, pv *v1.PersistentVolume, drop []string) error {
	ctx, cancel := r.bound(ctx)
	defer cancel()
	_, err := kube.PatchFinalizers(ctx, r.clients.Core.PersistentVolumes(), kube.FinalizerPatch{
		Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion, Drop: drop,
	})
	if errors.Is(err, kube.ErrGone) || errors.Is(err, kube.ErrChanged) {
		return nil
	}
	return err
}

// releasable returns which finalizers of a PV go with its drivers. It is a pure function.
func releasable(pv *v1.PersistentVolume, drivers []string) (drop []string) {
	if !slices.ContainsFunc(driversOf(pv), func(d string) bool { return slices.Contains(drivers, d) }) {
		return nil
	}
	for _, f := range []string{reclaim.Finalizer, reclaim.CompanionFinalizer} {
		if slices.Contains(pv.Finalizers, f) {
			drop = append(drop, f)
		}
	}
	return drop
}
