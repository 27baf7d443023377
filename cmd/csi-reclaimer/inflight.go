package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// inFlightLog is the log of the driver's provisioner. A process that only finishes entries runs without a log if it
// lacks the permission to read the Leases, because then it is not set up to know of any entry. A release of finalizers
// never does, because no later process would delete the volumes.
type inFlightLog struct {
	*inflight.Log
	finishOnly, releases bool
	without              atomic.Bool
	// unseen: the last search for other logs was not permitted, so that the result of an earlier one may be outdated.
	unseen atomic.Bool

	namespace     string
	authorization authorizationv1.AuthorizationV1Interface
}

// newInFlightLog returns the in-flight log of the driver, or of its volumes on a node, or nil in a dry run, which
// writes nothing.
func newInFlightLog(o *options, config *rest.Config, driver string, node *volume.Node,
	lease leadership.Holder) (*inFlightLog, error) {
	if o.dryRun {
		return nil, nil
	}
	own := rest.CopyConfig(config)
	own.QPS, own.RateLimiter = -1, nil // the log must not wait for the requests of a busy program
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(kube.ConfigOf(own), "in-flight-log"))
	if err != nil {
		return nil, fmt.Errorf("create a client for the in-flight log: %w", err)
	}
	identity, err := o.leader.Identity()
	if err != nil {
		return nil, err
	}
	settings := inflight.Config{
		Leases: client.CoordinationV1(), Namespace: o.leader.Namespace(), Name: o.node.logName(leaseName(driver,
			volume.RoleOwner) + "-in-flight"),
		Driver: driver, Node: node, Identity: identity, CreateMissing: o.provisions(), Lease: lease,
	}
	if node != nil {
		settings.Shards, settings.Owner = 1, nodeOwner(client.CoreV1().Nodes(), node.Name)
	}
	log, err := inflight.New(settings)
	if err != nil {
		return nil, err
	}
	return &inFlightLog{Log: log, finishOnly: !o.provisions(), releases: o.releaseFinalizers,
		namespace: o.leader.Namespace(), authorization: client.AuthorizationV1()}, nil
}

// takeOverInterval is the delay between two tries to take over the log while permissions are missing.
const takeOverInterval = 15 * time.Second

// TakeOver reads the log. If a request for a Lease is refused, it waits until the permission is granted. Until then the
// process provisions nothing and removes no volume or finalizer, but the other controllers run. A release of finalizers
// fails instead, and a process that finishes entries and may not read Leases runs without the log. One refused request
// is no proof of that: the permission may lag behind its binding, or only writes are refused.
func (l *inFlightLog) TakeOver(ctx context.Context) error {
	for {
		err := l.Log.TakeOver(ctx)
		switch {
		case !errors.Is(err, inflight.ErrForbidden):
			return err
		case l.releases:
			return fmt.Errorf("whether volumes are in flight is not known, so no finalizer is removed; allow get and update "+
				"of Leases in namespace %s, and run the command again: %w", l.namespace, err)
		case l.finishOnly && l.mayNotRead(ctx):
			klog.FromContext(ctx).Info("Running without the in-flight log, which may not be read; the process that "+
				"provisions finishes its entries", "err", err)
			l.without.Store(true)
			return nil
		}
		klog.FromContext(ctx).Error(err,
			"Nothing is provisioned, and no volume is deleted, until the Leases of the in-flight log may be written; retrying",
			"after", takeOverInterval)
		if !controller.Pause(ctx, clock.RealClock{}, takeOverInterval) {
			return context.Cause(ctx)
		}
	}
}

// idleLog is the time without a write of the log after which a superseded process ends, to take the log over again.
const idleLog = time.Minute

// stepsAside reports whether a process waits before it ends. Without leader election, two processes whose pods restart
// immediately would keep taking the log from each other.
func (l *inFlightLog) stepsAside(elected bool, err error) bool {
	return !elected && errors.Is(err, inflight.ErrSuperseded) && !l.releases
}

// stepAside waits, without controllers, until the other process no longer writes the log. Then it returns an error, so
// that the next start of this process takes the log over. Like a replica that waits for the election, the process is
// ready meanwhile: the pod of a new version, from which an older one took the log back, must not hold up its rollout.
func (l *inFlightLog) stepAside(ctx context.Context, lost error) error {
	select {
	case <-ctx.Done():
		return nil // a stop is no error
	default:
	}
	err := fmt.Errorf("%w; one process may provision for a driver: run one replica, or all with --leader-election", lost)
	klog.FromContext(ctx).Error(err, "Stopped for another process; waiting until it no longer writes the in-flight log",
		"for", idleLog)
	if ended := l.AwaitIdle(ctx, idleLog); ended == nil {
		return err
	}
	return nil // a stop is no error
}

// Permissions returns none, because MissingPermissions knows whether the process needs them.
func (l *inFlightLog) Permissions() []permission.Permission { return nil }

// MissingPermissions returns the permissions of the log that the process lacks. One that only finishes entries needs
// none if it may not read them.
func (l *inFlightLog) MissingPermissions(ctx context.Context) ([]permission.Permission, error) {
	missing, err := permission.Missing(ctx, l.authorization, l.Log.Permissions())
	if l.finishOnly && !l.releases && slices.ContainsFunc(missing, reads) {
		return nil, err
	}
	return missing, err
}

// mayNotRead reports whether the API server says that the program may not read the Leases.
func (l *inFlightLog) mayNotRead(ctx context.Context) bool {
	missing, err := permission.Missing(ctx, l.authorization, l.Log.Permissions())
	return err == nil && slices.ContainsFunc(missing, reads)
}

func reads(p permission.Permission) bool { return p.Verb == "get" }

// Run writes the log until ctx ends, and reports strays.
func (l *inFlightLog) Run(ctx context.Context) error {
	if l.without.Load() {
		<-ctx.Done()
		return nil
	}
	var looking sync.WaitGroup
	defer looking.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	looking.Go(func() {
		panics.Restart(ctx, clock.RealClock{}, "search for other in-flight logs", l.reportStrays, func(error) {})
	})
	return l.Log.Run(ctx)
}

// strayInterval is the delay between two searches for entries in other logs.
const strayInterval = 10 * time.Minute

// reportStrays reports entries of this driver in logs that this process does not read, such as after a move of the
// driver to another namespace. It searches at the start, and again until a search finds none. The permission may come
// later, as with a role that is applied after the program.
func (l *inFlightLog) reportStrays(ctx context.Context) {
	for l.findStrays(ctx) && controller.Pause(ctx, clock.RealClock{}, strayInterval) {
	}
}

// findStrays searches once, if the program may list Leases in all namespaces, and returns whether to search again.
func (l *inFlightLog) findStrays(ctx context.Context) (again bool) {
	logger := klog.FromContext(ctx)
	strays, err := l.strays(ctx)
	if err != nil && ctx.Err() == nil {
		logger.Info("Could not look for in-flight logs of this driver in other namespaces; retrying", "err", err,
			"after", strayInterval)
	}
	for _, stray := range strays {
		wayOut := "Run csi-reclaimer where that log is until it is empty, or " + inflight.ToSettle
		if stray.Err != nil {
			wayOut = "The Lease cannot be read: remove the cause; " + inflight.IfForged
		}
		logger.Error(stray.Err, "Volumes of this driver are in flight in a log that this process does not read, so "+
			"nothing finishes them. "+wayOut, "lease", stray.Lease, "entries", stray.Entries, "ownNamespace", l.namespace)
	}
	return err != nil || len(strays) > 0 || l.unseen.Load()
}

// Stats counts no entries elsewhere while the program may not look for them.
func (l *inFlightLog) Stats() inflight.Stats {
	stats := l.Log.Stats()
	if l.unseen.Load() {
		stats.Elsewhere = 0
	}
	return stats
}

// strays returns the Leases with entries that this process does not read, none if it may not look for them.
func (l *inFlightLog) strays(ctx context.Context) ([]inflight.Stray, error) {
	missing, err := permission.Missing(ctx, l.authorization, []permission.Permission{{Group: "coordination.k8s.io",
		Resource: "leases", Verb: "list", Without: "in-flight logs in other namespaces are not found"}})
	if err != nil {
		return nil, err
	}
	l.unseen.Store(len(missing) > 0)
	if len(missing) > 0 { // a refused request would appear in the API server's audit log
		klog.FromContext(ctx).V(2).Info("Not looking for in-flight logs of this driver in other namespaces",
			"missing", missing[0].String())
		return nil, nil
	}
	return l.FindStrays(ctx)
}

// checkStrays returns an error if volumes are in flight in logs that this process does not read, such as those of
// nodes. A release would let their PVs go.
func (l *inFlightLog) checkStrays(ctx context.Context) error {
	strays, err := l.strays(ctx)
	if err != nil {
		return fmt.Errorf("look for other in-flight logs of the driver, before finalizers are removed: %w", err)
	}
	var open []error
	for _, stray := range strays {
		if stray.Err != nil {
			open = append(open, fmt.Errorf("volumes may be in flight in Lease %s, which cannot be read, so no finalizer is "+
				"removed: %w; %s", stray.Lease, stray.Err, inflight.IfForged))
			continue
		}
		open = append(open, fmt.Errorf("%s in flight in Lease %s, which this process does not read, so no finalizer is "+
			"removed: run csi-reclaimer where that log is until it is empty, or %s",
			plural.Count(stray.Entries, "volume"), stray.Lease, inflight.ToSettle))
	}
	return errors.Join(open...)
}

// checkReadable returns an error that names the parts of this process' log that cannot be read. A release would forget
// the volumes in flight there.
func (l *inFlightLog) checkReadable() error {
	var hidden []error
	for _, p := range l.Problems() {
		if p.HidesEntries() {
			hidden = append(hidden, fmt.Errorf("part of the in-flight log cannot be read, so no finalizer is removed: %s; the "+
				"guide of the alert CSIReclaimerInFlightLogUnreadable has the ways out", p))
		}
	}
	return errors.Join(hidden...)
}

// InFlight returns the state of a PV's volume in the log, and a description of the part of the log that cannot be
// read for it. For a process without the log every volume counts as settled.
func (l *inFlightLog) InFlight(pv string) (state volume.InFlight, problem string) {
	if l.without.Load() {
		return volume.InFlightSettled, ""
	}
	return l.Log.InFlight(pv)
}

// usesSource reports whether a volume in flight is, or may be, created from a source.
func (l *inFlightLog) usesSource(of volume.SourceRef) bool {
	state, _ := l.SourceInFlight(of)
	return state != volume.InFlightSettled
}

// SourceInFlight is InFlight for the source of volumes.
func (l *inFlightLog) SourceInFlight(of volume.SourceRef) (state volume.InFlight, problem string) {
	if l.without.Load() {
		return volume.InFlightSettled, ""
	}
	return l.Log.SourceInFlight(of)
}
