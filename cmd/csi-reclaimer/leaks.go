package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// leaksPath is the HTTP path of the leak check's report.
const leaksPath = "/leaks"

type leakOptions struct {
	interval  time.Duration
	sightings int
	grace     time.Duration
	pageSize  int
	// board serves the report, also before the first one exists.
	board leaks.ReportHandler
}

func (a *leakOptions) flags(fs *pflag.FlagSet) {
	fs.DurationVar(&a.interval, "leak-check-interval", 0,
		"How often to compare the driver's volumes (ListVolumes) with PVs, claims and snapshots, such as 1h. A volume "+
			"that none of them accounts for is reported as a suspected leak, on "+leaksPath+" of --http-endpoint, in metrics "+
			"and as an Event. The check deletes nothing. Do not use it where other clusters use the same storage. 0: never.")
	fs.IntVar(&a.sightings, "leak-check-sightings", 3,
		"How many complete checks in a row must find that nothing accounts for a volume before it is suspected, at least "+
			"2. The count starts with the program.")
	fs.DurationVar(&a.grace, "leak-check-grace", time.Hour,
		"How long nothing must have accounted for a volume, in addition, before it is suspected.")
	fs.IntVar(&a.pageSize, "leak-check-page-size", 500,
		"How many volumes to request from the driver at once (max_entries). 0: the driver decides.")
}

// checksLeaks reports whether this process is to run the leak check.
func (o *options) checksLeaks() bool { return o.leaks.interval > 0 && !o.releaseFinalizers }

// validateLeakCheck returns an error that names all invalid settings of the leak check, or nil.
func (o *options) validateLeakCheck() error {
	a := &o.leaks
	var wrong settings.Wrong
	wrong.If(a.interval < 0, "--leak-check-interval=%v: must not be negative", a.interval)
	if a.interval > 0 {
		wrong.If(a.sightings < 2, "--leak-check-sightings=%d: must be at least 2, because a volume can be deleted during "+
			"one check", a.sightings)
		wrong.If(a.grace < 0, "--leak-check-grace=%v: must not be negative", a.grace)
		wrong.If(a.pageSize < 0, "--leak-check-page-size=%d: must not be negative", a.pageSize)
	}
	return wrong.Err()
}

func (o *options) leakConfig(driver string) leaks.Config {
	none := func(zero bool, otherwise int64) int64 { // 0 selects the default in package leaks
		if zero {
			return -1
		}
		return otherwise
	}
	a := &o.leaks
	return leaks.Config{
		Interval: a.interval, Sightings: a.sightings,
		Grace: time.Duration(none(a.grace == 0, int64(a.grace))), PageSize: int(none(a.pageSize == 0, int64(a.pageSize))),
		On: types.NamespacedName{Namespace: o.leader.Namespace(), Name: o.node.lease(leaseName(driver, parseRole(o.role)))},
	}
}

// newLeakChecker returns the leak checker, or nil if it is off or the driver cannot list its volumes.
func (s *sidecar) newLeakChecker(ctx context.Context, volumes reclaim.PVs) (*leaks.Controller, error) {
	if !s.checksLeaks() {
		return nil, nil
	}
	driver := s.driver
	if !driver.ListsVolumes() {
		lacking := fmt.Sprintf("driver %s does not advertise LIST_VOLUMES", driver.Name())
		klog.FromContext(ctx).Info("Preflight: "+lacking+": no leak check runs, despite --leak-check-interval",
			"driver", driver.Name())
		s.leaks.board.Show(func() leaks.Report {
			return leaks.Report{Driver: driver.Name(), Off: lacking, Volumes: []leaks.Found{}}
		})
		return nil, nil
	}
	cfg := s.leakConfig(driver.Name())
	cfg.Volumes, cfg.Metrics, cfg.Node, cfg.Snapshots = volumes, s.metrics, s.node, driver.TakesSnapshots()
	if !s.dryRun { // Events are writes
		cfg.Events = s.events
	}
	checker, err := leaks.New(s.acting, driver.Name(), driver, cfg)
	if err != nil {
		return nil, err
	}
	s.leaks.board.Show(checker.Report)
	return checker, nil
}
