//go:build unix

package bench

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

func countFamilies() []family {
	const load = "500 volumes (reference: 50), 16 users' connections deleting live in random order, driver without " +
		"latency. "
	return []family{{
		name: "counts", plane: audited, run: measureCounts, figures: []Figure{
			{Name: "delete_rpcs_per_volume_pv_first", Unit: "calls", Goals: []Goal{exactly(1)},
				Load: load + "From the driver's ledger."},
			{Name: "delete_rpcs_per_volume_claim_first", Unit: "calls", Goals: []Goal{exactly(1)},
				Load: load + "From the driver's ledger."},
			{Name: "writes_per_reclaim_pv_first", Unit: "writes", Goals: []Goal{exactly(1)},
				Load: load + "PATCH and DELETE of PVs, from the audit log."},
			{Name: "writes_per_reclaim_claim_first", Unit: "writes", Goals: []Goal{exactly(2)},
				Load: load + "PATCH and DELETE of PVs, from the audit log."},
			{Name: "answered_404_per_reclaim", Unit: "writes", Goals: []Goal{exactly(0)},
				Load: load + "Of these writes, in both orders."},
		},
	}}
}

func measureCounts(ctx context.Context, s *session) error {
	one := func(subject subject, n int) func() error {
		return func() error {
			missed, volumes := 0, 0
			for _, order := range []string{"_pv_first", "_claim_first"} {
				o, err := s.race(ctx, race{subject: subject, n: n, pvFirst: orders()[order]})
				if err != nil {
					return err
				}
				writes, err := s.env.writes(ctx, subject, o)
				if err != nil {
					return err
				}
				s.record("delete_rpcs_per_volume"+order, subject.column, float64(len(o.calls))/float64(n))
				s.record("writes_per_reclaim"+order, subject.column, float64(len(writes))/float64(n))
				volumes += n
				for _, write := range writes {
					if write.Code == http.StatusNotFound {
						missed++
					}
				}
			}
			s.record("answered_404_per_reclaim", subject.column, float64(missed)/float64(volumes))
			return nil
		}
	}
	n := s.size(500, 60)
	return s.alternate(func(run int) []func() error {
		all := []func() error{one(ours(), n), one(unthrottled(), n)}
		if !s.Quick && run == 0 {
			all = append(all, one(reference(), 50))
		}
		return all
	})
}

// writes returns what a subject, which has ended, wrote to the PVs of a race.
func (env *environment) writes(ctx context.Context, s subject, o outcome) ([]controlplane.AuditEvent, error) {
	if err := env.auditComplete(ctx); err != nil {
		return nil, err
	}
	of := map[string]bool{}
	for _, name := range o.names {
		of[name] = true
	}
	return env.cluster.AuditEventsOf(s.user(env.namespace), func(e controlplane.AuditEvent) bool {
		return e.Resource == "persistentvolumes" && of[e.Name] && !strings.Contains("get list watch", e.Verb)
	})
}

// auditComplete returns once the audit log has a request that is made now. The log is written before a request ends, so
// what ended before is in it then.
func (env *environment) auditComplete(ctx context.Context) error {
	name := fmt.Sprintf("marker-%d", env.rounds.Add(1))
	if _, err := env.users[0].CoreV1().ConfigMaps(env.namespace).Get(ctx, name,
		metav1.GetOptions{}); ignoreNotFound(err) != nil {
		return err
	}
	for {
		marks, err := env.cluster.AuditEventsOf("admin", func(e controlplane.AuditEvent) bool { return e.Name == name })
		if err != nil {
			return err
		}
		if len(marks) > 0 {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the audit log: %w", err)
		}
	}
}
