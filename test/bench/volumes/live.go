//go:build unix

package volumes

import (
	"context"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
)

func Live() []session.Family {
	const load = "500 claims (reference: 50, one run) that 16 users' connections make at once and, when all are bound, " +
		"delete in random order, in both orders; the subject provisions and deletes; driver without latency; no audit log. "
	const name = "live"
	figures := []report.Figure{
		{Name: "claims_bound_per_second", Unit: "claims/s", Goals: report.Parity(report.AtLeastOf, 1),
			Load: load + "From the first claim to the last that is Bound. Limit: no subject and no driver, the users make " +
				"each claim's PV themselves."},
		{Name: "gone_per_second_" + session.PVFirst, Unit: "PVs/s", Goals: report.Parity(report.AtLeastOf, 1),
			Load: load + "From the first DELETE to the last PV gone. Limit: no subject, and PVs without its finalizer."},
		{Name: "gone_per_second_" + session.ClaimFirst, Unit: "PVs/s", Goals: report.Parity(report.AtLeastOf, 1),
			Load: load + "The same. Limit: no subject, no finalizer, and the users delete each PV as soon as it is Released."},
	}
	return []session.Family{{Name: name, Plane: session.Working, Run: measureLive,
		Figures: append(figures, session.Costs(name, load+"Volumes made and deleted.",
			report.Parity(report.AtMostOf, 1)...)...)}}
}

func measureLive(ctx context.Context, s *session.Session) error {
	n := s.Size(500, 100)
	one := func(sub subject.Subject, n int) error {
		return s.WithSubject(ctx, sub, func(ctx context.Context, program subject.Running) error {
			return liveRound(ctx, s, sub.Column, program, n)
		})
	}
	return s.Alternate(func(run int) []func() error {
		all := append(session.Each(subject.Fast(), n, one), func() error { return liveRound(ctx, s, report.Limit, nil, n) })
		return append(all, s.Once(run, 50, one)...)
	})
}

// liveRound makes and deletes n volumes in each order and records it; without a program the users do it all.
func liveRound(ctx context.Context, s *session.Session, column string, program subject.Running, n int) error {
	before, err := s.Env.Used(program)
	if err != nil {
		return err
	}
	var making time.Duration
	for _, order := range session.Orders() {
		r, err := s.Round(ctx, n, order, program == nil)
		if err != nil {
			return err
		}
		making += r.Bound.Sub(r.Began)
		s.Record("gone_per_second_"+order, column, float64(n)/r.Gone.Sub(r.Deleted).Seconds())
	}
	s.Record("claims_bound_per_second", column, float64(2*n)/making.Seconds())
	return s.RecordCosts(column, program, before, 2*n)
}
