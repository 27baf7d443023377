package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// releasing is a Reclaimer that removes its finalizers once the volumes in flight are settled.
type releasing struct {
	*reclaim.Controller
	provisioner *provision.Controller
	log         *inFlightLog
	config      *rest.Config
	driver      string
	// sources removes the finalizers from claims and VolumeSnapshots that are sources of volumes.
	sources func(context.Context) error
	quiet   time.Duration
	stdout  io.Writer
}

// Run waits for volumes in flight, removes the finalizers, and prints the result.
func (r releasing) Run(ctx context.Context) error {
	defer r.provisioner.Stop()
	if err := r.drain(ctx); err != nil {
		return err
	}
	if err := removeFromPolicies(ctx, r.config, r.driver, r.stdout); err != nil {
		return err
	}
	done, left, err := untilSettled(r.log.Entries, func() (reclaim.Released, error) { return r.Release(ctx) })
	return errors.Join(printReleased(r.stdout, done, left, err), r.sources(ctx))
}

// untilSettled repeats a release during which a volume in flight was settled, because its PV may have got a finalizer
// after the release had listed the PVs. It returns the sum of all, and the entries that are left. No entry is added
// meanwhile, so there are at most as many repetitions as entries.
func untilSettled(entries func() []inflight.Entry,
	release func() (reclaim.Released, error)) (sum reclaim.Released, left []inflight.Entry, err error) {
	for before := entries(); ; before = left {
		done, err := release()
		sum.PVs, sum.Abandoned, sum.InFlight = sum.PVs+done.PVs, append(sum.Abandoned, done.Abandoned...), done.InFlight
		if left = entries(); err != nil || len(left) >= len(before) {
			return sum, left, err
		}
	}
}

// removeFromPolicies removes the driver from csi-reclaimer's admission policies and webhooks that list it, because
// they would restore each finalizer in the write that removes it. It waits until the removal is in effect. If the
// policies may not be read, the release itself shows whether finalizers are restored.
func removeFromPolicies(ctx context.Context, config *rest.Config, driver string, stdout io.Writer) error {
	drivers := []string{driver}
	done, err := admission.RemoveDrivers(ctx, config, drivers)
	for _, from := range done.Objects {
		if _, err := fmt.Fprintf(stdout, "%s was removed from %s\n", driver, from); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, admission.ErrStillListed):
		return fmt.Errorf("%w; remove it with kubectl reclaim release --driver=%s, or volume-guard --release-finalizers "+
			"--release-drivers=%s", err, driver, driver)
	case apierrors.IsForbidden(err):
		klog.FromContext(ctx).V(2).Info("The admission policies may not be read", "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("release finalizers: %w", err)
	case len(done.Objects) == 0:
		return nil
	}
	return admission.WaitUntilRemoved(ctx, config, drivers)
}

// Settings of drain: the time to wait for a settled log after the quiet period, the poll interval, and the interval
// of log lines about the progress.
const (
	drainAfterQuiet = time.Minute
	drainPoll       = 200 * time.Millisecond
	drainReport     = 5 * time.Second
)

// drain waits until no volume is in flight, but no longer than every late call can take to arrive and be repeated
// once. A volume in flight in a log that this process does not read is an error, and so is an unreadable part of its
// own log.
func (r releasing) drain(ctx context.Context) error {
	if err := r.log.checkStrays(ctx); err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, r.quiet+drainAfterQuiet)
	defer cancel()
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	reported := time.Time{}
	for {
		state, _ := r.log.InFlight("")
		stats := r.log.Stats()
		open := stats.Open + stats.Adding + stats.Removing // an unconfirmed removal still keeps the PV's finalizer
		known := state != volume.InFlightUnknown
		if known && open == 0 {
			return r.log.checkReadable()
		}
		if time.Since(reported) >= drainReport {
			klog.FromContext(ctx).Info("Waiting for volumes in flight to be settled", "volumes", open, "logRead", known,
				"atMost", r.quiet+drainAfterQuiet)
			reported = time.Now()
		}
		select {
		case <-bound.Done():
			return cmp.Or(ctx.Err(), r.log.checkReadable()) // without an error the remaining entries are printed
		case <-poll.C:
		}
	}
}

// printReleased prints the released objects, and names the remaining ones.
func printReleased(stdout io.Writer, done reclaim.Released, left []inflight.Entry, err error) error {
	var lines []string
	for _, name := range done.Abandoned {
		lines = append(lines, fmt.Sprintf("PV %s was being deleted: its volume stays in the storage system", name))
	}
	for _, name := range done.InFlight {
		lines = append(lines, fmt.Sprintf("PV %s keeps its finalizer: its volume is, or may be, in flight", name))
	}
	for _, entry := range left {
		lines = append(lines, fmt.Sprintf("volume %s, for claim %s/%s, is in flight: whether it exists is not known. Run "+
			"the command again, or look for the volume in the storage system",
			entry.Volume, entry.Claim.Namespace, entry.Claim.Name))
	}
	lines = append(lines, fmt.Sprintf("%s %s released", plural.Count(done.PVs, "PV"),
		plural.Verb(done.PVs, "was", "were")))
	for _, line := range lines {
		if _, printErr := fmt.Fprintln(stdout, line); printErr != nil {
			return errors.Join(err, printErr)
		}
	}
	switch {
	case errors.Is(err, reclaim.ErrFinalizerRestored):
		return fmt.Errorf("%w; remove that policy, or this driver from it, and run the command again", err)
	case err == nil && len(left)+len(done.InFlight) > 0:
		return fmt.Errorf("%s in flight; %s keep%s the finalizer until they are settled: run the command again, or look "+
			"for the volumes in the storage system",
			plural.Count(len(left), "volume"), plural.Count(len(done.InFlight), "PV"), plural.Verb(len(done.InFlight), "s", ""))
	}
	return err
}
