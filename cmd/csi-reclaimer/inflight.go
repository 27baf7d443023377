package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// inFlightLog is the log of the driver's provisioner. A process that only finishes entries runs without a log if it
// lacks the permission to read the Leases, because then it cannot have written any entry either.
type inFlightLog struct {
	*inflight.Log
	finishOnly bool
	without    atomic.Bool

	namespace     string
	authorization authorizationv1.AuthorizationV1Interface
}

// newInFlightLog returns the driver's in-flight log, or nil in a dry run, which writes nothing.
func newInFlightLog(o *options, config *rest.Config, driver string, lease leadership.Holder) (*inFlightLog, error) {
	if o.dryRun {
		return nil, nil
	}
	own := rest.CopyConfig(config)
	own.QPS = -1 // the log must not wait for the requests of a busy program
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(own, "in-flight-log"))
	if err != nil {
		return nil, fmt.Errorf("create a client for the in-flight log: %w", err)
	}
	identity, err := o.leader.Identity()
	if err != nil {
		return nil, err
	}
	settings := inflight.Config{
		Leases: client.CoordinationV1(), Namespace: o.leader.Namespace(), Name: o.node.lease(leaseName(driver,
			volume.RoleOwner) + "-in-flight"),
		Driver: driver, Identity: identity, CreateMissing: o.provisions(), Lease: lease,
	}
	if o.node.on {
		settings.Shards, settings.Owner = 1, nodeOwner(client.CoreV1().Nodes(), o.node.name)
	}
	log, err := inflight.New(settings)
	if err != nil {
		return nil, err
	}
	return &inFlightLog{Log: log, finishOnly: !o.provisions(), namespace: o.leader.Namespace(),
		authorization: client.AuthorizationV1()}, nil
}

// settledPVs adapts the log for package reclaim, because the PV of a settled volume can have another name than the
// volume, if another node's PV has that name.
type settledPVs struct {
	*inFlightLog
	node *volume.Node // nil for all nodes
}

// Follow calls settled with each name that the PV of a settled volume can have.
func (s settledPVs) Follow(settled func(pv string)) {
	s.inFlightLog.Follow(func(volume string) {
		settled(volume)
		if s.node != nil {
			settled(inflight.ApartName(volume, s.node.Name))
		}
	})
}

// takeOverInterval is the delay between two tries to take over the log while permissions are missing.
const takeOverInterval = 15 * time.Second

// TakeOver reads the log. If a process that provisions lacks the permission, it waits until the permission is
// granted. Until then it provisions nothing and removes no volume or finalizer, but the other controllers run.
func (l *inFlightLog) TakeOver(ctx context.Context) error {
	for {
		err := l.Log.TakeOver(ctx)
		switch {
		case !errors.Is(err, inflight.ErrForbidden):
			return err
		case l.finishOnly:
			klog.FromContext(ctx).Info("Running without the in-flight log, which may not be read; the process that "+
				"provisions finishes its entries", "err", err)
			l.without.Store(true)
			return nil
		}
		klog.FromContext(ctx).Error(err,
			"Nothing is provisioned, and no volume is deleted, until the Leases of the in-flight log may be written; retrying",
			"after", takeOverInterval)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(takeOverInterval):
		}
	}
}

// MissingPermissions returns the permissions on Leases that a provisioning process lacks.
func (l *inFlightLog) MissingPermissions(ctx context.Context) ([]permission.Permission, error) {
	if l.finishOnly {
		return nil, nil
	}
	var permissions []permission.Permission
	for _, verb := range []string{"get", "create", "update"} {
		permissions = append(permissions, permission.Permission{Group: "coordination.k8s.io", Resource: "leases", Verb: verb,
			Namespace: l.namespace,
			Without:   "no volume is provisioned or deleted, because it is not known which are in flight", Unsafe: true})
	}
	return permission.Missing(ctx, l.authorization, permissions)
}

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
// driver to another namespace. It searches at the start, and again until a search finds none.
func (l *inFlightLog) reportStrays(ctx context.Context) {
	for l.findStrays(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(strayInterval):
		}
	}
}

// findStrays searches once, if the program may list Leases in all namespaces, and returns whether to search again.
func (l *inFlightLog) findStrays(ctx context.Context) (again bool) {
	logger := klog.FromContext(ctx)
	missing, err := permission.Missing(ctx, l.authorization, []permission.Permission{{Group: "coordination.k8s.io",
		Resource: "leases", Verb: "list", Without: "in-flight logs in other namespaces are not found"}})
	if len(missing) > 0 { // a refused request would appear in the API server's audit log
		logger.V(2).Info("Not looking for in-flight logs of this driver in other namespaces", "missing", missing[0].String())
		return false
	}
	var strays []inflight.Stray
	if err == nil {
		strays, err = l.FindStrays(ctx)
	}
	if err != nil && ctx.Err() == nil {
		logger.Info("Could not look for in-flight logs of this driver in other namespaces; retrying", "err", err,
			"after", strayInterval)
	}
	for _, stray := range strays {
		logger.Error(stray.Err, "Volumes of this driver are in flight in a log that this process does not read, so "+
			"nothing finishes them. Run csi-reclaimer where that log is until it is empty, or settle them: "+
			"kubectl reclaim settle", "lease", stray.Lease, "entries", stray.Entries, "ownNamespace", l.namespace)
	}
	return err != nil || len(strays) > 0
}

// InFlight returns the state of a PV's volume in the log, and a description of the part of the log that cannot be
// read for it. For a process without the log every volume counts as settled.
func (l *inFlightLog) InFlight(pv string) (state volume.InFlight, problem string) {
	if l.without.Load() {
		return volume.InFlightSettled, ""
	}
	return l.Log.InFlight(pv)
}

// SourceInFlight is InFlight for the source of volumes.
func (l *inFlightLog) SourceInFlight(of inflight.Source) (state volume.InFlight, problem string) {
	if l.without.Load() {
		return volume.InFlightSettled, ""
	}
	return l.Log.SourceInFlight(of)
}
