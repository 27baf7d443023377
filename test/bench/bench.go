//go:build unix

package bench

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/growth"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/pods"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/report"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/bench/volumes"
)

// Options select the measurements.
type Options = session.Options

// families is the table of all families, in the order of the report.
func families() []session.Family {
	return slices.Concat(
		volumes.Counts(),   // calls to the driver and the API server for a volume
		volumes.Released(), // PVs that were Released beforehand, and go
		volumes.Live(),     // users make and delete claims
		volumes.Backfill(), // finalizers of PVs that existed before
		volumes.Latency(),  // from Released to DeleteVolume
		volumes.Scale(),    // memory beside many PVs
		pods.Held(),        // pods that are held
		pods.SingleNode(),  // pods whose claims are locked
		volumes.Idle(),     // nothing happens
		volumes.InFlight(), // entries of the in-flight log
		growth.Families(),  // costs beside more and more objects
		growth.Outage(),    // a third of a large cluster's nodes is lost
	)
}

// Run measures and returns the figures. With an error it returns the figures measured before.
func Run(ctx context.Context, o Options, v report.Versions) ([]*report.Figure, error) {
	return session.Run(ctx, families(), o, v)
}

// Names returns the names of all figures in the order of the report.
func Names() (names []string) {
	for _, f := range families() {
		for _, figure := range f.Figures {
			names = append(names, figure.Name)
		}
	}
	return names
}

// Goals returns the goals of all figures, by figure.
func Goals() map[string][]report.Goal {
	goals := map[string][]report.Goal{}
	for _, f := range families() {
		for _, figure := range f.Figures {
			goals[figure.Name] = figure.Goals
		}
	}
	return goals
}

// List writes all families with their figures.
func List(w io.Writer) {
	for _, f := range families() {
		fmt.Fprintln(w, f.Name)
		for _, figure := range f.Figures {
			fmt.Fprintln(w, "  "+figure.Name)
		}
	}
}
