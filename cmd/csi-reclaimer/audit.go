package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
)

// auditPath is where the report is served.
const auditPath = "/audit"

// auditOptions is what the command line says about leaks.
type auditOptions struct {
	interval  time.Duration
	sightings int
	grace     time.Duration
	pageSize  int
	// board shows the report from before there is any.
	board leaks.Board
}

func (a *auditOptions) flags(fs *pflag.FlagSet) {
	fs.DurationVar(&a.interval, "audit-interval", 0,
		"How often the driver's volumes (ListVolumes) are compared with PVs, claims and snapshots, such as 1h. What nothing accounts for is reported as suspected, on "+auditPath+" of --http-endpoint, in metrics and as an Event; it is never deleted. Not where other clusters use the same storage. 0: never.")
	fs.IntVar(&a.sightings, "audit-sightings", 3,
		"In how many complete audits in a row nothing accounts for a volume before it is suspected, at least 2. They are counted from the start of the program.")
	fs.DurationVar(&a.grace, "audit-grace", time.Hour,
		"How long nothing accounts for a volume, besides, before it is suspected.")
	fs.IntVar(&a.pageSize, "audit-page-size", 500,
		"How many volumes the driver is asked for at once (max_entries). 0: as many as it likes.")
}

// audits tells whether audits are to be made.
func (o *options) audits() bool { return o.audit.interval > 0 && !o.releaseFinalizers }

// validateAudit returns every setting of audits that is wrong.
func (o *options) validateAudit() []error {
	a := &o.audit
	var wrong []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	add(a.interval < 0, "--audit-interval=%v: must not be negative", a.interval)
	if a.interval <= 0 {
		return wrong
	}
	add(a.sightings < 2, "--audit-sightings=%d: must be at least 2, for a volume may be deleted while one audit is made", a.sightings)
	add(a.grace < 0, "--audit-grace=%v: must not be negative", a.grace)
	add(a.pageSize < 0, "--audit-page-size=%d: must not be negative", a.pageSize)
	return wrong
}

// auditConfig is what the command line says to the library.
func (o *options) auditConfig(driver string) leaks.Config {
	none := func(zero bool, otherwise int64) int64 { // to the library, 0 is its default
		if zero {
			return -1
		}
		return otherwise
	}
	a := &o.audit
	return leaks.Config{
		Interval: a.interval, Sightings: a.sightings,
		Grace: time.Duration(none(a.grace == 0, int64(a.grace))), PageSize: int(none(a.pageSize == 0, int64(a.pageSize))),
		On: types.NamespacedName{Namespace: o.leader.Namespace(), Name: o.node.lease(leaseName(driver, parseRole(o.role)))},
	}
}

// newAuditor returns what looks for leaks, nil where that is not to be done, or the driver cannot list its
// volumes. Of shared, Volumes, Events and Metrics count.
func newAuditor(ctx context.Context, o *options, config *rest.Config, driver *csidriver.Driver, shared leaks.Config) (*leaks.Auditor, error) {
	if !o.audits() {
		return nil, nil //nolint:nilnil // nothing that audits is an answer of its own here
	}
	if !driver.ListsVolumes() {
		lacking := fmt.Sprintf("driver %s does not advertise LIST_VOLUMES", driver.Name())
		klog.FromContext(ctx).Info("Preflight: "+lacking+": no audit is made, whatever --audit-interval says", "driver", driver.Name())
		o.audit.board.Show(func() leaks.Report {
			return leaks.Report{Driver: driver.Name(), Off: lacking, Volumes: []leaks.Found{}}
		})
		return nil, nil //nolint:nilnil // as above
	}
	settings := o.auditConfig(driver.Name())
	settings.Volumes, settings.Metrics, settings.Snapshots = shared.Volumes, shared.Metrics, driver.TakesSnapshots()
	if !o.dryRun { // Events are writes
		settings.Events = shared.Events
	}
	auditor, err := leaks.New(config, driver.Name(), driver, settings)
	if err != nil {
		return nil, err
	}
	o.audit.board.Show(auditor.Report)
	return auditor, nil
}
