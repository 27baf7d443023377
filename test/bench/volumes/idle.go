//go:build unix

package volumes

import (
	"context"
	"errors"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

func Idle() []session.Family {
	const load = "500 bound and protected PVs, nothing changing for 10 minutes (--quick: 10 seconds), all subjects " +
		"side by side, ours with leader election. "
	figures := []report.Figure{
		{Name: "idle_api_calls_10min", Unit: "calls", Goals: []report.Goal{report.Exactly(0)},
			Load: load + "From the audit log; calls about Leases, and watches that are begun again, are not counted."},
		{Name: "idle_cpu_percent", Unit: "% of a core", Goals: []report.Goal{report.AtMost(0.1)},
			Load: load + "Processor time (Linux)."},
	}
	return []session.Family{{Name: "idle", Plane: session.Audited, Uncosted: true, Run: measureIdle, Figures: figures}}
}

func measureIdle(ctx context.Context, s *session.Session) (err error) {
	lasts := time.Duration(s.Size(600, 10)) * time.Second
	ctx, cancel := context.WithTimeout(ctx, lasts+session.Patience)
	defer cancel()
	if _, err := s.Env.BindClaims(ctx, s.Size(500, 50), session.MakePV(true)); err != nil {
		return err
	}
	// The PVs stay: the next family begins with a control plane of its own.
	defer func() { err = errors.Join(err, s.CloseEnvironment()) }()
	all := subject.All()
	all[0] = subject.Ours("--leader-election", "--leader-election-identity=bench")
	before := make([]subject.Usage, len(all))
	programs := make([]subject.Running, len(all))
	for i, sub := range all {
		if programs[i], err = s.Env.Start(ctx, sub); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, programs[i].Stop()) }()
	}
	for _, program := range programs {
		if _, err := subject.AtRest(ctx, program.PID()); err != nil {
			return err
		}
	}
	if err := begunToWatch(ctx, s.Env, all); err != nil {
		return err
	}
	began := time.Now()
	for i, program := range programs {
		if before[i], err = subject.UsageOf(program.PID()); err != nil {
			return err
		}
	}
	s.Say("  nothing happens for %v", lasts)
	if err := session.Pause(ctx, lasts); err != nil {
		return err
	}
	took := time.Since(began)
	if err := s.Env.AuditComplete(ctx); err != nil {
		return err
	}
	for i, sub := range all {
		after, err := subject.UsageOf(programs[i].PID())
		if err != nil {
			return err
		}
		s.Record("idle_cpu_percent", sub.Column, (after.CPU-before[i].CPU)/took.Seconds()*100)
		if err := recordIdleCalls(s, sub, began); err != nil {
			return err
		}
	}
	return nil
}

// recordIdleCalls records how many API calls a subject made since a time.
func recordIdleCalls(s *session.Session, sub subject.Subject, since time.Time) error {
	calls, err := s.Env.Cluster.AuditEventsOf(sub.User(s.Env.Namespace), func(e controlplane.AuditEvent) bool {
		return e.Received.After(since) && e.Resource != "leases" && e.Verb != "watch"
	})
	if err != nil {
		return err
	}
	for _, call := range calls {
		s.Say("  %s: %s %s %s %d", sub.Column, call.Verb, call.Resource, call.Name, call.Code)
	}
	s.Record("idle_api_calls_10min", sub.Column, float64(len(calls)))
	return nil
}

// begunToWatch returns an error unless each subject watches PVs, because a subject that has not begun is idle, too.
func begunToWatch(ctx context.Context, env *session.Environment, all []subject.Subject) error {
	for _, sub := range all {
		err := session.Until(ctx, 100*time.Millisecond, sub.Column+" watches", func() (bool, error) {
			watches, err := env.Cluster.AuditEventsOf(sub.User(env.Namespace), func(e controlplane.AuditEvent) bool {
				return e.Resource == "persistentvolumes" && e.Verb == "watch" && e.Code == 200
			})
			return len(watches) > 0, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
