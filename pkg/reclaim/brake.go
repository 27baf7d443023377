package reclaim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// BrakeAnnotation on the brake's Lease stops all deletions for as long as it is there. It
// is put on by the brake, or by a person to stop deletions; a person takes it off.
const BrakeAnnotation = "csi-reclaimer.io/brake"

// BrakeConfig holds the settings of the brake, which stops all deletions when suddenly many
// volumes are to be deleted: a namespace that was swept by mistake need not cost hundreds of
// disks before anyone looks.
type BrakeConfig struct {
	// Deletions is how many volumes may become deletable within Window. One more stops all
	// deletions until a person lets them go on. 0 is no brake.
	Deletions int
	// Window is the time over which volumes are counted. Default 1 minute.
	Window time.Duration
	// Lease names the Lease (coordination.k8s.io) whose BrakeAnnotation says that the brake is
	// on, so that a restart does not let go. It is made if it is not there; the one of the
	// leader election serves well. Required with Deletions.
	Lease types.NamespacedName
}

// brakePeriod is how often the Lease is looked at, so that the brake's release is seen.
const brakePeriod = 5 * time.Second

// brake counts the volumes that become deletable. It is safe for concurrent use.
type brake struct {
	cfg   BrakeConfig
	clock clock.WithTicker

	mu     sync.Mutex
	recent map[types.UID]time.Time
	state  Brake
	// leading: this replica deletes. Others count as well, but stop nothing.
	leading bool
	// written: the Lease says that the brake is on.
	written bool
	pulled  chan struct{}
}

func newBrake(cfg BrakeConfig, c clock.WithTicker) *brake {
	b := &brake{cfg: cfg, clock: c, recent: map[types.UID]time.Time{}, pulled: make(chan struct{}, 1)}
	if cfg.Deletions == 0 {
		b.state = BrakeOff
	}
	return b
}

// State tells whether deletions are stopped.
func (b *brake) State() Brake {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// count notes that a volume became deletable. It pulls the brake with the one that is too
// many, so that no deletion begins after that.
func (b *brake) count(pv types.UID) {
	if b.cfg.Deletions == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if _, counted := b.recent[pv]; !counted {
		b.recent[pv] = now
	}
	b.judge(now)
}

// judge pulls the brake if it has to be. b.mu is held.
func (b *brake) judge(now time.Time) {
	if len(b.recent) <= b.cfg.Deletions {
		return
	}
	for uid, at := range b.recent {
		if now.Sub(at) > b.cfg.Window {
			delete(b.recent, uid)
		}
	}
	if len(b.recent) <= b.cfg.Deletions || !b.leading || b.state == BrakeOn {
		return
	}
	b.state = BrakeOn
	b.written = false
	select {
	case b.pulled <- struct{}{}:
	default:
	}
}

// lead begins and ends the time in which this replica deletes.
func (b *brake) lead(leading bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leading = leading
	if b.cfg.Deletions == 0 {
		return
	}
	// What the Lease says now is not known yet.
	b.state, b.written = BrakeUnknown, false
}

// learn brings in what the Lease says. write tells that it has to be told that the brake is
// on; changed that deletions are stopped now, or go on.
func (b *brake) learn(on bool) (write, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.state
	switch {
	case on:
		b.state, b.written = BrakeOn, true
	case b.state == BrakeOn && !b.written:
		return true, false
	default:
		if b.state == BrakeOn {
			clear(b.recent) // a person let them go: they do not count again
		}
		b.state, b.written = BrakeOff, false
		b.judge(b.clock.Now())
	}
	return b.state == BrakeOn && !b.written, b.state != before
}

func (b *brake) wrote() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written = true
}

// keepBrake follows the brake's Lease until ctx ends.
func (r *Reclaimer) keepBrake(ctx context.Context) {
	ticker := r.cfg.Clock.NewTicker(brakePeriod)
	defer ticker.Stop()
	complained := false
	for {
		if err := r.lookAtBrake(ctx); err != nil && ctx.Err() == nil {
			if !complained {
				klog.FromContext(ctx).Error(err, "The brake's Lease cannot be read or written; what was known of it stays", "lease", r.cfg.Brake.Lease)
			}
			complained = true
		} else {
			complained = false
		}
		select {
		case <-ctx.Done():
			return
		case <-r.brake.pulled:
		case <-ticker.C():
		}
	}
}

func (r *Reclaimer) lookAtBrake(ctx context.Context) error {
	if err := r.mayAct(); err != nil {
		return err
	}
	on, err := r.cluster.readBrake(ctx, r.cfg.Brake.Lease)
	if err != nil {
		return err
	}
	write, changed := r.brake.learn(on)
	if err := r.mayAct(); err != nil {
		return err // the read may have taken a pause of the process
	}
	if write {
		why := fmt.Sprintf("more than %d volumes became deletable within %v", r.cfg.Brake.Deletions, r.cfg.Brake.Window)
		if !r.cfg.DryRun {
			if err := r.cluster.pullBrake(ctx, r.cfg.Brake.Lease, why+" at "+r.cfg.Clock.Now().UTC().Format(time.RFC3339)); err != nil {
				return err
			}
		}
		r.brake.wrote()
		r.reports.braked(ctx, r.cfg.Brake.Lease, "Deletions are stopped: "+why+". Look whether they are to go; then let go with: "+letGoCommand(r.cfg.Brake.Lease))
	}
	if !changed && !write {
		return nil
	}
	if r.brake.State() == BrakeOff {
		klog.FromContext(ctx).Info("The brake is off: volumes are deleted", "lease", r.cfg.Brake.Lease)
	} else {
		klog.FromContext(ctx).Info("The brake is on: no volume is deleted", "lease", r.cfg.Brake.Lease, "letGo", letGoCommand(r.cfg.Brake.Lease))
	}
	// Not AddAll, which waits for the workers: an operator who pulls the brake has to be heard.
	r.observer.wakeAll()
	return nil
}

// letGoCommand is what an operator types to let deletions go on.
func letGoCommand(lease types.NamespacedName) string {
	return fmt.Sprintf("kubectl annotate lease -n %s %s %s-", lease.Namespace, lease.Name, BrakeAnnotation)
}
