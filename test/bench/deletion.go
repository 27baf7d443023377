//go:build unix

package bench

import (
	"context"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
)

// orders are the two in which users delete, with the ending of the figures' names.
func orders() map[string]bool { return map[string]bool{"_claim_first": false, "_pv_first": true} }

const (
	goneLoad = "1,000 volumes (reference: 100), 16 users' connections deleting live in random order, driver without " +
		"latency; from the first DELETE to the last PV gone. "
	slowLoad = "1,000 volumes, 16 users' connections deleting live, a driver that takes 200 ms a call and any number " +
		"at once; from the first DELETE to the last PV gone. The limit is 100 workers, or threads, through 200 ms. "
)

func deletionFamilies() []family {
	return []family{{
		name: "gone", plane: working, run: measureDeletion, figures: []Figure{
			{Name: "gone_per_second_pv_first", Unit: "PVs/s",
				Goals: []Goal{atLeastOf(100, Reference), atLeastOf(1.1, Unthrottled)},
				Load:  goneLoad + "Limit: PVs without a finalizer of anybody's but Kubernetes', with no subject."},
			{Name: "gone_per_second_claim_first", Unit: "PVs/s", Goals: []Goal{atLeastOf(1, Unthrottled)},
				Load: goneLoad + "Limit: no subject, no finalizer, and the users delete each PV as soon as it is Released."},
			{Name: "finalizer_drops_per_second_pv_first", Unit: "PVs/s",
				Load: "The same runs: to the last PV without the finalizer."},
			{Name: "finalizer_drops_per_second_claim_first", Unit: "PVs/s",
				Load: "The same runs: to the last PV without the finalizer. Gone it is when the controller manager has taken " +
					"off its own."},
		},
	}, {
		name: "gone_200ms", plane: working, long: true, run: measureDeletionBySlowDriver, figures: []Figure{
			{Name: "gone_per_second_200ms_driver_pv_first", Unit: "PVs/s", Goals: []Goal{atLeastOf(1.3, Unthrottled)},
				Load: slowLoad},
			{Name: "gone_per_second_200ms_driver_claim_first", Unit: "PVs/s", Goals: []Goal{atLeastOf(1.3, Unthrottled)},
				Load: slowLoad},
		},
	}}
}

func measureDeletion(ctx context.Context, s *session) error {
	n := s.size(1000, 100)
	for _, order := range []string{"_pv_first", "_claim_first"} {
		pvFirst := orders()[order]
		one := func(subject subject, n int) func() error {
			return func() error {
				o, err := s.race(ctx, race{subject: subject, n: n, pvFirst: pvFirst})
				if err != nil {
					return err
				}
				s.record("gone_per_second"+order, subject.column, o.perSecond(o.gone))
				s.record("finalizer_drops_per_second"+order, subject.column, o.perSecond(o.dropped))
				return nil
			}
		}
		if err := s.alternate(func(int) []func() error {
			return []func() error{
				one(ours(), n), one(reference(), s.size(100, 20)), one(unthrottled(), n),
				func() error {
					rate, err := s.limit(ctx, n, pvFirst)
					if err == nil {
						s.record("gone_per_second"+order, Limit, rate)
					}
					return err
				},
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// slowDriver takes this long for each DeleteVolume call, and any number at once.
func slowDriver(takes time.Duration) faults.Plan {
	return faults.Plan{Rules: []faults.Rule{{Method: "DeleteVolume", Action: faults.Delay, Delay: faults.Duration(takes)}}}
}

// workers is how many volumes ours (--worker-threads) and the unthrottled reference delete at once.
const workers = 100

func measureDeletionBySlowDriver(ctx context.Context, s *session) error {
	const takes = 200 * time.Millisecond
	n := s.size(1000, 200)
	for _, order := range []string{"_pv_first", "_claim_first"} {
		s.record("gone_per_second_200ms_driver"+order, Limit, workers/takes.Seconds())
		if err := s.alternate(func(int) (all []func() error) {
			for _, subject := range []subject{ours(), unthrottled()} {
				all = append(all, func() error {
					o, err := s.race(ctx, race{subject: subject, n: n, pvFirst: orders()[order], faults: slowDriver(takes)})
					if err == nil {
						s.record("gone_per_second_200ms_driver"+order, subject.column, o.perSecond(o.gone))
					}
					return err
				})
			}
			return all
		}); err != nil {
			return err
		}
	}
	return nil
}
