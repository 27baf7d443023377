//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
)

func failureFamilies() []family {
	const half = "1,000 volumes, claims deleted live by 16 users' connections, zero latency; "
	return []family{{
		name: "slow_driver", plane: working, long: true, run: measureSlowDriver, figures: []Figure{{
			Name: "slow_driver_reclaim_per_second", Unit: "PVs/s", Goals: []Goal{atLeastOf(0.8, Limit)},
			Load: "1,000 volumes, claims deleted live, a driver that takes 500 ms a call and any number at once. The limit " +
				"is 100 workers, or threads, through 500 ms.",
		}},
	}, {
		name: "failing_driver", plane: working, long: true, run: measureFailing, figures: []Figure{
			{Name: "healthy_half_per_second_all_healthy", Unit: "PVs/s",
				Load: half + "nothing fails. Rate of one half, until its last PV is gone."},
			{Name: "healthy_half_per_second_half_failing", Unit: "PVs/s",
				Load: half + "each call for the other half fails (Internal). Rate of the healthy half."},
			{Name: "half_failing_ratio", Unit: "×", Goals: []Goal{atLeast(0.9)},
				Load: "The second of these rates to the first, run by run."},
		},
	}, {
		name: "bare_rpcs", plane: working, run: measureBareRPCs, figures: []Figure{{
			Name: "bare_delete_rpcs_per_second", Unit: "calls/s",
			Load: "DeleteVolume for 5,000 volumes, 100 at once on one connection, by a client that does nothing else.",
		}},
	}}
}

func measureSlowDriver(ctx context.Context, s *session) error {
	const takes = 500 * time.Millisecond
	s.record("slow_driver_reclaim_per_second", Limit, workers/takes.Seconds())
	return s.alternate(func(int) (all []func() error) {
		for _, subject := range []subject{ours(), unthrottled()} {
			all = append(all, func() error {
				o, err := s.race(ctx, race{subject: subject, n: s.size(1000, 200), faults: slowDriver(takes)})
				if err == nil {
					s.record("slow_driver_reclaim_per_second", subject.column, o.perSecond(o.gone))
				}
				return err
			})
		}
		return all
	})
}

func measureFailing(ctx context.Context, s *session) error {
	fail := faults.Plan{Rules: []faults.Rule{{Method: "DeleteVolume", VolumeName: "sick-*", Action: faults.Fail,
		Code: "Internal"}}}
	return s.alternate(func(int) (all []func() error) {
		for _, subject := range []subject{ours(), unthrottled()} {
			all = append(all, func() error {
				healthy, err := s.healthyHalf(ctx, subject, faults.Plan{})
				if err != nil {
					return err
				}
				failing, err := s.healthyHalf(ctx, subject, fail)
				if err != nil {
					return err
				}
				s.record("healthy_half_per_second_all_healthy", subject.column, healthy)
				s.record("healthy_half_per_second_half_failing", subject.column, failing)
				s.record("half_failing_ratio", subject.column, failing/healthy)
				return nil
			})
		}
		return all
	})
}

// healthyHalf returns how many PVs a second go of the half that a plan does not pick.
func (s *session) healthyHalf(ctx context.Context, subject subject, plan faults.Plan) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n := s.size(500, 50)
	healthy, err := s.env.createVolumeSet(ctx, volumeSetSpec{n: n})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, healthy.close(ctx)) }()
	sick, err := s.env.createVolumeSet(ctx, volumeSetSpec{n: n, name: "sick"})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, sick.close(ctx)) }()
	stop, err := s.atWork(ctx, subject)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := s.env.driver.SetFaults(ctx, plan); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.env.driver.ClearFaults(context.WithoutCancel(ctx))) }()
	names := s.shuffled(slices.Concat(healthy.names, sick.names))
	began := time.Now()
	if err := healthy.remove(ctx, false, names); err != nil {
		return 0, err
	}
	if err := healthy.watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == n }); err != nil {
		return 0, err
	}
	end := healthy.watch.last(healthy.names, func(p pvTimes) time.Time { return p.gone })
	return float64(n) / end.Sub(began).Seconds(), nil
}

func measureBareRPCs(ctx context.Context, s *session) error {
	n := s.size(5000, 1000)
	for run := range s.Runs {
		handles := make([]string, n)
		if err := s.env.each(ctx, n, func(ctx context.Context, _ kubernetes.Interface, i int) (err error) {
			handles[i], err = s.env.createVolume(ctx, fmt.Sprintf("bare-%d-%d", run, i))
			return err
		}); err != nil {
			return err
		}
		began := time.Now()
		if err := inParallel(ctx, workers, n, func(ctx context.Context, _, i int) error {
			_, err := s.env.driver.Controller().DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: handles[i]})
			return err
		}); err != nil {
			return err
		}
		s.record("bare_delete_rpcs_per_second", Limit, float64(n)/time.Since(began).Seconds())
	}
	return nil
}
