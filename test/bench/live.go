//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
)

// patience bounds one run. The reference at its defaults takes a minute for a hundred volumes.
const patience = 5 * time.Minute

// orders are the two in which users delete: the endings of figures' names.
func orders() []string { return []string{pvFirst, claimFirst} }

const (
	pvFirst    = "pv_first"
	claimFirst = "claim_first"
)

func liveFamilies() []family {
	const load = "500 claims (reference: 50, one run) that 16 users' connections make at once and, when all are bound, " +
		"delete in random order, in both orders; the subject provisions and deletes; driver without latency; no audit log. "
	const name = "live"
	figures := []report.Figure{
		{Name: "claims_bound_per_second", Unit: "claims/s", Goals: []report.Goal{report.AtLeastOf(1, report.Unthrottled)},
			Load: load + "From the first claim to the last that is Bound. Limit: no subject and no driver, the users make " +
				"each claim's PV themselves."},
		{Name: "gone_per_second_" + pvFirst, Unit: "PVs/s", Goals: []report.Goal{report.AtLeastOf(1, report.Unthrottled)},
			Load: load + "From the first DELETE to the last PV gone. Limit: no subject, and PVs without its finalizer."},
		{Name: "gone_per_second_" + claimFirst, Unit: "PVs/s",
			Goals: []report.Goal{report.AtLeastOf(1, report.Unthrottled)},
			Load:  load + "The same. Limit: no subject, no finalizer, and the users delete each PV as soon as it is Released."},
	}
	return []family{{name: name, plane: working, run: measureLive,
		figures: append(figures, costs(name, load+"Volumes made and deleted.",
			report.AtMostOf(1, report.Unthrottled))...)}}
}

func measureLive(ctx context.Context, s *session) error {
	n := s.size(500, 100)
	one := func(sub subject.Subject, n int) func() error {
		return func() error {
			return s.withSubject(ctx, sub, func(ctx context.Context, program subject.Running) error {
				return s.live(ctx, sub.Column, program, n)
			})
		}
	}
	return s.alternate(func(run int) []func() error {
		all := append(each(subject.Fast(), n, one), func() error { return s.live(ctx, report.Limit, nil, n) })
		return append(all, s.once(run, 50, one)...)
	})
}

// live makes and deletes n volumes in each order and records it; without a program the users do it all.
func (s *session) live(ctx context.Context, column string, program subject.Running, n int) error {
	before, err := s.env.used(program)
	if err != nil {
		return err
	}
	var making time.Duration
	for _, order := range orders() {
		r, err := s.round(ctx, n, order, program == nil)
		if err != nil {
			return err
		}
		making += r.bound.Sub(r.began)
		s.record("gone_per_second_"+order, column, float64(n)/r.gone.Sub(r.deleted).Seconds())
	}
	s.record("claims_bound_per_second", column, float64(2*n)/making.Seconds())
	return s.recordCosts(column, program, before, 2*n)
}

// afterTakeover is how long after its start ours reads claim and PV before it provisions a claim. Until then the claim
// may be older than ours' hold of the in-flight log, by clocks that differ by 5 seconds and show whole ones.
const afterTakeover = 7 * time.Second

// withSubject starts a subject, calls do once it has made and deleted a volume, so that its caches are filled, and
// afterTakeover has passed, and ends it.
func (s *session) withSubject(ctx context.Context, sub subject.Subject,
	do func(context.Context, subject.Running) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	program, err := s.env.start(ctx, sub)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, program.Stop()) }()
	if _, err := s.round(ctx, 1, pvFirst, false); err != nil {
		return fmt.Errorf("wait for %s to make and delete a volume: %w\n%s", sub.Column, err, program.LogTail(10))
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(afterTakeover):
	}
	return do(ctx, program)
}

// round is a number of claims that users make and delete.
type round struct {
	claims
	// deleted is when the first claim or PV was deleted, gone when the last PV was gone, and ended, with an audit log,
	// when the API server received no more requests.
	deleted, gone, ended time.Time
	// calls are the DeleteVolume calls for the volumes.
	calls []ledger.Call
}

// round has users make and delete n claims in an order. alone, no subject is at work, and they make the PVs too.
func (s *session) round(ctx context.Context, n int, order string, alone bool) (r round, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	watch, err := track(ctx, s.env.users[0])
	if err != nil {
		return r, err
	}
	defer watch.close()
	var then afterClaim
	if alone {
		then = makePV(false)
	}
	if r.claims, err = s.env.bindClaims(ctx, n, then); err != nil {
		return r, err
	}
	if err := errors.Join(s.env.waitSettled(ctx), s.env.quiet(ctx)); err != nil {
		return r, err
	}
	names := s.shuffled(r.names())
	r.deleted = time.Now()
	if alone && order == claimFirst {
		err = s.env.removeReleased(ctx, r.claims, names, watch)
	} else {
		err = s.env.remove(ctx, r.claims, names, order == pvFirst)
	}
	if err != nil {
		return r, err
	}
	if err := watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == n }); err != nil {
		return r, err
	}
	_, r.gone = watch.span(r.pvs(), func(p pvTimes) time.Time { return p.gone })
	err = s.env.quiet(ctx)
	r.ended = time.Now()
	if alone || err != nil {
		return r, err
	}
	calls, err := s.env.deletions()
	if err != nil {
		return r, err
	}
	r.calls = callsFor(calls, watch.handles(r.pvs()))
	return r, everyVolume(r.calls, n)
}
