//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

func latencyFamilies() []family {
	const name = "latency"
	const load = "Claims deleted one at a time, 100 a run (reference: 30, one run), nothing else going on: from the " +
		"audit log's time of receipt of the write that makes the PV Released to the driver's receipt of DeleteVolume. " +
		"A run's value is its percentile."
	return []family{{name: name, plane: audited, run: measureLatency, figures: append([]report.Figure{
		{Name: "released_to_deleted_ms_p50", Unit: "ms", Goals: []report.Goal{report.AtMost(8)}, Load: load},
		{Name: "released_to_deleted_ms_p99", Unit: "ms", Goals: []report.Goal{report.AtMostOf(1, report.Unthrottled)},
			Load: load},
	}, costs(name, "Claims deleted one at a time, with an audit log.")...)}}
}

func measureLatency(ctx context.Context, s *session) error {
	n := s.size(100, 20)
	one := func(sub subject.Subject, n int) func() error {
		return func() error {
			return s.withSubject(ctx, sub, func(ctx context.Context, program subject.Running) error {
				delays, err := s.latencies(ctx, sub.Column, program, n)
				if err != nil {
					return err
				}
				s.record("released_to_deleted_ms_p50", sub.Column, report.Percentile(delays, 50))
				s.record("released_to_deleted_ms_p99", sub.Column, report.Percentile(delays, 99))
				return nil
			})
		}
	}
	return s.alternate(func(run int) []func() error {
		return append(each(subject.Fast(), n, one), s.once(run, 30, one)...)
	})
}

// latencies has users make n claims and delete them one at a time, and returns the delays in milliseconds.
func (s *session) latencies(ctx context.Context, column string, program subject.Running, n int) (delays []float64,
	err error) {
	watch, err := track(ctx, s.env.users[0])
	if err != nil {
		return nil, err
	}
	defer watch.close()
	c, err := s.env.bindClaims(ctx, n, nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.env.waitSettled(ctx), s.env.quiet(ctx)); err != nil {
		return nil, err
	}
	before, err := s.env.used(program)
	if err != nil {
		return nil, err
	}
	for i, name := range s.shuffled(c.names()) {
		if err := s.env.remove(ctx, c, []string{name}, false); err != nil {
			return nil, err
		}
		if err := watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == i+1 }); err != nil {
			return nil, err
		}
	}
	if err := s.recordCosts(column, program, before, n); err != nil {
		return nil, err
	}
	return s.env.delays(ctx, watch.handles(c.pvs()))
}

// delays returns, for volumes that were deleted since it was asked last, the time from the write that made the PV
// Released to the driver's receipt of the first call, in milliseconds. handles are the volumes by PV.
func (env *environment) delays(ctx context.Context, handles map[string]string) (delays []float64, err error) {
	calls, err := env.deletions()
	if err != nil {
		return nil, err
	}
	if err := env.auditComplete(ctx); err != nil {
		return nil, err
	}
	received := map[string]time.Time{} // by handle
	for _, call := range callsFor(calls, handles) {
		if _, again := received[call.Volume]; !again {
			received[call.Volume] = call.Received
		}
	}
	released, err := env.lastStatusWrites(handles, received)
	if err != nil {
		return nil, err
	}
	for pv, at := range released {
		delays = append(delays, received[handles[pv]].Sub(at).Seconds()*1000)
	}
	if len(delays) != len(handles) {
		return nil, fmt.Errorf("find the writes that released PVs: %d of %d are in the audit log", len(delays),
			len(handles))
	}
	return delays, nil
}

// lastStatusWrites returns, by PV, the time of the last write of its status before the driver's call. That write made
// it Released. handles are the volumes by PV.
func (env *environment) lastStatusWrites(handles map[string]string,
	called map[string]time.Time) (map[string]time.Time, error) {
	last := map[string]time.Time{}
	_, err := env.cluster.AuditEvents(func(e controlplane.AuditEvent) bool {
		before, mine := called[handles[e.Name]]
		if mine && e.Resource == "persistentvolumes" && e.Subresource == "status" && e.Code == 200 &&
			e.Received.Before(before) && e.Received.After(last[e.Name]) {
			last[e.Name] = e.Received
		}
		return false
	})
	return last, err
}
