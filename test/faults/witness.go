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

// witness remembers every version of all PVs, claims, attachments and shards of in-flight logs. Its methods may be called from any goroutine.
type witness struct {
	cancel    context.CancelFunc
	following sync.WaitGroup

	mu       sync.Mutex
	versions []oracle.Seen
	// broken is why a watch ended before its time.
	broken error
}

// bearWitness begins to watch, until stop.
func bearWitness(ctx context.Context, client kubernetes.Interface) (*witness, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &witness{cancel: cancel}
	pvs, claims, attachments := client.CoreV1().PersistentVolumes(), client.CoreV1().PersistentVolumeClaims(""), client.StorageV1().VolumeAttachments()
	leases := client.CoordinationV1().Leases("")
	ofLog := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = inflight.LabelLog + "=true"
		return o
	}
	for kind, lw := range map[oracle.Kind]cache.ListWatch{
		oracle.PV: {
			ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pvs.List(ctx, o) },
			WatchFuncWithContext: pvs.Watch,
		},
		oracle.Claim: {
			ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return claims.List(ctx, o) },
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
		if err := w.watch(ctx, &lw); err != nil {
			w.stop()
			return nil, fmt.Errorf("watch every %s: %w", kind, err)
		}
	}
	return w, nil
}

func (w *witness) watch(ctx context.Context, lw *cache.ListWatch) error {
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
	w.following.Go(func() {
		defer events.Stop()
		for event := range events.ResultChan() {
			w.add(event)
		}
	})
	return nil
}

func (w *witness) add(event watch.Event) {
	seen := oracle.Seen{At: time.Now(), Gone: event.Type == watch.Deleted}
	w.mu.Lock()
	defer w.mu.Unlock()
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
		w.broken = fmt.Errorf("a watch told: %v", event)
		return
	}
	w.versions = append(w.versions, seen)
}

// seen returns the versions of objects so far, once that of now is among them.
func (w *witness) seen(ctx context.Context, now []oracle.Object, which func(oracle.Object) bool) (versions []oracle.Seen, err error) {
	err = until(ctx, "the watches to tell of what is there", func() (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		versions = slices.DeleteFunc(slices.Clone(w.versions), func(s oracle.Seen) bool { return !which(s.Object) })
		return !slices.ContainsFunc(now, func(o oracle.Object) bool { return which(o) && !told(versions, o) }), w.broken
	})
	return versions, err
}

// told tells whether an object's version, or a later one, is among those seen.
func told(versions []oracle.Seen, o oracle.Object) bool {
	return slices.ContainsFunc(versions, func(s oracle.Seen) bool { return s.UID == o.UID && s.Version >= o.Version })
}

// stop ends the watches.
func (w *witness) stop() {
	w.cancel()
	w.following.Wait()
}
