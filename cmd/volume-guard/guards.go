package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/statefulset"
)

// guard is a controller of this program: intree.Controller, pvc.Protector, pv.Protector, singlenode.Controller,
// podsafety.Controller, statefulset.Controller or fencing.Controller.
type guard interface {
	app.Controller
	app.PermissionChecker
	// WaitSynced waits until the caches are filled, and returns an error if ctx ends first.
	WaitSynced(ctx context.Context) error
}

type guards []guard

// guards creates the controllers that the flags select, without starting them.
func (o *options) guards(config *rest.Config, events record.EventRecorder, metrics prometheus.Registerer) (all guards,
	err error) {
	c := o.configs(events, metrics)
	for _, kind := range []struct {
		name string
		make func() (guard, error)
	}{
		{inTree, func() (guard, error) { return intree.New(config, c.inTree) }},
		{pvcProtection, func() (guard, error) { return pvc.New(config, c.claims) }},
		{pvProtection, func() (guard, error) { return pv.New(config, c.pvs) }},
		// Before pod-safety, because a release of both names held pods that may run beside another one.
		{singleNode, func() (guard, error) { return singlenode.New(config, c.singleNode) }},
		{podSafety, func() (guard, error) { return podsafety.New(config, c.podSafety) }},
		{setClaims, func() (guard, error) { return statefulset.New(config, c.statefulSet) }},
		{nodeFencing, func() (guard, error) { return fencing.New(config, c.nodeFencing) }},
	} {
		if !o.controllers.has(kind.name) {
			continue
		}
		one, err := kind.make()
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// installed creates the controllers for a cluster that has, or lacks, the kinds of node-fencing. It returns an error if
// the API server does not serve the kinds that a controller needs.
func (o *options) installed(ctx context.Context, config *rest.Config, events record.EventRecorder,
	metrics prometheus.Registerer) (all guards, err error) {
	if o.watchFences, err = o.leftFences(ctx, config); err != nil {
		return nil, err
	}
	if all, err = o.guards(config, events, metrics); err != nil {
		return nil, err
	}
	return all, all.installed(ctx)
}

// leftFences reports whether node-fencing may have left NodeFences that still keep nodes from volumes: it does not run,
// but its kind is there. Without an answer for a while it returns an error, because an unmount that a fence hinders
// would otherwise count as done.
func (o *options) leftFences(ctx context.Context, config *rest.Config) (bool, error) {
	if o.controllers.has(nodeFencing) || !o.controllers.has(podSafety) { // single-node needs pod-safety
		return false, nil
	}
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false, fmt.Errorf("create a client for the kinds of the API server: %w", err)
	}
	for range kindTries - 1 {
		served, err := nodefence.Served(api)
		if err == nil {
			return served, nil
		}
		klog.FromContext(ctx).Info("Whether fences hinder the unmount of volumes is not known; retrying", "err", err)
		if !controller.Pause(ctx, clock.RealClock{}, kindPause) {
			return false, ctx.Err()
		}
	}
	return nodefence.Served(api)
}

// kindTries and kindPause are the tries of leftFences and the pause between them. They end before a liveness probe
// fails, so that the log names the cause.
const (
	kindTries = 5
	kindPause = 2 * time.Second
)

// split returns the guards that protect pods apart from the others.
func (g guards) split() (others, ofPods guards) {
	for _, one := range g {
		switch one.(type) {
		case *singlenode.Controller, *podsafety.Controller:
			ofPods = append(ofPods, one)
		default:
			others = append(others, one)
		}
	}
	return others, ofPods
}

func (g guards) checkers() (all []app.PermissionChecker) {
	for _, one := range g {
		all = append(all, one)
	}
	return all
}

// installed returns an error if the API server does not serve the kinds that a controller watches, because its caches
// would wait for them forever. Any other error is ignored.
func (g guards) installed(ctx context.Context) error {
	for _, one := range g {
		if c, ok := one.(*fencing.Controller); ok {
			if err := c.Installed(ctx); errors.Is(err, fencing.ErrNotInstalled) {
				return err
			}
		}
	}
	return nil
}

// begun returns an error until the caches of all controllers are filled.
func (g guards) begun() error {
	for _, one := range g {
		if !one.Synced() {
			return errors.New("waiting for the first list from the API server")
		}
	}
	return nil
}

// waitSynced waits until all caches are filled, or ctx ends.
func (g guards) waitSynced(ctx context.Context) error {
	for _, one := range g {
		if err := one.WaitSynced(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Names of the controllers as they appear in --controllers.
const (
	inTree        = "intree"
	pvcProtection = "pvc-protection"
	pvProtection  = "pv-protection"
	podSafety     = "pod-safety"
	setClaims     = "statefulset-claims"
	nodeFencing   = "node-fencing"
	singleNode    = "single-node"
)

// onByDefault returns the controllers that * stands for, because the others duplicate Kubernetes' own controllers in
// most clusters, change the start and end of pods, delete claims, or fence nodes, and cost a watch of all claims or
// pods.
func onByDefault() []string { return []string{inTree} }

func offByDefault() []string {
	return []string{pvcProtection, pvProtection, podSafety, singleNode, setClaims, nodeFencing}
}

// selection is the value of --controllers, as in kube-controller-manager: "*" stands for the controllers that are on
// by default, "NAME" adds one, and "-NAME" removes one.
type selection []string

// has reports whether a controller runs, where its name takes precedence over *.
func (s selection) has(controller string) bool {
	switch {
	case slices.Contains(s, controller):
		return true
	case slices.Contains(s, "-"+controller):
		return false
	}
	return slices.Contains(s, "*") && slices.Contains(onByDefault(), controller)
}

func (s selection) none() bool {
	return !slices.ContainsFunc(slices.Concat(onByDefault(), offByDefault()), s.has)
}

// validate returns an error if the selection has an unknown name.
func (s selection) validate() error {
	all := slices.Concat(onByDefault(), offByDefault())
	for _, name := range s {
		if name != "*" && !slices.Contains(all, strings.TrimPrefix(name, "-")) {
			return fmt.Errorf("--controllers: unknown controller %q: must be one of %s", name, strings.Join(all, ", "))
		}
	}
	return nil
}
