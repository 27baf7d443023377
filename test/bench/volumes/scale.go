//go:build unix

package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/fill"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/subject"
)

// sizes are the numbers of PVs of the scaling curve.
func sizes() []int { return []int{1_000, 10_000, 50_000, largest} }

func Scale() (all []session.Family) {
	for i, n := range sizes() {
		load := fmt.Sprintf("%d PVs in the cluster, bound and protected, half of them another driver's; no claims; no "+
			"provisioning; no controller manager, no audit log. ", n)
		f := session.Family{Name: "scale_" + strconv.Itoa(n), Plane: session.Bare, Long: i > 1,
			Figures: scaleFigures(strconv.Itoa(n), load), Run: func(ctx context.Context, s *session.Session) error {
				return measureScale(ctx, s, n, false, strconv.Itoa(n))
			}}
		if n == largest {
			f.Figures[0].Goals = []report.Goal{report.AtMost(110)}
			f.Figures[1].Goals = report.Parity(report.AtLeastOf, 1)
			f.Figures = append(f.Figures,
				report.Figure{Name: steadyRSS, Unit: "MiB", Goals: []report.Goal{report.AtMost(80)},
					Load: load + "VmRSS (Linux) when the process has come to rest after its start."},
				report.Figure{Name: firstDecision, Unit: "s", Goals: []report.Goal{report.AtMost(10)},
					Load: load + "One is Released: from the start of the process to the driver's DeleteVolume for it."})
		}
		all = append(all, f)
	}
	load := fmt.Sprintf("%d PVs in the cluster, bound and protected, half of them another driver's; those of ours with "+
		"their claims; with provisioning, which no claim asks for; no controller manager, no audit log. ", largest)
	return append(all, session.Family{Name: "scale_" + provisioningSize, Plane: session.Bare, Long: true,
		Figures: scaleFigures(provisioningSize, load), Run: func(ctx context.Context, s *session.Session) error {
			return measureScale(ctx, s, s.Size(largest, 2_000), true, provisioningSize)
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
			Load: load + "1,000 more turn Released at once, their claims gone: until the last is gone. The API server has " +
				"collected its garbage just before."},
	}, session.Costs("scale_"+size, load+"The same burst.")...)
}

// measureScale fills the cluster and measures the subjects' resources in it, with or without claims.
func measureScale(ctx context.Context, s *session.Session, n int, withClaims bool, size string) error {
	s.Say("  fill the cluster up to %d PVs", n)
	if err := s.Env.Fill.Bound(ctx, n, fill.Mixed); err != nil {
		return err
	}
	if withClaims {
		if err := s.Env.Fill.Claims(ctx); err != nil {
			return err
		}
	}
	burst := s.Size(1000, 200)
	one := func(sub subject.Subject, burst int) error {
		if !withClaims {
			sub = sub.WithoutProvisioning()
		}
		return scaleTo(ctx, s, sub, size, burst)
	}
	return s.Alternate(func(int) []func() error {
		return append(session.Each(subject.Fast(), burst, one), session.Each(subject.Slow(), 0, one)...)
	})
}

// scaleTo starts a subject and measures its resources for figures of this size. burst is the number of PVs that it then
// reclaims at once.
func scaleTo(ctx context.Context, s *session.Session, sub subject.Subject, size string, burst int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, session.Patience)
	defer cancel()
	watch, err := session.Track(ctx, s.Env.Users[0])
	if err != nil {
		return err
	}
	defer watch.Close()
	first, err := makeReleased(ctx, s.Env, 1)
	if err != nil {
		return err
	}
	if err := s.Env.Fill.Put(ctx, first...); err != nil {
		return err
	}
	began := time.Now()
	if s.Profiles != "" && sub.Column == report.Ours {
		sub = sub.With("--enable-pprof")
	}
	program, err := s.Env.Start(ctx, sub)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, program.Stop()) }()
	call, err := waitCall(ctx, s.Env, first[0].Handle)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, program.LogTail(10))
	}
	if err := watch.Wait(ctx, "gone", func(t *session.Tracker) bool { return t.Gone == 1 }); err != nil {
		return err
	}
	rested, err := subject.AtRest(ctx, program.PID())
	if err != nil {
		return err
	}
	if size == strconv.Itoa(largest) {
		s.Record(firstDecision, sub.Column, call.Received.Sub(began).Seconds())
		s.Record(steadyRSS, sub.Column, rested.ResidentMiB)
	}
	if err := keepProfile(ctx, s, program, "heap", size); err != nil {
		return err
	}
	if err := reclaimBurst(ctx, s, sub.Column, program, watch, burst, size); err != nil {
		return err
	}
	peak, err := subject.UsageOf(program.PID())
	if err == nil {
		s.Record("peak_rss_mib_"+size, sub.Column, peak.PeakMiB)
	}
	return err
}

// keepProfile keeps a profile of ours at a size, if profiles are wanted.
func keepProfile(ctx context.Context, s *session.Session, program subject.Running, name, size string) error {
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
	file := filepath.Join(s.Profiles, fmt.Sprintf("%s-%s-%d.pprof", name, size, s.Env.Rounds.Load()))
	s.Say("  %s", file)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("keep a profile: %w", err)
	}
	return nil
}

// reclaimBurst turns n volumes Released at once, and records the PVs reclaimed a second and their cost. It does nothing
// for 0.
func reclaimBurst(ctx context.Context, s *session.Session, column string, program subject.Running,
	watch *session.Tracker, n int, size string) error {
	if n == 0 {
		return nil
	}
	pvs, err := makeReleased(ctx, s.Env, n)
	if err != nil {
		return err
	}
	if err := s.Env.CollectGarbage(ctx); err != nil {
		return err
	}
	before, err := s.Env.Used(program)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.Env.Fill.Put(ctx, pvs...); err != nil {
		return err
	}
	if err := watch.Wait(ctx, "gone", func(t *session.Tracker) bool { return t.Gone == 1+n }); err != nil {
		return err
	}
	_, end := watch.Span(namesOf(pvs), func(p session.PvTimes) time.Time { return p.Gone })
	s.Record("reclaim_per_second_"+size, column, float64(n)/end.Sub(began).Seconds())
	return errors.Join(s.RecordCosts(column, program, before, n), keepProfile(ctx, s, program, "allocs", size))
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
func makeReleased(ctx context.Context, env *session.Environment, n int) ([]fill.PV, error) {
	pvs := make([]fill.PV, n)
	round := env.Rounds.Add(1)
	return pvs, env.Each(ctx, n, func(ctx context.Context, _ kubernetes.Interface, i int) (err error) {
		pvs[i] = fill.PV{Name: fmt.Sprintf("pvc-%08x-%04x-4fff-9d5e-7a3f00c0ffee", i, round), Driver: session.DriverName,
			Phase: v1.VolumeReleased}
		pvs[i].Handle, err = env.CreateVolume(ctx, pvs[i].Name)
		return err
	})
}

// waitCall returns the DeleteVolume call for a volume as soon as the driver has received it.
func waitCall(ctx context.Context, env *session.Environment, handle string) (found ledger.Call, err error) {
	err = session.Until(ctx, 5*time.Millisecond, "the driver has to delete "+handle, func() (bool, error) {
		calls, err := env.Deletions()
		i := slices.IndexFunc(calls, func(call ledger.Call) bool { return call.Volume == handle })
		if i >= 0 {
			found = calls[i]
		}
		return i >= 0, err
	})
	return found, err
}
