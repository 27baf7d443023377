package reclaim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// policyEvery is how often the policy is read at most while PVs are missed.
const policyEvery = 10 * time.Second

// admissions are the PVs that became ones to be protected and were not protected in the same write, since the policy
// was read last. It is safe for concurrent use.
type admissions struct {
	mu    sync.Mutex
	count int
	first volume.PV
	// since is when the first of them was seen.
	since time.Time
	// noted holds a token while there are any.
	noted chan struct{}
}

func newAdmissions() *admissions { return &admissions{noted: make(chan struct{}, 1)} }

func (a *admissions) note(pv volume.PV, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count == 0 {
		a.first, a.since = pv, now
	}
	a.count++
	select {
	case a.noted <- struct{}{}:
	default:
	}
}

// take returns them, and forgets them.
func (a *admissions) take() (count int, first volume.PV, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	count, a.count = a.count, 0
	return count, a.first, a.since
}

// noteMissed notes a PV that an admission policy, if there is one, has missed.
func (r *Controller) noteMissed(before, now *volume.PV) {
	if r.admissions == nil || !r.leads() || !r.engine.Rules.Missed(before, now) {
		return
	}
	if before == nil && !r.pvCache.Synced() {
		return // what the first list shows may be from before the policy
	}
	r.admissions.note(*now, r.cfg.Clock.Now())
}

// watchAdmission finds out of PVs that were missed whether a policy should have protected them, until ctx ends. Nothing
// is read while none are.
func (r *Controller) watchAdmission(ctx context.Context) {
	for reported := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-r.admissions.noted:
		}
		wait := policyEvery
		count, first, since := r.admissions.take()
		if missed, known := r.missed(ctx, since); !known {
			wait = r.cfg.AdmissionPolicySettles // none that begins now counts before
		} else if missed {
			r.metrics.missed.Add(float64(count))
			klog.FromContext(ctx).Info("PVs were bound without the finalizer although an admission policy stands", "count",
				count, "PV", first.Name)
			if !reported {
				r.recorder.Event(ctx, object(first), reclaim.ReasonAdmissionPolicyIneffective,
					fmt.Sprintf("%d PVs so far; csi_reclaimer_admission_policy_missed_total counts on.", count))
			}
			reported = true
		}
		select {
		case <-ctx.Done():
			return
		case <-r.cfg.Clock.After(wait):
		}
	}
}

// missed reports whether a policy has stood for long enough when a PV was missed at that time. known is false where
// there is none, or it could not be read.
func (r *Controller) missed(ctx context.Context, at time.Time) (missed, known bool) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	stands, known, err := r.cfg.AdmissionPolicy(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Whether an admission policy protects the driver's PVs could not be read", "err", err)
		return false, false
	}
	return known && at.Sub(stands) >= r.cfg.AdmissionPolicySettles, known
}
