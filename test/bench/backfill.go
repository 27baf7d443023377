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
)

// patchers is how many PVs ours protects at once (--protect-threads).
const patchers = 8

func backfillFamilies() []family {
	return []family{{name: "backfill", plane: bare, run: measureBackfill, figures: []Figure{{
		Name: "backfill_per_second", Unit: "PVs/s", Goals: []Goal{atLeastOf(0.9, Limit)},
		Load: "10,000 bound PVs without the finalizer (reference: 100), a watch of all PVs open, no controller manager; " +
			"from the first PV protected to the last. " +
			"Limit: the same patches by 8 connections that do nothing else.",
	}}}}
}

func measureBackfill(ctx context.Context, s *session) error {
	n := s.size(10_000, 2_000)
	one := func(column string, n int, protect func(context.Context) (stop func() error, err error)) func() error {
		return func() error {
			rate, err := s.backfill(ctx, n, protect)
			if err == nil {
				s.record("backfill_per_second", column, rate)
			}
			return err
		}
	}
	subject := func(sub subject) func(context.Context) (func() error, error) {
		return func(ctx context.Context) (func() error, error) {
			program, err := s.env.start(ctx, sub)
			if err != nil {
				return nil, err
			}
			return program.Stop, nil
		}
	}
	return s.alternate(func(int) []func() error {
		return []func() error{
			one(Ours, n, subject(ours())),
			one(Reference, s.size(100, 20), subject(reference())),
			one(Unthrottled, n, subject(unthrottled())),
			one(Limit, n, func(ctx context.Context) (func() error, error) {
				return func() error { return nil }, s.env.patchAll(ctx, n)
			}),
		}
	})
}

// backfill returns how many PVs a second are protected, of n that are not when protect is called.
func (s *session) backfill(ctx context.Context, n int,
	protect func(context.Context) (stop func() error, err error)) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.env.empty(ctx); err != nil {
		return 0, err
	}
	if err := s.env.fill(ctx, n, unprotected); err != nil {
		return 0, err
	}
	watch, err := track(ctx, s.env.users[len(s.env.users)-1], "")
	if err != nil {
		return 0, err
	}
	defer watch.close()
	stop, err := protect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := watch.wait(ctx, "protected", func(t *tracker) bool { return t.protected == n }); err != nil {
		return 0, err
	}
	var first, last time.Time
	for i := range n {
		at := watch.times(fillName(i)).protected
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return float64(n-1) / last.Sub(first).Seconds(), nil
}

// patchAll adds the finalizer to all filled PVs, by so many connections as ours has workers.
func (env *environment) patchAll(ctx context.Context, n int) error {
	return inParallel(ctx, patchers, n, func(ctx context.Context, worker, i int) error {
		name := fillName(i)
		body := fmt.Sprintf(`{"metadata":{"finalizers":[%q],"uid":%q}}`, volume.Finalizer, name[len(name)-36:])
		_, err := env.users[worker].CoreV1().PersistentVolumes().Patch(ctx, name, types.StrategicMergePatchType, []byte(body),
			metav1.PatchOptions{})
		return err
	})
}
