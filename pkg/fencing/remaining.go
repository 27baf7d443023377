package fencing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// detaching counts the terminating VolumeAttachments of each node in the last list of all nodes. No selector finds the
// VolumeAttachments of one node, so waiting fences share a list. Its methods are safe for concurrent use.
type detaching struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	sent time.Time
	of   map[string]int
}

// shareFor limits how long other waiting fences use a list.
const shareFor = 10 * time.Second

// seen returns the number of terminating VolumeAttachments of a node in a recent list.
func (d *detaching) seen(node string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clock.Since(d.sent) >= shareFor {
		return 0
	}
	return d.of[node]
}

func (d *detaching) saw(of map[string]int, sent time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent, d.of = sent, of
}

// listRemaining lists pods, and VolumeAttachments if they are asked for and no recent list has a terminating one of the
// node.
func (a apiServer) listRemaining(ctx context.Context, ask fencing.Ask) (f fencing.RemainingFacts, err error) {
	err = eachPod(ctx, a.clients.Clients, ask.Node, "", func(o *v1.Pod) { countPod(&f, o) })
	switch {
	case err != nil:
		return fencing.RemainingFacts{}, err
	case ask.PodsOnly:
		return f, nil
	}
	if n := a.detaching.seen(ask.Node); n > 0 {
		f.All.VolumeAttachments, f.Leaving.VolumeAttachments = n, n
		return f, nil
	}
	return f, a.listAttachments(ctx, ask.Node, &f)
}

func (a apiServer) listAttachments(ctx context.Context, node string, f *fencing.RemainingFacts) error {
	sent, leaving := a.detaching.clock.Now(), map[string]int{}
	err := kube.Each(ctx, metav1.ListOptions{Limit: listPage}, listTimeout, a.clients.Storage.VolumeAttachments().List,
		func(o *storagev1.VolumeAttachment) {
			countAttachment(f, node, o)
			if o.DeletionTimestamp != nil {
				leaving[o.Spec.NodeName]++
			}
		})
	if err != nil {
		return fmt.Errorf("list VolumeAttachments: %w", err)
	}
	a.detaching.saw(leaving, sent)
	return nil
}

func countPod(f *fencing.RemainingFacts, o *v1.Pod) {
	p := objects.PodOf(o)
	if p.Terminating {
		f.Terminating = append(f.Terminating, p.UID)
	}
	if p.Held && p.Terminating {
		f.Held = append(f.Held, p.UID)
		f.Leaving.Pods++
	}
	if p.Held || len(p.Claims) > 0 && p.UsesVolumes() {
		f.All.Pods++
	}
}

// countAttachment adds a VolumeAttachment, if it belongs to the node.
func countAttachment(f *fencing.RemainingFacts, node string, o *storagev1.VolumeAttachment) {
	if o.Spec.NodeName != node {
		return
	}
	f.All.VolumeAttachments++
	if o.DeletionTimestamp != nil {
		f.Leaving.VolumeAttachments++
	}
}
