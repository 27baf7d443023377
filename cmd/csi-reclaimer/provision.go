package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/order"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/places"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshots"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// newProvisioner returns what makes the volumes of claims, nil where that is not to be done. Of
// shared, Volumes, Changed, Events and Metrics count; node is nil for all nodes. It is called before anything that uses
// client-go's scheme runs: see provision.New.
func newProvisioner(ctx context.Context, o *options, config *rest.Config, driver *csidriver.Driver, node *reclaim.Node, where *places.Places, shared provision.Config) (*provision.Provisioner, error) {
	if !o.provisions() {
		klog.FromContext(ctx).Info("Not provisioning", "role", o.role, "dryRun", o.dryRun)
		return nil, nil //nolint:nilnil // nothing that provisions is an answer of its own here
	}
	volumeSnapshots, err := snapshots.New(config)
	if err != nil {
		return nil, err
	}
	orders := o.composerConfig(identity(driver.Name(), node), node)
	orders.Places, orders.Snapshots = where, volumeSnapshots
	composer, err := provision.NewComposer(config, driver, orders)
	if err != nil {
		return nil, err
	}
	if o.gates.Enabled(attributesGate) {
		sayAttributesClasses(ctx, composer)
	}
	settings := o.provisionConfig(node)
	settings.Volumes, settings.Changed, settings.Events, settings.Metrics = shared.Volumes, shared.Changed, shared.Events, shared.Metrics
	if plugin := order.InTreePlugin(driver.Name()); plugin != "" {
		settings.AlsoKnownAs = []string{plugin}
	}
	return provision.New(config, driver.Name(), driver, composer, settings)
}

// sayAttributesClasses logs where a cluster has no VolumeAttributesClasses. What that means for a claim is decided when
// one is named.
func sayAttributesClasses(ctx context.Context, composer *provision.Composer) {
	switch served, err := composer.ServesAttributesClasses(ctx); {
	case err != nil:
		klog.FromContext(ctx).Info("It could not be found out whether the cluster has VolumeAttributesClasses", "err", err)
	case !served:
		klog.FromContext(ctx).Info("VolumeAttributesClass is off: the API server does not serve it in storage.k8s.io/v1. A claim that names one gets no volume")
	}
}

// identity is noted in the attributes of each volume, in the form in which the stock provisioner
// notes it.
func identity(driver string, node *reclaim.Node) string {
	id := fmt.Sprintf("%d-%d-%s", time.Now().UnixMilli(), rand.IntN(10000), driver)
	if node != nil {
		id += "-" + node.Name
	}
	return id
}
