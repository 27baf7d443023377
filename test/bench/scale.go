//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
)

// sizes are the numbers of PVs of the scaling curve.
func sizes() []int { return []int{1_000, 10_000, 50_000, 100_000} }

func scaleFamilies() (all []family) {
	for i, n := range sizes() {
		load := fmt.Sprintf("%d PVs in the cluster, bound and protected, half of them another driver's; no claims; no "+
			"provisioning. ", n)
		figures := scaleFigures(strconv.Itoa(n), load)
		if n == 100_000 {
			figures[0].Goals, figures[1].Goals, figures[2].Goals = []Goal{atMost(120)}, []Goal{atMost(80)}, []Goal{atMost(10)}
		}
		all = append(all, family{
			name: "scale_" + strconv.Itoa(n), plane: bare, long: i > 1, figures: figures,
			run: func(ctx context.Context, s *session) error { return measureScale(ctx, s, n) },
		})
	}
	const n = 100_000
	return append(all, family{
		name: "scale_" + provisioningSize, plane: bare, long: true, run: func(ctx context.Context,
			s *session) error {
			return measureProvisioningScale(ctx, s, n)
		},
		figures: scaleFigures(provisioningSize,
			fmt.Sprintf("%d PVs in the cluster, bound and protected, half of them another driver's; those of ours with their "+
				"claims; "+
				"with provisioning, which no claim asks for. ", n)),
	})
}

// provisioningSize ends the names of the figures that are taken with provisioning.
const provisioningSize = "100000_provisioning"

// scaleFigures are peak, steady, start and rate at a size.
func scaleFigures(size, load string) []Figure {
	return []Figure{
		{Name: "peak_rss_mib_" + size, Unit: "MiB",
			Load: load + "VmHWM (Linux) after the start and, but for the reference at its defaults, a burst of 1,000 reclaims."},
		{Name: "steady_rss_mib_" + size, Unit: "MiB",
			Load: load + "VmRSS (Linux) when the process has come to rest after its start."},
		{Name: "start_to_first_decision_s_" + size, Unit: "s",
			Load: load + "One is Released: from the start of the process to the driver's DeleteVolume for it."},
		{Name: "reclaim_per_second_" + size, Unit: "PVs/s",
			Load: load + "1,000 more turn Released at once, their claims gone, without a controller manager: until the last " +
				"is gone."},
	}
}

// measureProvisioningScale has the subjects provision; --quick takes 2,000 PVs.
func measureProvisioningScale(ctx context.Context, s *session, n int) error {
	n = s.size(n, 2_000)
	s.say("  fill the cluster up to %d PVs and the claims of half of them", n)
	if err := s.env.fill(ctx, n, mixed); err != nil {
		return err
	}
	if err := s.env.fillClaims(ctx); err != nil {
		return err
	}
	burst := s.size(1000, 200)
	return s.alternate(func(int) []func() error {
		return []func() error{
			func() error { return s.scale(ctx, provisioning(ours()), provisioningSize, burst) },
			func() error { return s.scale(ctx, provisioning(reference()), provisioningSize, 0) },
			func() error { return s.scale(ctx, provisioning(unthrottled()), provisioningSize, burst) },
		}
	})
}

func measureScale(ctx context.Context, s *session, n int) error {
	s.say("  fill the cluster up to %d PVs", n)
	if err := s.env.fill(ctx, n, mixed); err != nil {
		return err
	}
	size := strconv.Itoa(n)
	burst := s.size(1000, 200)
	return s.alternate(func(int) []func() error {
		return []func() error{
			func() error { return s.scale(ctx, ours(), size, burst) },
			func() error { return s.scale(ctx, reference(), size, 0) },
			func() error { return s.scale(ctx, unthrottled(), size, burst) },
		}
	})
}

// scale starts a subject and takes what it needs for figures of this size; burst is how many PVs it then reclaims at
// once.
func (s *session) scale(ctx context.Context, subject subject, size string, burst int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	watch, err := track(ctx, s.env.users[0], "")
	if err != nil {
		return err
	}
	defer watch.close()
	first, err := s.env.makeReleased(ctx, 1)
	if err != nil {
		return err
	}
	if err := s.env.putAll(ctx, first); err != nil {
		return err
	}
	began := time.Now()
	if s.Profiles != "" && subject.column == Ours {
		subject.args = append(slices.Clone(subject.args), "--enable-pprof")
	}
	program, err := s.env.start(ctx, subject)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, program.Stop()) }()
	call, err := s.env.waitCall(ctx, first[0].handle)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, program.LogTail(10))
	}
	s.record("start_to_first_decision_s_"+size, subject.column, call.Received.Sub(began).Seconds())
	if err := watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == 1 }); err != nil {
		return err
	}
	rested, err := atRest(ctx, program.PID())
	if err != nil {
		return err
	}
	s.record("steady_rss_mib_"+size, subject.column, rested.residentMiB)
	if err := s.profile(ctx, program, "heap", size); err != nil {
		return err
	}
	if burst > 0 {
		rate, err := s.env.burst(ctx, watch, burst)
		if err != nil {
			return err
		}
		s.record("reclaim_per_second_"+size, subject.column, rate)
	}
	if err := s.profile(ctx, program, "allocs", size); err != nil {
		return err
	}
	used, err := usageOf(program.PID())
	if err == nil {
		s.record("peak_rss_mib_"+size, subject.column, used.peakMiB)
	}
	return err
}

// burst has volumes turn Released at once and returns how many PVs a second go.
func (env *environment) burst(ctx context.Context, watch *tracker, n int) (rate float64, err error) {
	pvs, err := env.makeReleased(ctx, n)
	if err != nil {
		return 0, err
	}
	names := namesOf(pvs)
	began := time.Now()
	if err := env.putAll(ctx, pvs); err != nil {
		return 0, err
	}
	if err := watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == 1+n }); err != nil {
		return 0, err
	}
	end := watch.last(names, func(p pvTimes) time.Time { return p.gone })
	return float64(n) / end.Sub(began).Seconds(), nil
}

func namesOf(pvs []filledPV) (names []string) {
	for _, pv := range pvs {
		names = append(names, pv.name)
	}
	return names
}

// makeReleased makes volumes, and says what their PVs are to be: Released, their claims gone.
func (env *environment) makeReleased(ctx context.Context, n int) ([]filledPV, error) {
	pvs := make([]filledPV, n)
	round := env.rounds.Add(1)
	return pvs, env.each(ctx, n, func(ctx context.Context, _ kubernetes.Interface, i int) (err error) {
		pvs[i] = filledPV{name: fmt.Sprintf("pvc-%08x-%04x-4fff-9d5e-7a3f00c0ffee", i, round), driver: driverName,
			phase: v1.VolumeReleased}
		pvs[i].handle, err = env.createVolume(ctx, pvs[i].name)
		return err
	})
}

// putAll writes PVs, many at once.
func (env *environment) putAll(ctx context.Context, pvs []filledPV) error {
	return inParallel(ctx, writers, len(pvs), func(ctx context.Context, _, i int) error { return env.put(ctx, pvs[i]) })
}

// waitCall returns the DeleteVolume call for a volume as soon as the driver has received it.
func (env *environment) waitCall(ctx context.Context, handle string) (ledger.Call, error) {
	for {
		entries, err := env.calls.Next()
		if err != nil {
			return ledger.Call{}, err
		}
		for _, call := range ledger.Select(ledger.Calls(entries), "DeleteVolume") {
			if call.Volume == handle {
				return call, nil
			}
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return ledger.Call{}, fmt.Errorf("wait for the driver to be asked to delete %q: %w", handle, err)
		}
	}
}

// A process is at rest when it has used less than this share of a processor for this long.
const (
	restShare = 0.03
	restFor   = time.Second
)

// atRest waits for a process to rest and returns its use then.
func atRest(ctx context.Context, pid int) (usage, error) {
	for {
		before, err := usageOf(pid)
		if err != nil {
			return usage{}, err
		}
		if err := pause(ctx, restFor); err != nil {
			return usage{}, fmt.Errorf("wait for process %d to rest: %w", pid, err)
		}
		after, err := usageOf(pid)
		if err != nil || after.cpu-before.cpu < restShare*restFor.Seconds() {
			return after, err
		}
	}
}
