//go:build unix

package bench

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
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
)

func backfillFamilies() []family {
	const name = "backfill"
	const load = "10,000 bound PVs without the finalizer (reference: 100, one run), a watch of all PVs open; no " +
		"controller manager, no audit log; then the subject starts. "
	return []family{{name: name, plane: bare, run: measureBackfill, figures: append([]report.Figure{{
		Name: "backfill_per_second", Unit: "PVs/s", Goals: []report.Goal{report.AtLeastOf(0.9, report.Limit)},
		Load: load + "From the first PV protected to the last. Limit: bare PATCHes by 8 connections that add it.",
	}}, costs(name, load+"From the start of the subject to the last PV protected.")...)}}
}

func measureBackfill(ctx context.Context, s *session) error {
	n := s.size(10_000, 2_000)
	one := func(sub subject.Subject, n int) func() error {
		return func() error {
			return s.backfill(ctx, n, sub.Column, func(ctx context.Context) (subject.Running, error) {
				return s.env.start(ctx, sub)
			})
		}
	}
	return s.alternate(func(run int) []func() error {
		all := append(each(subject.Fast(), n, one), func() error {
			return s.backfill(ctx, n, report.Limit, func(ctx context.Context) (subject.Running, error) {
				return nil, s.env.addFinalizers(ctx, n)
			})
		})
		return append(all, s.once(run, 100, one)...)
	})
}

// backfill records how many PVs a second are protected, of n that are not when begin is called. begin returns the
// program that protects them, which is ended then, or nil.
func (s *session) backfill(ctx context.Context, n int, column string,
	begin func(context.Context) (subject.Running, error)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.env.fill.Empty(ctx); err != nil {
		return err
	}
	if err := s.env.fill.Bound(ctx, n, fill.Unprotected); err != nil {
		return err
	}
	watch, err := track(ctx, s.env.users[len(s.env.users)-1])
	if err != nil {
		return err
	}
	defer watch.close()
	before, err := s.env.used(nil)
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
	if err := watch.wait(ctx, "protected", func(t *tracker) bool { return t.protected == n }); err != nil {
		return err
	}
	if err := s.recordCosts(column, program, before, n); err != nil {
		return err
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fill.Name(i)
	}
	first, last := watch.span(names, func(p pvTimes) time.Time { return p.protected })
	s.record("backfill_per_second", column, float64(n-1)/last.Sub(first).Seconds())
	return nil
}

// addFinalizers adds the finalizer to all filled PVs, by so many connections as ours has workers.
func (env *environment) addFinalizers(ctx context.Context, n int) error {
	return inParallel(ctx, patchers, n, func(ctx context.Context, worker, i int) error {
		name := fill.Name(i)
		body := fmt.Sprintf(`{"metadata":{"finalizers":[%q],"uid":%q}}`, volume.Finalizer, fill.UID(name))
		_, err := env.users[worker].CoreV1().PersistentVolumes().Patch(ctx, name, types.StrategicMergePatchType, []byte(body),
			metav1.PatchOptions{})
		return err
	})
}
