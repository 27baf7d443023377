//go:build unix

package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/test/faults/oracle"
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
	ofLog := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = inflight.LabelLog + "=true"
		return o
	}
	for kind, lw := range map[oracle.Kind]cache.ListWatch{
		oracle.PV: {
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
				error) {
				return pvs.List(ctx, o)
			},
			WatchFuncWithContext: pvs.Watch,
		},
		oracle.Claim: {
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
				error) {
				return claims.List(ctx, o)
			},
			WatchFuncWithContext: claims.Watch,
		},
		oracle.Attachment: {
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return attachments.List(ctx, o)
			},
			WatchFuncWithContext: attachments.Watch,
		},
		oracle.Log: {
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return leases.List(ctx, ofLog(o))
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return leases.Watch(ctx, ofLog(o))
			},
		},
	} {
		if err := r.watch(ctx, &lw); err != nil {
			r.stop()
			return nil, fmt.Errorf("watch every %s: %w", kind, err)
		}
	}
	return r, nil
}

func (r *recorder) watch(ctx context.Context, lw *cache.ListWatch) error {
	list, err := lw.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	from, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	events, err := watchtools.NewRetryWatcherWithContext(ctx, from.GetResourceVersion(), lw)
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
