package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/access"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// inFlightLog is the log of the driver's provisioner. A process that only finishes what others left does without where
// it may not read the Leases: then it may not have written any either.
type inFlightLog struct {
	*inflight.Log
	finishOnly bool
	without    atomic.Bool

	namespace     string
	authorization authorizationv1.AuthorizationV1Interface
}

// newInFlightLog returns the driver's in-flight log, nil in a dry run, which writes nothing.
func newInFlightLog(o *options, config *rest.Config, driver string, lease reclaim.Lease) (*inFlightLog, error) {
	if o.dryRun {
		return nil, nil //nolint:nilnil // no log is an answer of its own here
	}
	own := rest.CopyConfig(config)
	own.QPS = -1 // a busy program still writes ahead
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(own, "in-flight-log"))
	if err != nil {
		return nil, fmt.Errorf("make a client for the in-flight log: %w", err)
	}
	log, err := inflight.New(inflight.Config{
		Leases: client.CoordinationV1(), Namespace: o.leader.Namespace(), Name: o.node.lease(leaseName(driver, volume.RoleOwner) + "-in-flight"),
		Driver: driver, Identity: o.leader.Settings.Identity, CreateMissing: o.provisions(), Lease: lease,
	})
	if err != nil {
		return nil, err
	}
	return &inFlightLog{Log: log, finishOnly: !o.provisions(), namespace: o.leader.Namespace(), authorization: client.AuthorizationV1()}, nil
}

// settledPVs is the log as package reclaim follows it. A settled volume may have its PV under another name than its own, where
// another node's PV has that.
type settledPVs struct {
	*inFlightLog
	node *volume.Node // nil for all nodes
}

// Follow has settled called with each name that the PV of a settled volume can have.
func (s settledPVs) Follow(settled func(pv string)) {
	s.inFlightLog.Follow(func(volume string) {
		settled(volume)
		if s.node != nil {
			settled(inflight.ApartName(volume, s.node.Name))
		}
	})
}

// takeOverAgain is how often it is tried to take the log over where that is not granted.
const takeOverAgain = 15 * time.Second

// TakeOver reads the log. Where a process that provisions may not, it waits until the right is granted: nothing is
// provisioned then, and no PV gives up its volume or finalizer, but the others of its controllers go on.
func (l *inFlightLog) TakeOver(ctx context.Context) error {
	for {
		err := l.Log.TakeOver(ctx)
		switch {
		case !errors.Is(err, inflight.ErrForbidden):
			return err
		case l.finishOnly:
			klog.FromContext(ctx).Info("The in-flight log may not be read; what it may have is left to the process that provisions", "err", err)
			l.without.Store(true)
			return nil
		}
		klog.FromContext(ctx).Error(err, "Nothing is provisioned, and no volume is deleted, until the Leases of the in-flight log may be written; it is tried again", "after", takeOverAgain)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(takeOverAgain):
		}
	}
}

// Missing returns those of the rights on Leases that a process which provisions is not granted.
func (l *inFlightLog) MissingPermissions(ctx context.Context) ([]access.Permission, error) {
	if l.finishOnly {
		return nil, nil
	}
	var rights []access.Permission
	for _, verb := range []string{"get", "create", "update"} {
		rights = append(rights, access.Permission{Group: "coordination.k8s.io", Resource: "leases", Verb: verb, Namespace: l.namespace,
			Without: "no claim gets a volume, and no volume is deleted, for nobody can tell which are in flight", Unsafe: true})
	}
	return access.Missing(ctx, l.authorization, rights)
}

// Run writes the log.
func (l *inFlightLog) Run(ctx context.Context) error {
	if l.without.Load() {
		<-ctx.Done()
		return nil
	}
	return l.Log.Run(ctx)
}

// InFlight tells whether the volume of a PV has an entry.
func (l *inFlightLog) InFlight(pv string) (inFlight, known bool) {
	if l.without.Load() {
		return false, true
	}
	return l.Log.InFlight(pv)
}
