//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

func idleFamilies() []family {
	const load = "500 bound and protected PVs, nothing changing for 10 minutes (--quick: 10 seconds), all subjects " +
		"side by side, ours with leader election. "
	return []family{{name: "idle", plane: audited, run: measureIdle, figures: []Figure{
		{Name: "idle_api_calls_10min", Unit: "calls", Goals: []Goal{exactly(0)},
			Load: load + "From the audit log; calls about Leases, and watches that are begun again, are not counted."},
		{Name: "idle_cpu_percent", Unit: "% of a core", Goals: []Goal{atMost(0.1)}, Load: load + "Processor time (Linux)."},
	}}}
}

func measureIdle(ctx context.Context, s *session) (err error) {
	lasts := time.Duration(s.size(600, 10)) * time.Second
	ctx, cancel := context.WithTimeout(ctx, lasts+patience)
	defer cancel()
	set, err := s.env.createVolumeSet(ctx, volumeSetSpec{n: s.size(500, 50)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.close(ctx)) }()
	elected := ours("--leader-election", "--leader-election-namespace="+s.env.namespace,
		"--leader-election-identity=bench")
	all := []subject{elected, reference(), unthrottled()}
	before := make([]usage, len(all))
	programs := make([]running, len(all))
	for i, subject := range all {
		if programs[i], err = s.env.start(ctx, subject); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, programs[i].Stop()) }()
	}
	for _, program := range programs {
		if _, err := atRest(ctx, program.PID()); err != nil {
			return err
		}
	}
	if err := s.env.begunToWatch(ctx, all); err != nil {
		return err
	}
	began := time.Now()
	for i, program := range programs {
		if before[i], err = usageOf(program.PID()); err != nil {
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
	for i, subject := range all {
		after, err := usageOf(programs[i].PID())
		if err != nil {
			return err
		}
		s.record("idle_cpu_percent", subject.column, (after.cpu-before[i].cpu)/took.Seconds()*100)
		if err := s.recordCalls(subject, began); err != nil {
			return err
		}
	}
	return nil
}

// recordCalls records how many API calls a subject made since a time.
func (s *session) recordCalls(subject subject, since time.Time) error {
	calls, err := s.env.cluster.AuditEventsOf(subject.user(s.env.namespace), func(e controlplane.AuditEvent) bool {
		return e.Received.After(since) && e.Resource != "leases" && e.Verb != "watch"
	})
	if err != nil {
		return err
	}
	for _, call := range calls {
		s.say("  %s: %s %s %s %d", subject.column, call.Verb, call.Resource, call.Name, call.Code)
	}
	s.record("idle_api_calls_10min", subject.column, float64(len(calls)))
	return nil
}

// begunToWatch is an error unless each subject watches PVs: one that has not begun is idle, too.
func (env *environment) begunToWatch(ctx context.Context, all []subject) error {
	for _, subject := range all {
		for {
			watches, err := env.cluster.AuditEventsOf(subject.user(env.namespace), func(e controlplane.AuditEvent) bool {
				return e.Resource == "persistentvolumes" && e.Verb == "watch" && e.Code == 200
			})
			if err != nil {
				return err
			}
			if len(watches) > 0 {
				break
			}
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return fmt.Errorf("wait for %s to watch: %w", subject.column, err)
			}
		}
	}
	return nil
}
