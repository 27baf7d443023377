package reclaim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
)

// BrakeConfig holds the settings of the brake, which stops all deletions when many volumes become deletable at once: a
// namespace that was deleted by mistake need not cost hundreds of disks before a person looks.
type BrakeConfig struct {
	// Deletions is the number of volumes that may become deletable within Window, 0 for no brake. One more stops all
	// deletions until a person resumes them.
	Deletions int
	// Window is the period over which volumes are counted. Default 1 minute.
	Window time.Duration
	// Lease names the Lease (coordination.k8s.io) whose BrakeAnnotation turns the brake on, so that a restart does not
	// release it. It is required with Deletions and created if absent; the Lease of the leader election serves well.
	Lease types.NamespacedName
}

// BrakeAnnotation stops all deletions while the brake's Lease carries it. The brake adds it, as a person may do to
// stop deletions; only a person removes it.
const BrakeAnnotation = reclaim.BrakeAnnotation

// brakePeriod is the interval at which the Lease is read, to notice the brake's release.
const brakePeriod = 5 * time.Second

// nodeBrakePeriod is the interval at which a process of one node reads the Lease, which all nodes share, and
// nodeBrakedPeriod while the brake is on, so that its release takes effect soon. Up to as much is added at random, so
// that nodes that start together do not read together. Such a process reads the Lease before its deletions too (see
// checkBrake).
const (
	nodeBrakePeriod  = 2 * time.Minute
	nodeBrakedPeriod = 30 * time.Second
)

// brakeReads are the reads of the brake's Lease, of which there is one at a time: the result of an earlier read must
// not be learned after this process has added the annotation, or it would look like a release.
type brakeReads struct {
	// turn has room for the token of the caller that reads.
	turn chan struct{}
	// began is the beginning of the last read before a deletion, and err its error.
	began time.Time
	err   error
}

// acquire waits for the turn to read, until release or the end of ctx.
func (b *brakeReads) acquire(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *brakeReads) release() { <-b.turn }

// watchBrake follows the brake's Lease until ctx ends.
func (r *Controller) watchBrake(ctx context.Context) {
	failed, tries := "", 0
	for {
		failed = r.logBrake(ctx, r.syncBrake(ctx), failed)
		if tries++; failed == "" {
			tries = 0
		}
		timer := r.cfg.Clock.NewTimer(r.brakeDelay(tries))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.tripped:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// brakeDelay returns the delay before the next read of the Lease, after this many failures in a row.
func (r *Controller) brakeDelay(failures int) time.Duration {
	if r.cfg.Node == nil {
		return brakePeriod
	}
	delay := nodeBrakePeriod
	switch {
	case r.brakeState() == reclaim.BrakeOn:
		delay = nodeBrakedPeriod
	case failures > 0:
		delay = controller.Backoff{First: brakePeriod, Max: nodeBrakePeriod}.Delay(failures - 1)
	}
	return delay + rand.N(delay)
}

// checkBrake learns the present state of the Lease before a deletion of a process of one node, which otherwise reads
// the Lease rarely. Workers share a read that began after they asked.
func (r *Controller) checkBrake(ctx context.Context) error {
	if r.cfg.Node == nil || r.cfg.Brake.Deletions == 0 {
		return nil
	}
	asked, reads := r.cfg.Clock.Now(), &r.brakeReads
	if err := reads.acquire(ctx); err != nil {
		return err
	}
	defer reads.release()
	if reads.began.After(asked) {
		return reads.err
	}
	reads.began = r.cfg.Clock.Now()
	lease, on, err := r.cluster.readBrake(ctx, r.cfg.Brake.Lease)
	if reads.err = err; err != nil {
		return err
	}
	why, changed := r.learnBrake(lease, on)
	if changed {
		r.spreadBrake(ctx)
	}
	if why != "" || changed {
		r.syncBrakeSoon() // to add the annotation, or to read at the interval of the new state
	}
	return nil
}

// syncBrakeSoon has watchBrake call syncBrake.
func (r *Controller) syncBrakeSoon() {
	select {
	case r.tripped <- struct{}{}:
	default:
	}
}

// logBrake logs the first failure of each call to the API server and returns the call, empty for none. failed is the
// call that failed before. An error begins with its call; the rest may differ in each try.
func (r *Controller) logBrake(ctx context.Context, err error, failed string) (call string) {
	if err == nil || ctx.Err() != nil {
		return ""
	}
	if call, _, _ = strings.Cut(err.Error(), ": "); call != failed {
		klog.FromContext(ctx).Error(err, "Failed to read or write the Lease of the brake; its last known state stays in "+
			"force", "lease", r.cfg.Brake.Lease)
	}
	return call
}

func (r *Controller) syncBrake(ctx context.Context) error {
	if err := r.brakeReads.acquire(ctx); err != nil {
		return err
	}
	defer r.brakeReads.release()
	if err := r.mayAct(); err != nil {
		return err
	}
	lease, on, err := r.cluster.readBrake(ctx, r.cfg.Brake.Lease)
	if err != nil {
		return err
	}
	why, changed := r.learnBrake(lease, on)
	if err := r.mayAct(); err != nil {
		return err // the process may have been paused during the read
	}
	if why != "" {
		if err := r.addBrake(ctx, why); err != nil {
			return err
		}
	}
	if changed || why != "" {
		r.spreadBrake(ctx)
	}
	if lease != "" || why != "" || r.cfg.DryRun {
		return nil
	}
	// A person who stops deletions needs a Lease to annotate.
	return r.cluster.createBrake(ctx, r.cfg.Brake.Lease)
}

// addBrake adds the annotation to the Lease, and reports why.
func (r *Controller) addBrake(ctx context.Context, why string) error {
	if r.cfg.DryRun {
		r.wroteBrake("")
		r.reportBrake(ctx, "Deletions would be paused: "+why+".")
		return nil
	}
	lease, err := r.cluster.writeBrake(ctx, r.cfg.Brake.Lease,
		why+" at "+r.cfg.Clock.Now().UTC().Format(time.RFC3339))
	if err != nil {
		return err
	}
	r.wroteBrake(lease)
	r.reportBrake(ctx, "Deletions are paused: "+why+". Check that these volumes should be deleted; then resume with: "+
		resumeCommand(r.cfg.Brake.Lease))
	return nil
}

// spreadBrake has each PV decided again.
func (r *Controller) spreadBrake(ctx context.Context) {
	if r.brakeState() == reclaim.BrakeOff {
		klog.FromContext(ctx).Info("The brake is off: volumes are deleted", "lease", r.cfg.Brake.Lease)
	} else {
		klog.FromContext(ctx).Info("The brake is on: no volume is deleted", "lease", r.cfg.Brake.Lease, "resume",
			resumeCommand(r.cfg.Brake.Lease))
	}
	// Not AddAll, which waits for the workers: an operator's use of the brake must take effect at once.
	r.enqueueAll()
}

// resumeCommand returns the kubectl command that resumes deletions.
func resumeCommand(lease types.NamespacedName) string {
	return fmt.Sprintf("kubectl annotate lease -n %s %s %s-", lease.Namespace, lease.Name, BrakeAnnotation)
}

// learnBrake records the Lease's state. It returns why the annotation has to be added, empty if it need not be, and
// whether deletions pause or resume.
func (r *Controller) learnBrake(lease types.UID, on bool) (why string, changed bool) {
	now := r.cfg.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	write, changed := r.engine.LearnBrake(lease, on, now)
	switch {
	case !write:
	case r.engine.Breaker.Lease != "":
		why = "the brake was on when its Lease was deleted"
	default:
		why = fmt.Sprintf("more than %d volumes became deletable within %v", r.cfg.Brake.Deletions, r.cfg.Brake.Window)
	}
	return why, changed
}

func (r *Controller) wroteBrake(lease types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.engine.Breaker.Wrote(lease)
}

func (r *Controller) brakeState() reclaim.Brake {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.engine.Breaker.State
}

// reportBrake reports on the Lease that deletions stop, as a Warning; the Event on each PV that waits is at most
// Normal.
func (r *Controller) reportBrake(ctx context.Context, message string) {
	if r.mayAct() != nil {
		return
	}
	at, reason := r.cfg.Brake.Lease, string(reclaim.ReasonDeletionsPaused)
	klog.FromContext(ctx).Info(message, "lease", at)
	r.metrics.reported.WithLabelValues(reason).Inc()
	r.cfg.Events.Event(&v1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: at.Namespace,
		Name: at.Name}, v1.EventTypeWarning, reason, message)
}
