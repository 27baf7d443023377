//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	retry "k8s.io/client-go/tools/watch"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// claimsLabel marks the claims that are made together.
const claimsLabel = "bench.csi-reclaimer.io/claims"

// claims are the claims that users created at once, all of them Bound.
type claims struct {
	// volumes are their PVs by claim.
	volumes map[string]string
	// began is when the first was made, bound when the last was seen to be Bound.
	began, bound time.Time
}

// names are the claims in an order of their own.
func (c claims) names() []string { return slices.Sorted(maps.Keys(c.volumes)) }

// pvs are the claims' PVs.
func (c claims) pvs() []string { return slices.Collect(maps.Values(c.volumes)) }

// afterClaim is a user's action after the creation of a claim.
type afterClaim func(context.Context, kubernetes.Interface, *v1.PersistentVolumeClaim) error

// bindClaims has users make n claims at once, each followed by then if that is not nil, and waits until all are Bound.
func (env *environment) bindClaims(ctx context.Context, n int, then afterClaim) (c claims, err error) {
	token := fmt.Sprintf("r%d", env.rounds.Add(1))
	watch, err := env.watchClaims(ctx, token)
	if err != nil {
		return c, err
	}
	defer watch.Stop()
	c.began = time.Now()
	if err := env.each(ctx, n, func(ctx context.Context, client kubernetes.Interface, i int) error {
		claim, err := client.CoreV1().PersistentVolumeClaims(env.namespace).Create(ctx, newClaim(token, i),
			metav1.CreateOptions{})
		if err != nil || then == nil {
			return err
		}
		return then(ctx, client, claim)
	}); err != nil {
		return c, fmt.Errorf("make %d claims: %w", n, err)
	}
	c.volumes, c.bound, err = waitBound(ctx, watch, n)
	return c, err
}

func newClaim(token string, i int) *v1.PersistentVolumeClaim {
	class := className
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%s-%d", token, i),
			Labels: map[string]string{claimsLabel: token}},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}
}

// makePV makes the PV of a claim as a provisioner does, with the finalizer if it is to be protected.
func makePV(protected bool) afterClaim {
	return func(ctx context.Context, client kubernetes.Interface, claim *v1.PersistentVolumeClaim) error {
		pv := fill.ProvisionedPV("pvc-"+string(claim.UID), "vol-"+string(claim.UID), driverName)
		pv.Spec.StorageClassName = className
		pv.Spec.ClaimRef = &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace,
			Name: claim.Name, UID: claim.UID}
		if !protected {
			pv.Finalizers = nil
		}
		_, err := client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
		return err
	}
}

// watchClaims begins to watch the claims with a token, before any exist.
func (env *environment) watchClaims(ctx context.Context, token string) (*retry.RetryWatcher, error) {
	claims := env.users[0].CoreV1().PersistentVolumeClaims(env.namespace)
	selector := claimsLabel + "=" + token
	list, err := claims.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	w, err := retry.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return claims.Watch(ctx, o)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	return w, nil
}

// waitBound waits until n claims are Bound. It returns their PVs by claim, and when the last was seen to be Bound.
func waitBound(ctx context.Context, claims watch.Interface, n int) (volumes map[string]string, last time.Time,
	err error) {
	volumes = map[string]string{}
	for len(volumes) < n {
		select {
		case <-ctx.Done():
			return volumes, last, fmt.Errorf("wait for %d claims: %w; %d are bound", n, context.Cause(ctx), len(volumes))
		case event, open := <-claims.ResultChan():
			if !open {
				return volumes, last, fmt.Errorf("wait for %d claims: the watch ended", n)
			}
			claim, ok := event.Object.(*v1.PersistentVolumeClaim)
			if !ok || claim.Status.Phase != v1.ClaimBound {
				continue
			}
			if _, seen := volumes[claim.Name]; !seen {
				volumes[claim.Name], last = claim.Spec.VolumeName, time.Now()
			}
		}
	}
	return volumes, last, nil
}

// waitSettled waits until the driver's in-flight log has no entry.
func (env *environment) waitSettled(ctx context.Context) error {
	for {
		left, err := objects.InFlight(ctx, env.users[0], env.namespace, driverName)
		if err != nil || len(left) == 0 {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the in-flight log to be empty: %w; %d entries are left", err, len(left))
		}
	}
}

// remove has users delete some of the claims over all connections at once: the PV first and then its claim, or only the
// claim.
func (env *environment) remove(ctx context.Context, c claims, names []string, pvFirst bool) error {
	err := env.each(ctx, len(names), func(ctx context.Context, client kubernetes.Interface, i int) error {
		core := client.CoreV1()
		if pvFirst {
			if err := core.PersistentVolumes().Delete(ctx, c.volumes[names[i]], metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return core.PersistentVolumeClaims(env.namespace).Delete(ctx, names[i], metav1.DeleteOptions{})
	})
	if err != nil {
		return fmt.Errorf("delete volumes as users do: %w", err)
	}
	return nil
}

// removeReleased has users delete each claim and, as soon as it is Released, its PV.
func (env *environment) removeReleased(ctx context.Context, c claims, names []string, watch *tracker) error {
	released := make(chan string, len(names))
	watch.mu.Lock()
	watch.onReleased = func(pv string) { released <- pv }
	watch.mu.Unlock()
	deleted := make(chan error, 1)
	go func() { deleted <- env.remove(ctx, c, names, false) }()
	err := env.each(ctx, len(names), func(ctx context.Context, client kubernetes.Interface, _ int) error {
		select {
		case pv := <-released:
			return client.CoreV1().PersistentVolumes().Delete(ctx, pv, metav1.DeleteOptions{})
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return errors.Join(err, <-deleted)
}

// callsFor picks the calls for some volumes.
func callsFor(calls []ledger.Call, handles map[string]string) (picked []ledger.Call) {
	mine := map[string]bool{}
	for _, handle := range handles {
		mine[handle] = true
	}
	for _, call := range calls {
		if mine[call.Volume] {
			picked = append(picked, call)
		}
	}
	return picked
}

// everyVolume returns an error unless n volumes were deleted, because a program that loses volumes is not fast.
func everyVolume(calls []ledger.Call, n int) error {
	deleted := map[string]bool{}
	for _, call := range calls {
		if call.Code == "OK" {
			deleted[call.Volume] = true
		}
	}
	if len(deleted) != n {
		return fmt.Errorf("%d of %d volumes were deleted", len(deleted), n)
	}
	return nil
}

// createVolume makes a volume in the driver and returns its handle.
func (env *environment) createVolume(ctx context.Context, name string) (handle string, err error) {
	made, err := env.driver.Controller().CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:          name,
		CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}},
	})
	if err != nil {
		return "", fmt.Errorf("make volume %q: %w", name, err)
	}
	return made.GetVolume().GetVolumeId(), nil
}
