package reclaim

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// policyEvery is the shortest interval between two reads of the policy while PVs are missed.
const policyEvery = 10 * time.Second

// admissions counts, since the last read of the policy, the PVs that came to need protection in a write that did not
// protect them. It is safe for concurrent use.
type admissions struct {
	mu    sync.Mutex
	count int
	first volume.PV
	// since is the time when the first was seen.
	since time.Time
	// noted holds a token while PVs are counted.
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

// take returns the counted PVs and resets the count.
func (a *admissions) take() (count int, first volume.PV, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	count, a.count = a.count, 0
	return count, a.first, a.since
}

// noteMissed counts a PV that an admission policy, if one exists, has missed.
func (r *Controller) noteMissed(before, now *volume.PV) {
	if r.admissions == nil || !r.leads() || !r.engine.Rules.Missed(before, now) {
		return
	}
	if before == nil && !r.pvCache.Synced() {
		return // the first list may hold PVs that are older than the policy
	}
	r.admissions.note(*now, r.cfg.Clock.Now())
}

// watchAdmission checks, until ctx ends, whether a policy should have protected the PVs that were missed. It reads no
// policy while no PV is missed.
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
			wait = r.cfg.AdmissionPolicySettles // a policy that is created now counts no earlier
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
		if !controller.Pause(ctx, r.cfg.Clock, wait) {
			return
		}
	}
}

// missed reports whether a policy had stood long enough when a PV was missed at that time. known is false if no policy
// exists or the read failed.
func (r *Controller) missed(ctx context.Context, at time.Time) (missed, known bool) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	var stands time.Time
	var err error
	panicked := panics.Contain(ctx, func() { stands, known, err = r.cfg.AdmissionPolicy(ctx) }, "callback",
		"Config.AdmissionPolicy")
	if err = cmp.Or(err, panicked); err != nil {
		klog.FromContext(ctx).V(2).Info("Whether an admission policy protects the driver's PVs could not be read", "err", err)
		return false, false
	}
	return known && at.Sub(stands) >= r.cfg.AdmissionPolicySettles, known
}
