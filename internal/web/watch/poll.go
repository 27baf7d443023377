package watch

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
)

const (
	// pollInterval is the interval of reads that no watch replaces: admission policies, and the API server's version.
	pollInterval = 2 * time.Minute
	// leakInterval is the interval of reads of the leak reports, which change with each leak check.
	leakInterval = 30 * time.Second
	pollTimeout  = 10 * time.Second
)

func (c *Cluster) poll(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, pollTimeout)
		defer cancel()
		admission, minor := c.Source.Admission(ctx), c.Source.Minor(ctx)
		c.slow.mu.Lock()
		c.slow.admission, c.slow.minor = admission, minor
		c.slow.mu.Unlock()
		c.touch()
	}, pollInterval)
}

// leakStart is the interval of attempts to find the leaders before the first read of leak reports.
const leakStart = time.Second

func (c *Cluster) pollLeaks(ctx context.Context) {
	if c.cfg.LeakPort == 0 {
		return
	}
	// The error is the end of ctx, which also ends the polling below.
	_ = wait.PollUntilContextCancel(ctx, leakStart, true, func(ctx context.Context) (bool, error) {
		pvs := c.PVs(ctx)
		return pvs.OK() && !errors.Is(c.Leases(ctx, volumes.LeasesFor(pvs.Value)).Err, errNotYet), nil
	})
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, pollTimeout)
		defer cancel()
		c.readLeaks(ctx)
		c.touch()
	}, leakInterval)
}

// readLeaks asks each driver's leader for its report. A leader without a report is no error.
func (c *Cluster) readLeaks(ctx context.Context) {
	found := map[string]leaks.Report{}
	var forbidden error
	for driver, leader := range c.leaders(ctx) {
		namespace, name, _ := strings.Cut(leader, "/")
		text, err := c.cluster.Core.Pods(namespace).ProxyGet("", name, strconv.Itoa(c.cfg.LeakPort), "leaks",
			map[string]string{"format": "json"}).DoRaw(ctx)
		if apierrors.IsForbidden(err) {
			forbidden = err
		}
		var report leaks.Report
		if err != nil || json.Unmarshal(text, &report) != nil || report.Driver != driver {
			continue
		}
		found[driver] = report
	}
	c.slow.mu.Lock()
	c.slow.leaks, c.slow.leakErr = found, forbidden
	c.slow.mu.Unlock()
}

func (c *Cluster) leaders(ctx context.Context) map[string]string {
	pvs := c.PVs(ctx)
	w := volumes.ClusterFacts{Now: c.now(), PVs: pvs, Leases: c.Leases(ctx, volumes.LeasesFor(pvs.Value))}
	leaders := map[string]string{}
	for _, pv := range pvs.Value {
		owner := pv.Owner()
		if _, known := leaders[owner]; known || !explain.CSIName(owner) {
			continue
		}
		leaders[owner] = ""
		if pods := w.LeadersOf(owner); len(pods) == 1 { // the report of another pod may be about anything
			leaders[owner] = pods[0]
		}
	}
	maps.DeleteFunc(leaders, func(_, leader string) bool { return leader == "" })
	return leaders
}

// reports returns the last leak reports, sorted by driver, and the error if the API server refuses them.
func (c *Cluster) reports() ([]leaks.Report, error) {
	c.slow.mu.Lock()
	defer c.slow.mu.Unlock()
	all := make([]leaks.Report, 0, len(c.slow.leaks))
	for _, driver := range slices.Sorted(maps.Keys(c.slow.leaks)) {
		all = append(all, c.slow.leaks[driver])
	}
	return all, c.slow.leakErr
}
