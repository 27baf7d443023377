//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

func latencyFamilies() []family {
	const load = "Claims deleted one at a time, 100 a run (reference: 30), nothing else going on: from the audit log's " +
		"time of receipt of the write that makes the PV Released to the driver's receipt of DeleteVolume. A run's value " +
		"is its percentile."
	const reads = "The part of that time that ours spends on its live reads, one after the other, the PV's last: from " +
		"the API server's receipt of the first GET to its last answer. Limit: the same two GETs, of the claim that is " +
		"gone and of the PV, by a client that does nothing else."
	return []family{{
		name: "latency", plane: audited, run: measureLatency, figures: []Figure{
			{Name: "released_to_deleted_ms_p50", Unit: "ms", Load: load},
			{Name: "released_to_deleted_ms_p99", Unit: "ms", Goals: []Goal{atMost(25)}, Load: load},
			{Name: "live_reads_ms_p50", Unit: "ms", Load: reads},
			{Name: "live_reads_ms_p99", Unit: "ms", Load: reads},
		},
	}, {
		name: "slow_neighbour", plane: audited, long: true, run: measureNeighbour, figures: []Figure{{
			Name: "slow_driver_added_ms", Unit: "ms", Goals: []Goal{atMost(addedNoise)},
			Load: "The median of that time for 10 volumes, each deleted while the driver has 60 calls of 2 s for others in " +
				"hand, less the median without them. No delay is to be added; the goal leaves 5 ms to the machine.",
		}},
	}}
}

// addedNoise is by how many milliseconds two medians of the same thing differ here.
const addedNoise = 5

func measureLatency(ctx context.Context, s *session) error {
	one := func(subject subject, n int) func() error {
		return func() error {
			began := time.Now()
			delays, err := s.latencies(ctx, subject, n)
			if err != nil {
				return err
			}
			if subject.column == Ours {
				reads, err := s.env.readTimes(subject, began)
				if err != nil {
					return err
				}
				s.record("live_reads_ms_p50", Ours, Percentile(reads, 50))
				s.record("live_reads_ms_p99", Ours, Percentile(reads, 99))
			}
			s.record("released_to_deleted_ms_p50", subject.column, Percentile(delays, 50))
			s.record("released_to_deleted_ms_p99", subject.column, Percentile(delays, 99))
			return nil
		}
	}
	n := s.size(100, 20)
	return s.alternate(func(int) []func() error {
		return []func() error{one(ours(), n), one(reference(), s.size(30, 10)), one(unthrottled(), n),
			func() error { return s.bareReads(ctx, n) }}
	})
}

// readTimes returns how long the live reads for each PV took that a subject has made since, in milliseconds.
func (env *environment) readTimes(subject subject, since time.Time) (took []float64, err error) {
	first, last := map[string]time.Time{}, map[string]time.Time{}
	if _, err := env.cluster.AuditEventsOf(subject.user(env.namespace), func(e controlplane.AuditEvent) bool {
		if e.Verb != "get" || e.Name == "" || !strings.HasPrefix(e.Resource, "persistentvolume") || e.Received.Before(since) {
			return false
		}
		if begun, found := first[e.Name]; !found || e.Received.Before(begun) {
			first[e.Name] = e.Received
		}
		if e.Answered.After(last[e.Name]) {
			last[e.Name] = e.Answered
		}
		return false
	}); err != nil {
		return nil, err
	}
	for name, begun := range first {
		took = append(took, last[name].Sub(begun).Seconds()*1000)
	}
	return took, nil
}

// bareReads makes the two reads with nothing else to do, at the pace at which the deletions come.
func (s *session) bareReads(ctx context.Context, n int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	set, err := s.env.createVolumeSet(ctx, volumeSetSpec{n: 1, unprotected: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.remove(ctx, true, set.names), set.close(ctx)) }()
	core, took := s.env.users[0].CoreV1(), []float64(nil)
	for range n {
		began := time.Now()
		if _, err := core.PersistentVolumeClaims(s.env.namespace).Get(ctx, "no-claim",
			metav1.GetOptions{}); ignoreNotFound(err) != nil {
			return err
		}
		if _, err := core.PersistentVolumes().Get(ctx, set.names[0], metav1.GetOptions{}); err != nil {
			return err
		}
		took = append(took, time.Since(began).Seconds()*1000)
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	s.record("live_reads_ms_p50", Limit, Percentile(took, 50))
	s.record("live_reads_ms_p99", Limit, Percentile(took, 99))
	return nil
}

// latencies deletes claims one at a time and returns the delays in milliseconds.
func (s *session) latencies(ctx context.Context, subject subject, n int) (delays []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	set, err := s.env.createVolumeSet(ctx, volumeSetSpec{n: n})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, set.close(ctx)) }()
	stop, err := s.atWork(ctx, subject)
	if err != nil {
		return nil, err
	}
	for i, name := range s.shuffled(set.names) {
		err := set.remove(ctx, false, []string{name})
		if err == nil {
			err = set.watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == i+1 })
		}
		if err != nil {
			return nil, errors.Join(err, stop())
		}
	}
	if err := stop(); err != nil {
		return nil, err
	}
	return s.env.delays(ctx, set)
}

// delays returns, for the volumes of a volume set that were deleted since it was asked last, the time from the write
// that made the PV Released to the driver's receipt of the first call, in milliseconds.
func (env *environment) delays(ctx context.Context, set *volumeSet) (delays []float64, err error) {
	calls, err := env.deletions()
	if err != nil {
		return nil, err
	}
	if err := env.auditComplete(ctx); err != nil {
		return nil, err
	}
	received := map[string]time.Time{} // by handle
	for _, call := range calls {
		if _, again := received[call.Volume]; !again {
			received[call.Volume] = call.Received
		}
	}
	released, err := env.lastStatusWrites(set, received)
	if err != nil {
		return nil, err
	}
	for name, at := range released {
		delays = append(delays, received[set.handle[name]].Sub(at).Seconds()*1000)
	}
	if len(delays) != len(callsByVolume(calls, set)) {
		return nil, fmt.Errorf("find the writes that released PVs: %d of %d are in the audit log", len(delays),
			len(callsByVolume(calls, set)))
	}
	return delays, nil
}

func callsByVolume(calls []ledger.Call, set *volumeSet) map[string]bool {
	volumes := map[string]bool{}
	for _, call := range callsFor(calls, set.handle) {
		volumes[call.Volume] = true
	}
	return volumes
}

// lastStatusWrites returns, by PV, when the last write of its status was received before the driver was called: the one
// that made it Released.
func (env *environment) lastStatusWrites(set *volumeSet, called map[string]time.Time) (map[string]time.Time, error) {
	last := map[string]time.Time{}
	_, err := env.cluster.AuditEvents(func(e controlplane.AuditEvent) bool {
		before, mine := called[set.handle[e.Name]]
		if mine && e.Resource == "persistentvolumes" && e.Subresource == "status" && e.Code == 200 &&
			e.Received.Before(before) && e.Received.After(last[e.Name]) {
			last[e.Name] = e.Received
		}
		return false
	})
	return last, err
}

func measureNeighbour(ctx context.Context, s *session) error {
	return s.alternate(func(int) (all []func() error) {
		for _, subject := range []subject{ours(), unthrottled()} {
			all = append(all, func() error {
				alone, err := s.besideSlowCalls(ctx, subject, 0)
				if err != nil {
					return err
				}
				beside, err := s.besideSlowCalls(ctx, subject, 60)
				if err == nil {
					s.record("slow_driver_added_ms", subject.column, Median(beside)-Median(alone))
				}
				return err
			})
		}
		return all
	})
}

// besideSlowCalls returns delays of volumes that are deleted while so many slow calls for others are under way.
func (s *session) besideSlowCalls(ctx context.Context, subject subject, slow int) (delays []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	times := s.size(10, 2)
	quick, err := s.env.createVolumeSet(ctx, volumeSetSpec{n: times})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, quick.close(ctx)) }()
	others, err := s.env.createVolumeSet(ctx, volumeSetSpec{n: slow * times, name: "slow"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, others.close(ctx)) }()
	stop, err := s.atWork(ctx, subject)
	if err != nil {
		return nil, err
	}
	plan := slowDriver(2 * time.Second)
	plan.Rules[0].VolumeName = "slow-*"
	err = s.env.driver.SetFaults(ctx, plan)
	for i := 0; i < times && err == nil; i++ {
		err = s.oneBeside(ctx, quick, i, others, others.names[i*slow:(i+1)*slow])
	}
	err = errors.Join(err, stop(), s.env.driver.SetFaults(context.WithoutCancel(ctx), faults.Plan{}))
	if err != nil {
		return nil, err
	}
	return s.env.delays(ctx, quick)
}

// oneBeside deletes slow volumes and, once the driver is busy with all of them, one other.
func (s *session) oneBeside(ctx context.Context, quick *volumeSet, i int, others *volumeSet, slow []string) error {
	if err := others.remove(ctx, false, slow); err != nil {
		return err
	}
	if _, err := s.env.driver.WaitCalls(ctx, func(calls []ledger.Call) bool {
		received := callsByVolume(calls, others)
		return len(received) == (i+1)*len(slow)
	}, "DeleteVolume"); err != nil {
		return err
	}
	if err := quick.remove(ctx, false, quick.names[i:i+1]); err != nil {
		return err
	}
	if err := quick.watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == i+1 }); err != nil {
		return err
	}
	return others.watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == (i+1)*len(slow) })
}
