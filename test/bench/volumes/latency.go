//go:build unix

package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

func Latency() []session.Family {
	const name = "latency"
	const load = "Claims deleted one at a time, 100 a run (reference: 30, one run), nothing else going on: from the " +
		"audit log's time of receipt of the write that makes the PV Released to the driver's receipt of DeleteVolume. " +
		"A run's value is its percentile."
	return []session.Family{{Name: name, Plane: session.Audited, Run: measureLatency, Figures: append([]report.Figure{
		{Name: "released_to_deleted_ms_p50", Unit: "ms", Goals: []report.Goal{report.AtMost(8)}, Load: load},
		{Name: "released_to_deleted_ms_p99", Unit: "ms", Goals: report.Parity(report.AtMostOf, 1),
			Load: load},
	}, session.Costs(name, "Claims deleted one at a time, with an audit log.")...)}}
}

func measureLatency(ctx context.Context, s *session.Session) error {
	n := s.Size(100, 20)
	one := func(sub subject.Subject, n int) error {
		return s.WithSubject(ctx, sub, func(ctx context.Context, program subject.Running) error {
			delays, err := latencies(ctx, s, sub.Column, program, n)
			if err != nil {
				return err
			}
			s.Record("released_to_deleted_ms_p50", sub.Column, report.Percentile(delays, 50))
			s.Record("released_to_deleted_ms_p99", sub.Column, report.Percentile(delays, 99))
			return nil
		})
	}
	return s.Alternate(func(run int) []func() error {
		return append(session.Each(subject.Fast(), n, one), s.Once(run, 30, one)...)
	})
}

// latencies has users make n claims and delete them one at a time, and returns the delays in milliseconds.
func latencies(ctx context.Context, s *session.Session, column string, program subject.Running,
	n int) (delays []float64, err error) {
	watch, err := session.Track(ctx, s.Env.Users[0])
	if err != nil {
		return nil, err
	}
	defer watch.Close()
	c, err := s.Env.BindClaims(ctx, n, nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.Env.WaitSettled(ctx), s.Env.Quiet(ctx)); err != nil {
		return nil, err
	}
	before, err := s.Env.Used(program)
	if err != nil {
		return nil, err
	}
	for i, name := range s.Shuffled(c.Names()) {
		if err := s.Env.Remove(ctx, c, []string{name}, false); err != nil {
			return nil, err
		}
		if err := watch.Wait(ctx, "gone", func(t *session.Tracker) bool { return t.Gone == i+1 }); err != nil {
			return nil, err
		}
	}
	if err := s.RecordCosts(column, program, before, n); err != nil {
		return nil, err
	}
	return releaseDelays(ctx, s.Env, watch.Handles(c.Pvs()))
}

// releaseDelays returns, for volumes that were deleted since it was asked last, the time from the write that made the
// PV Released to the driver's receipt of the first call, in milliseconds. handles are the volumes by PV.
func releaseDelays(ctx context.Context, env *session.Environment, handles map[string]string) (delays []float64,
	err error) {
	calls, err := env.Deletions()
	if err != nil {
		return nil, err
	}
	if err := env.AuditComplete(ctx); err != nil {
		return nil, err
	}
	received := map[string]time.Time{} // by handle
	for _, call := range session.CallsFor(calls, handles) {
		if _, again := received[call.Volume]; !again {
			received[call.Volume] = call.Received
		}
	}
	released, err := lastStatusWrites(env, handles, received)
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
func lastStatusWrites(env *session.Environment, handles map[string]string,
	called map[string]time.Time) (map[string]time.Time, error) {
	last := map[string]time.Time{}
	_, err := env.Cluster.AuditEvents(func(e controlplane.AuditEvent) bool {
		before, mine := called[handles[e.Name]]
		if mine && e.Resource == "persistentvolumes" && e.Subresource == "status" && e.Code == 200 &&
			e.Received.Before(before) && e.Received.After(last[e.Name]) {
			last[e.Name] = e.Received
		}
		return false
	})
	return last, err
}
