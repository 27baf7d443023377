//go:build unix

package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
)

const (
	// patchers is how many PVs the limits change at once, and how many ours protects (--protect-threads).
	patchers = 8
	// workers is how many volumes ours (--worker-threads) and the unthrottled reference delete at once.
	workers = 100
	// slowCall is how long the slow driver takes for a call.
	slowCall = 500 * time.Millisecond
)

// released is a family of volumes that were Released while no subject was at work.
type released struct {
	name, order string
	n           int
	// takes is the duration of each DeleteVolume call; any number may run at once.
	takes time.Duration
}

func Released() (all []session.Family) {
	for _, f := range []struct {
		released
		which, limit string
		rate, cost   []report.Goal
	}{{
		released{name: "released_" + session.PVFirst, order: session.PVFirst, n: 2000},
		", which their users have deleted", "Limit: bare PATCHes by 8 connections that remove the finalizers.",
		report.Parity(report.AtLeastOf, 1.1), report.Parity(report.AtMostOf, 1),
	}, {
		released{name: "released_" + session.ClaimFirst, order: session.ClaimFirst, n: 2000},
		"", "Limit: bare DELETEs and PATCHes by 8 connections, one after the other for each PV.",
		report.Parity(report.AtLeastOf, 1), report.Parity(report.AtMostOf, 1),
	}, {
		released{name: "released_slow_driver", order: session.ClaimFirst, n: 1000, takes: slowCall},
		"; the driver takes 500 ms a call and any number at once", "Limit: 100 workers, or threads, through 500 ms.",
		[]report.Goal{report.AtLeastOf(0.8, report.Limit)}, nil,
	}} {
		load := fmt.Sprintf("%d Released PVs with reclaim policy Delete%s; their claims are gone, their volumes are in the "+
			"driver; no controller manager, no audit log; then the subject starts. ", f.n, f.which)
		figures := append([]report.Figure{{Name: f.name + "_gone_per_second", Unit: "PVs/s", Goals: f.rate,
			Load: load + "From the first PV gone to the last. " + f.limit}},
			session.Costs(f.name, load+"From the start of the subject to the last PV gone.", f.cost...)...)
		all = append(all, session.Family{Name: f.name, Plane: session.Bare, Figures: figures,
			Run: func(ctx context.Context, s *session.Session) error { return measureReleased(ctx, s, f.released) }})
	}
	return all
}

func measureReleased(ctx context.Context, s *session.Session, r released) error {
	r.n = s.Size(r.n, r.n/2)
	one := func(sub subject.Subject, _ int) error {
		return reclaimReleased(ctx, s, r, sub.Column, func(ctx context.Context, _ []string) (subject.Running, error) {
			return s.Env.Start(ctx, sub)
		})
	}
	limit := func() error {
		if r.takes > 0 {
			s.Record(r.name+"_gone_per_second", report.Limit, workers/r.takes.Seconds())
			return nil
		}
		return reclaimReleased(ctx, s, r, report.Limit, func(ctx context.Context, pvs []string) (subject.Running, error) {
			return nil, removeFinalizers(ctx, s.Env, pvs, r.order)
		})
	}
	return s.Alternate(func(int) []func() error {
		return append(session.Each(subject.Fast(), r.n, one), limit)
	})
}

// reclaimReleased makes the PVs, has begin reclaim them, and records how fast they go. begin returns the program that
// does, which is ended then, or nil.
func reclaimReleased(ctx context.Context, s *session.Session, r released, column string,
	begin func(ctx context.Context, pvs []string) (subject.Running, error)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, session.Patience)
	defer cancel()
	if err := s.Env.Fill.Empty(ctx); err != nil {
		return err
	}
	pvs, err := makeReleased(ctx, s.Env, r.n)
	if err != nil {
		return err
	}
	names := s.Shuffled(namesOf(pvs))
	if err := s.Env.Fill.Put(ctx, pvs...); err != nil {
		return err
	}
	if r.order == session.PVFirst {
		if err := s.Env.Each(ctx, r.n, func(ctx context.Context, client kubernetes.Interface, i int) error {
			return client.CoreV1().PersistentVolumes().Delete(ctx, names[i], metav1.DeleteOptions{})
		}); err != nil {
			return fmt.Errorf("delete PVs as users do: %w", err)
		}
	}
	if err := s.Env.Driver.SetFaults(ctx, slowDriver(r.takes)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Env.Driver.ClearFaults(context.WithoutCancel(ctx))) }()
	watch, err := session.Track(ctx, s.Env.Users[0])
	if err != nil {
		return err
	}
	defer watch.Close()
	before, err := s.Env.Used(nil)
	if err != nil {
		return err
	}
	program, err := begin(ctx, names)
	if err != nil {
		return err
	}
	if program != nil {
		defer func() { err = errors.Join(err, program.Stop()) }()
	}
	if err := watch.Wait(ctx, "gone", func(t *session.Tracker) bool { return t.Gone == r.n }); err != nil {
		return err
	}
	if err := s.RecordCosts(column, program, before, r.n); err != nil {
		return err
	}
	first, last := watch.Span(names, func(p session.PvTimes) time.Time { return p.Gone })
	s.Record(r.name+"_gone_per_second", column, float64(r.n-1)/last.Sub(first).Seconds())
	calls, err := s.Env.Deletions()
	if err != nil || program == nil {
		return err
	}
	return session.EveryVolume(session.CallsFor(calls, handlesOf(pvs)), r.n)
}

// removeFinalizers makes the writes that any subject has to make: it removes the finalizer and, where the PV is not
// terminating yet, deletes it first.
func removeFinalizers(ctx context.Context, env *session.Environment, pvs []string, order string) error {
	return session.InParallel(ctx, patchers, len(pvs), func(ctx context.Context, worker, i int) error {
		core := env.Users[worker].CoreV1().PersistentVolumes()
		if order == session.ClaimFirst {
			if err := core.Delete(ctx, pvs[i], metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		body := fmt.Sprintf(`{"metadata":{"finalizers":null,"uid":%q}}`, fill.UID(pvs[i]))
		_, err := core.Patch(ctx, pvs[i], types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	})
}

// slowDriver takes this long for each DeleteVolume call, and any number at once.
func slowDriver(takes time.Duration) faults.Plan {
	if takes == 0 {
		return faults.Plan{}
	}
	return faults.Plan{Rules: []faults.Rule{{Method: "DeleteVolume", Action: faults.Delay, Delay: faults.Duration(takes)}}}
}
