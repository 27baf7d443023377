//go:build unix

// Package volumes has the families about csi-reclaimer: volumes that are made, deleted, protected or only there.
package volumes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

const (
	// alone is how many volumes are made one at a time.
	alone = 5
	// starting is how many claims are made while the subject starts.
	starting = 100
)

func Counts() []session.Family {
	const load = "500 claims (reference: 50, one run) that 16 users' connections make at once and, when all are bound, " +
		"delete in random order; the subject provisions and deletes; driver without latency. "
	const all = load + "Calls of all clients, the users' and the controller manager's among them; lists, watches and " +
		"Leases but those of the in-flight log are not counted."
	figures := []report.Figure{
		{Name: "writes_per_claim", Unit: "writes", Goals: []report.Goal{report.AtMost(3)},
			Load: load + "The subject's writes to PVs, claims and the Leases of the in-flight log, until the last claim is " +
				"Bound and the log is empty."},
		{Name: "api_calls_per_claim", Unit: "calls", Goals: []report.Goal{report.AtMost(10.5)},
			Load: all + " Until the last claim is Bound."},
		{Name: "api_calls_per_claim_alone", Unit: "calls", Goals: []report.Goal{report.AtMost(10.5)},
			Load: fmt.Sprintf("%d claims, each made when the one before is gone. Counted as api_calls_per_claim.", alone)},
		{Name: "api_calls_per_claim_starting", Unit: "calls", Goals: []report.Goal{report.AtMost(10.5)},
			Load: fmt.Sprintf("%d claims that 16 users' connections make at once while the subject starts. Counted as "+
				"api_calls_per_claim.", starting)},
		{Name: "answered_404_per_reclaim", Unit: "writes", Goals: []report.Goal{report.Exactly(0)},
			Load: load + "The subject's writes to PVs that are gone, in both orders."},
	}
	for i, order := range session.Orders() {
		writes := float64(1 + i)
		figures = append(figures,
			report.Figure{Name: "delete_rpcs_per_volume_" + order, Unit: "calls", Goals: []report.Goal{report.Exactly(1)},
				Load: load + "DeleteVolume, from the driver's ledger."},
			report.Figure{Name: "writes_per_reclaim_" + order, Unit: "writes",
				Goals: []report.Goal{report.Exactly(writes)}, Load: load + "The subject's PATCH and DELETE of PVs."},
			report.Figure{Name: "calls_per_reclaim_" + order, Unit: "calls", Goals: []report.Goal{report.AtMost(writes + 1)},
				Load: load + "The subject's calls for the PVs and their claims, reads and writes, from the first DELETE on."},
			report.Figure{Name: "api_calls_per_reclaim_" + order, Unit: "calls", Load: all + " From the first DELETE on."},
		)
	}
	return []session.Family{{Name: "counts", Plane: session.Audited, Uncosted: true, Run: measureCounts, Figures: figures}}
}

func measureCounts(ctx context.Context, s *session.Session) error {
	one := func(sub subject.Subject, n int) error {
		return s.WithSubject(ctx, sub, func(ctx context.Context, _ subject.Running) error {
			return countCalls(ctx, s, sub, n)
		})
	}
	start := func(sub subject.Subject, n int) error {
		return s.WithStarting(ctx, sub, func(ctx context.Context, _ subject.Running) error {
			_, t, err := tallied(ctx, s, sub, n, session.PVFirst)
			if err == nil {
				s.Record("api_calls_per_claim_starting", sub.Column, float64(t.allBound)/float64(n))
			}
			return err
		})
	}
	n := s.Size(500, 60)
	return s.Alternate(func(run int) []func() error {
		return slices.Concat(session.Each(subject.Fast(), n, one), session.Each(subject.Fast(), starting, start),
			s.Once(run, 50, one))
	})
}

// countCalls has a subject create and delete n volumes in each order, and records the API server's requests by user and
// kind.
func countCalls(ctx context.Context, s *session.Session, sub subject.Subject, n int) error {
	var both tally
	for _, order := range session.Orders() {
		r, t, err := tallied(ctx, s, sub, n, order)
		if err != nil {
			return err
		}
		per := func(count int) float64 { return float64(count) / float64(n) }
		s.Record("delete_rpcs_per_volume_"+order, sub.Column, per(len(r.Calls)))
		s.Record("writes_per_reclaim_"+order, sub.Column, per(t.reclaimWrites))
		s.Record("calls_per_reclaim_"+order, sub.Column, per(t.reclaimCalls))
		s.Record("api_calls_per_reclaim_"+order, sub.Column, per(t.allGone))
		both.claimWrites += t.claimWrites
		both.allBound += t.allBound
		both.missed += t.missed
	}
	volumes := float64(2 * n)
	s.Record("writes_per_claim", sub.Column, float64(both.claimWrites)/volumes)
	s.Record("api_calls_per_claim", sub.Column, float64(both.allBound)/volumes)
	s.Record("answered_404_per_reclaim", sub.Column, float64(both.missed)/volumes)
	calls := 0
	for range alone {
		_, t, err := tallied(ctx, s, sub, 1, session.PVFirst)
		if err != nil {
			return err
		}
		calls += t.allBound
	}
	s.Record("api_calls_per_claim_alone", sub.Column, float64(calls)/alone)
	return nil
}

// tallied has a subject make and delete n volumes, and counts the requests.
func tallied(ctx context.Context, s *session.Session, sub subject.Subject, n int, order string) (r session.Round,
	t tally, err error) {
	if r, err = s.Round(ctx, n, order, false); err != nil {
		return r, t, err
	}
	events, err := s.Env.Cluster.AuditEvents(func(e controlplane.AuditEvent) bool {
		return e.Received.After(r.Began) && e.Received.Before(r.Ended)
	})
	if err != nil {
		return r, t, err
	}
	t = tallyOf(events, r, sub.User(s.Env.Namespace))
	sayKinds(s, fmt.Sprintf("%s, %s, %d", sub.Column, order, n), t.kinds, n)
	return r, t, nil
}

// tally counts the requests of a round.
type tally struct {
	// allBound and allGone are of all clients, until all claims were Bound and from the first DELETE on.
	allBound, allGone int
	// claimWrites are the subject's until all claims were Bound.
	claimWrites int
	// reclaimCalls counts the subject's requests for the PVs and claims from the first DELETE on, reclaimWrites its writes
	// of PVs, and missed the requests that were answered 404.
	reclaimCalls, reclaimWrites, missed int
	// kinds counts all requests by user and kind.
	kinds map[string]int
}

// tallyOf counts the requests of a round, the subject's by its user.
func tallyOf(events []controlplane.AuditEvent, r session.Round, user string) tally {
	t := tally{kinds: map[string]int{}}
	mine := map[string]bool{}
	for claim, pv := range r.Volumes {
		mine[claim], mine[pv] = true, true
	}
	for _, e := range events {
		if !counts(e) {
			continue
		}
		own, writes := e.User == user, e.Verb != "get"
		when := "bound"
		if e.Received.Before(r.Deleted) {
			t.allBound++
			if own && writes && (isVolume(e) || e.Resource == "leases") {
				t.claimWrites++
			}
		} else {
			when = "gone"
			t.allGone++
			if own && isVolume(e) && mine[e.Name] {
				t.reclaimCalls++
				if writes && e.Resource == "persistentvolumes" {
					t.reclaimWrites++
					if e.Code == http.StatusNotFound {
						t.missed++
					}
				}
			}
		}
		t.kinds[strings.Join([]string{when, e.User, e.Verb, e.Resource, e.Subresource}, " ")]++
	}
	return t
}

func isVolume(e controlplane.AuditEvent) bool {
	return e.Resource == "persistentvolumes" || e.Resource == "persistentvolumeclaims"
}

// counts reports whether a request is about a volume: no list, no watch, no Lease but of the in-flight log, and no
// question of the measurement itself.
func counts(e controlplane.AuditEvent) bool {
	switch {
	case e.Verb == "list" || e.Verb == "watch" || e.Resource == "":
		return false
	case e.Resource == "leases":
		return strings.Contains(e.Name, "-in-flight-")
	}
	return e.User != session.AdminUser || e.Verb != "get"
}

// sayKinds prints the requests of a round by user and kind, if this family was selected.
func sayKinds(s *session.Session, what string, kinds map[string]int, n int) {
	if len(s.Only) == 0 {
		return
	}
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), func(a, b string) int {
		return cmp.Or(cmp.Compare(kinds[b], kinds[a]), cmp.Compare(a, b))
	}) {
		s.Say("    %s: %.2f %s", what, float64(kinds[kind])/float64(n), kind)
	}
}
