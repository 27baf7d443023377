//go:build unix

package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
)

func Backfill() []session.Family {
	const name = "backfill"
	const load = "10,000 bound PVs without the finalizer (reference: 100, one run), a watch of all PVs open; no " +
		"controller manager, no audit log; then the subject starts. "
	return []session.Family{{Name: name, Plane: session.Bare, Run: measureBackfill, Figures: append([]report.Figure{{
		Name: "backfill_per_second", Unit: "PVs/s", Goals: []report.Goal{report.AtLeastOf(0.9, report.Limit)},
		Load: load + "From the first PV protected to the last. Limit: bare PATCHes by 8 connections that add it.",
	}}, session.Costs(name, load+"From the start of the subject to the last PV protected.")...)}}
}

func measureBackfill(ctx context.Context, s *session.Session) error {
	n := s.Size(10_000, 2_000)
	one := func(sub subject.Subject, n int) error {
		return backfillOnce(ctx, s, n, sub.Column, func(ctx context.Context) (subject.Running, error) {
			return s.Env.Start(ctx, sub)
		})
	}
	return s.Alternate(func(run int) []func() error {
		all := append(session.Each(subject.Fast(), n, one), func() error {
			return backfillOnce(ctx, s, n, report.Limit, func(ctx context.Context) (subject.Running, error) {
				return nil, addFinalizers(ctx, s.Env, n)
			})
		})
		return append(all, s.Once(run, 100, one)...)
	})
}

// backfillOnce records how many PVs a second are protected, of n that are not when begin is called. begin returns the
// program that protects them, which is ended then, or nil.
func backfillOnce(ctx context.Context, s *session.Session, n int, column string,
	begin func(context.Context) (subject.Running, error)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, session.Patience)
	defer cancel()
	if err := s.Env.Fill.Empty(ctx); err != nil {
		return err
	}
	if err := s.Env.Fill.Bound(ctx, n, fill.Unprotected); err != nil {
		return err
	}
	watch, err := session.Track(ctx, s.Env.Users[len(s.Env.Users)-1])
	if err != nil {
		return err
	}
	defer watch.Close()
	before, err := s.Env.Used(nil)
	if err != nil {
		return err
	}
	program, err := begin(ctx)
	if err != nil {
		return err
	}
	if program != nil {
		defer func() { err = errors.Join(err, program.Stop()) }()
	}
	if err := watch.Wait(ctx, "protected", func(t *session.Tracker) bool { return t.Protected == n }); err != nil {
		return err
	}
	if err := s.RecordCosts(column, program, before, n); err != nil {
		return err
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fill.Name(i)
	}
	first, last := watch.Span(names, func(p session.PvTimes) time.Time { return p.Protected })
	s.Record("backfill_per_second", column, float64(n-1)/last.Sub(first).Seconds())
	return nil
}

// addFinalizers adds the finalizer to all filled PVs, by so many connections as ours has workers.
func addFinalizers(ctx context.Context, env *session.Environment, n int) error {
	return session.InParallel(ctx, patchers, n, func(ctx context.Context, worker, i int) error {
		name := fill.Name(i)
		body := fmt.Sprintf(`{"metadata":{"finalizers":[%q],"uid":%q}}`, volume.Finalizer, fill.UID(name))
		_, err := env.Users[worker].CoreV1().PersistentVolumes().Patch(ctx, name, types.StrategicMergePatchType, []byte(body),
			metav1.PatchOptions{})
		return err
	})
}
