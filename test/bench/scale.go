//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
)

// sizes are the numbers of PVs of the scaling curve.
func sizes() []int { return []int{1_000, 10_000, 50_000, largest} }

func scaleFamilies() (all []family) {
	for i, n := range sizes() {
		load := fmt.Sprintf("%d PVs in the cluster, bound and protected, half of them another driver's; no claims; no "+
			"provisioning; no controller manager, no audit log. ", n)
		f := family{name: "scale_" + strconv.Itoa(n), plane: bare, long: i > 1,
			figures: scaleFigures(strconv.Itoa(n), load), run: func(ctx context.Context, s *session) error {
				return measureScale(ctx, s, n, false, strconv.Itoa(n))
			}}
		if n == largest {
			f.figures[0].Goals = []report.Goal{report.AtMost(116)}
			f.figures = append(f.figures,
				report.Figure{Name: steadyRSS, Unit: "MiB", Goals: []report.Goal{report.AtMost(80)},
					Load: load + "VmRSS (Linux) when the process has come to rest after its start."},
				report.Figure{Name: firstDecision, Unit: "s", Goals: []report.Goal{report.AtMost(10)},
					Load: load + "One is Released: from the start of the process to the driver's DeleteVolume for it."})
		}
		all = append(all, f)
	}
	load := fmt.Sprintf("%d PVs in the cluster, bound and protected, half of them another driver's; those of ours with "+
		"their claims; with provisioning, which no claim asks for; no controller manager, no audit log. ", largest)
	return append(all, family{name: "scale_" + provisioningSize, plane: bare, long: true,
		figures: scaleFigures(provisioningSize, load), run: func(ctx context.Context, s *session) error {
			return measureScale(ctx, s, s.size(largest, 2_000), true, provisioningSize)
		}})
}

const (
	// largest is the number of PVs at which the start is measured, too.
	largest       = 100_000
	steadyRSS     = "steady_rss_mib_100000"
	firstDecision = "start_to_first_decision_s_100000"
	// provisioningSize ends the names of the figures that are taken with provisioning.
	provisioningSize = "100000_provisioning"
)

// scaleFigures are memory, rate and costs at a size.
func scaleFigures(size, load string) []report.Figure {
	return append([]report.Figure{
		{Name: "peak_rss_mib_" + size, Unit: "MiB",
			Load: load + "VmHWM (Linux) after the start and, but for the reference at its defaults, a burst of 1,000 reclaims."},
		{Name: "reclaim_per_second_" + size, Unit: "PVs/s",
			Load: load + "1,000 more turn Released at once, their claims gone: until the last is gone."},
	}, costs("scale_"+size, load+"The same burst.")...)
}

// measureScale fills the cluster and measures the subjects' resources in it, with or without claims.
func measureScale(ctx context.Context, s *session, n int, withClaims bool, size string) error {
	s.say("  fill the cluster up to %d PVs", n)
	if err := s.env.fill.Bound(ctx, n, fill.Mixed); err != nil {
		return err
	}
	if withClaims {
		if err := s.env.fill.Claims(ctx); err != nil {
			return err
		}
	}
	burst := s.size(1000, 200)
	one := func(sub subject.Subject, burst int) func() error {
		if !withClaims {
			sub = sub.WithoutProvisioning()
		}
		return func() error { return s.scale(ctx, sub, size, burst) }
	}
	return s.alternate(func(int) []func() error {
		return append(each(subject.Fast(), burst, one), each(subject.Slow(), 0, one)...)
	})
}

// scale starts a subject and measures its resources for figures of this size. burst is the number of PVs that it then
// reclaims at once.
func (s *session) scale(ctx context.Context, sub subject.Subject, size string, burst int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	watch, err := track(ctx, s.env.users[0])
	if err != nil {
		return err
	}
	defer watch.close()
	first, err := s.env.makeReleased(ctx, 1)
	if err != nil {
		return err
	}
	if err := s.env.fill.Put(ctx, first...); err != nil {
		return err
	}
	began := time.Now()
	if s.Profiles != "" && sub.Column == report.Ours {
		sub = sub.With("--enable-pprof")
	}
	program, err := s.env.start(ctx, sub)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, program.Stop()) }()
	call, err := s.env.waitCall(ctx, first[0].Handle)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, program.LogTail(10))
	}
	if err := watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == 1 }); err != nil {
		return err
	}
	rested, err := subject.AtRest(ctx, program.PID())
	if err != nil {
		return err
	}
	if size == strconv.Itoa(largest) {
		s.record(firstDecision, sub.Column, call.Received.Sub(began).Seconds())
		s.record(steadyRSS, sub.Column, rested.ResidentMiB)
	}
	if err := s.profile(ctx, program, "heap", size); err != nil {
		return err
	}
	if err := s.burst(ctx, sub.Column, program, watch, burst, size); err != nil {
		return err
	}
	peak, err := subject.UsageOf(program.PID())
	if err == nil {
		s.record("peak_rss_mib_"+size, sub.Column, peak.PeakMiB)
	}
	return err
}

// profile keeps a profile of ours at a size, if profiles are wanted.
func (s *session) profile(ctx context.Context, program subject.Running, name, size string) error {
	if s.Profiles == "" {
		return nil
	}
	content, err := subject.Profile(ctx, program, name)
	if err != nil || content == nil {
		return err
	}
	if err := os.MkdirAll(s.Profiles, 0o755); err != nil {
		return fmt.Errorf("keep a profile: %w", err)
	}
	file := filepath.Join(s.Profiles, fmt.Sprintf("%s-%s-%d.pprof", name, size, s.env.rounds.Load()))
	s.say("  %s", file)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("keep a profile: %w", err)
	}
	return nil
}

// burst turns n volumes Released at once, and records the PVs reclaimed a second and their cost. It does nothing for 0.
func (s *session) burst(ctx context.Context, column string, program subject.Running, watch *tracker, n int,
	size string) error {
	if n == 0 {
		return nil
	}
	pvs, err := s.env.makeReleased(ctx, n)
	if err != nil {
		return err
	}
	before, err := s.env.used(program)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.env.fill.Put(ctx, pvs...); err != nil {
		return err
	}
	if err := watch.wait(ctx, "gone", func(t *tracker) bool { return t.gone == 1+n }); err != nil {
		return err
	}
	_, end := watch.span(namesOf(pvs), func(p pvTimes) time.Time { return p.gone })
	s.record("reclaim_per_second_"+size, column, float64(n)/end.Sub(began).Seconds())
	return errors.Join(s.recordCosts(column, program, before, n), s.profile(ctx, program, "allocs", size))
}

func namesOf(pvs []fill.PV) (names []string) {
	for _, pv := range pvs {
		names = append(names, pv.Name)
	}
	return names
}

// handlesOf are the volumes by PV.
func handlesOf(pvs []fill.PV) map[string]string {
	handles := map[string]string{}
	for _, pv := range pvs {
		handles[pv.Name] = pv.Handle
	}
	return handles
}

// makeReleased creates volumes, and returns their PVs to be written: Released, with their claims gone.
func (env *environment) makeReleased(ctx context.Context, n int) ([]fill.PV, error) {
	pvs := make([]fill.PV, n)
	round := env.rounds.Add(1)
	return pvs, env.each(ctx, n, func(ctx context.Context, _ kubernetes.Interface, i int) (err error) {
		pvs[i] = fill.PV{Name: fmt.Sprintf("pvc-%08x-%04x-4fff-9d5e-7a3f00c0ffee", i, round), Driver: driverName,
			Phase: v1.VolumeReleased}
		pvs[i].Handle, err = env.createVolume(ctx, pvs[i].Name)
		return err
	})
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
