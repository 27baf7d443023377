//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/oracle"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// recorder remembers every version of all PVs, claims, attachments and shards of in-flight logs. Its methods may be
// called from any goroutine.
type recorder struct {
	cancel    context.CancelFunc
	following sync.WaitGroup

	mu       sync.Mutex
	versions []oracle.Seen
	// broken is why a watch ended before its time.
	broken error
}

// record begins to watch, until stop.
func record(ctx context.Context, client kubernetes.Interface) (*recorder, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &recorder{cancel: cancel}
	pvs, claims, attachments := client.CoreV1().PersistentVolumes(), client.CoreV1().PersistentVolumeClaims(""),
		client.StorageV1().VolumeAttachments()
	leases := client.CoordinationV1().Leases("")
	all, ofLog := metav1.ListOptions{}, metav1.ListOptions{LabelSelector: inflight.LabelLog + "=true"}
	err := errors.Join(follow(ctx, r, all, pvs.List, pvs.Watch), follow(ctx, r, all, claims.List, claims.Watch),
		follow(ctx, r, all, attachments.List, attachments.Watch), follow(ctx, r, ofLog, leases.List, leases.Watch))
	if err != nil {
		r.stop()
		return nil, fmt.Errorf("watch all objects: %w", err)
	}
	return r, nil
}

// follow has the recorder remember each version of the selected objects from now on.
func follow[L metav1.ListInterface](ctx context.Context, r *recorder, selects metav1.ListOptions,
	list func(context.Context, metav1.ListOptions) (L, error),
	watches func(context.Context, metav1.ListOptions) (watch.Interface, error)) error {
	events, err := objects.WatchFromNow(ctx, selects, list, watches)
	if err != nil {
		return err
	}
	r.following.Go(func() {
		defer events.Stop()
		for event := range events.ResultChan() {
			r.add(event)
		}
	})
	return nil
}

func (r *recorder) add(event watch.Event) {
	seen := oracle.Seen{At: time.Now(), Gone: event.Type == watch.Deleted}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o := event.Object.(type) {
	case *v1.PersistentVolume:
		seen.Object = oracle.OfPV(o)
	case *v1.PersistentVolumeClaim:
		seen.Object = oracle.OfClaim(o)
	case *storagev1.VolumeAttachment:
		seen.Object = oracle.OfAttachment(o)
	case *coordinationv1.Lease:
		seen.Object, _ = oracle.OfLease(o)
	default:
		r.broken = fmt.Errorf("a watch reported: %v", event)
		return
	}
	r.versions = append(r.versions, seen)
}

// seen returns the versions of objects so far, once they include the versions in now.
func (r *recorder) seen(ctx context.Context, now []oracle.Object,
	which func(oracle.Object) bool) (versions []oracle.Seen, err error) {
	err = until(ctx, "the watches to report the present objects", func() (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		versions = slices.DeleteFunc(slices.Clone(r.versions), func(s oracle.Seen) bool { return !which(s.Object) })
		return !slices.ContainsFunc(now, func(o oracle.Object) bool { return which(o) && !recorded(versions, o) }), r.broken
	})
	return versions, err
}

// recorded reports whether an object's version, or a later one, is among those seen.
func recorded(versions []oracle.Seen, o oracle.Object) bool {
	return slices.ContainsFunc(versions, func(s oracle.Seen) bool { return s.UID == o.UID && s.Version >= o.Version })
}

// stop ends the watches.
func (r *recorder) stop() {
	r.cancel()
	r.following.Wait()
}
