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

func idleFamilies() []family {
	const load = "500 bound and protected PVs, nothing changing for 10 minutes (--quick: 10 seconds), all subjects " +
		"side by side, ours with leader election. "
	return []family{{name: "idle", plane: audited, uncosted: true, run: measureIdle, figures: []report.Figure{
		{Name: "idle_api_calls_10min", Unit: "calls", Goals: []report.Goal{report.Exactly(0)},
			Load: load + "From the audit log; calls about Leases, and watches that are begun again, are not counted."},
		{Name: "idle_cpu_percent", Unit: "% of a core", Goals: []report.Goal{report.AtMost(0.1)},
			Load: load + "Processor time (Linux)."},
	}}}
}

func measureIdle(ctx context.Context, s *session) (err error) {
	lasts := time.Duration(s.size(600, 10)) * time.Second
	ctx, cancel := context.WithTimeout(ctx, lasts+patience)
	defer cancel()
	if _, err := s.env.bindClaims(ctx, s.size(500, 50), makePV(true)); err != nil {
		return err
	}
	// The PVs stay: the next family begins with a control plane of its own.
	defer func() { err = errors.Join(err, s.closeEnvironment()) }()
	all := subject.All()
	all[0] = subject.Ours("--leader-election", "--leader-election-identity=bench")
	before := make([]subject.Usage, len(all))
	programs := make([]subject.Running, len(all))
	for i, sub := range all {
		if programs[i], err = s.env.start(ctx, sub); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, programs[i].Stop()) }()
	}
	for _, program := range programs {
		if _, err := subject.AtRest(ctx, program.PID()); err != nil {
			return err
		}
	}
	if err := s.env.begunToWatch(ctx, all); err != nil {
		return err
	}
	began := time.Now()
	for i, program := range programs {
		if before[i], err = subject.UsageOf(program.PID()); err != nil {
			return err
		}
	}
	s.say("  nothing happens for %v", lasts)
	if err := pause(ctx, lasts); err != nil {
		return err
	}
	took := time.Since(began)
	if err := s.env.auditComplete(ctx); err != nil {
		return err
	}
	for i, sub := range all {
		after, err := subject.UsageOf(programs[i].PID())
		if err != nil {
			return err
		}
		s.record("idle_cpu_percent", sub.Column, (after.CPU-before[i].CPU)/took.Seconds()*100)
		if err := s.recordCalls(sub, began); err != nil {
			return err
		}
	}
	return nil
}

// recordCalls records how many API calls a subject made since a time.
func (s *session) recordCalls(sub subject.Subject, since time.Time) error {
	calls, err := s.env.cluster.AuditEventsOf(sub.User(s.env.namespace), func(e controlplane.AuditEvent) bool {
		return e.Received.After(since) && e.Resource != "leases" && e.Verb != "watch"
	})
	if err != nil {
		return err
	}
	for _, call := range calls {
		s.say("  %s: %s %s %s %d", sub.Column, call.Verb, call.Resource, call.Name, call.Code)
	}
	s.record("idle_api_calls_10min", sub.Column, float64(len(calls)))
	return nil
}

// begunToWatch returns an error unless each subject watches PVs, because a subject that has not begun is idle, too.
func (env *environment) begunToWatch(ctx context.Context, all []subject.Subject) error {
	for _, sub := range all {
		for {
			watches, err := env.cluster.AuditEventsOf(sub.User(env.namespace), func(e controlplane.AuditEvent) bool {
				return e.Resource == "persistentvolumes" && e.Verb == "watch" && e.Code == 200
			})
			if err != nil {
				return err
			}
			if len(watches) > 0 {
				break
			}
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return fmt.Errorf("wait for %s to watch: %w", sub.Column, err)
			}
		}
	}
	return nil
}
