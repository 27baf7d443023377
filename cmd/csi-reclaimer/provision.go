package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/grants"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// newProvisioner returns what makes the volumes of claims, nil where that is not to be done. Of
// shared, Log, Lease, Volumes, Changed, Events and Metrics count; node is nil for all nodes. It is called before anything that uses
// client-go's scheme runs: see provision.New.
func newProvisioner(ctx context.Context, o *options, config *rest.Config, driver *csidriver.Driver, node *volume.Node, where *nodes.Places, shared provision.Config) (*provision.Provisioner, error) {
	if o.dryRun {
		return nil, nil //nolint:nilnil // nothing that provisions is an answer of its own here
	}
	if !o.provisions() {
		klog.FromContext(ctx).Info("Not provisioning; what is in flight is finished", "role", o.role)
	}
	volumeSnapshots, err := snapshot.New(config)
	if err != nil {
		return nil, err
	}
	orders := o.composerConfig(identity(driver.Name(), node), node)
	orders.Places, orders.Snapshots = where, volumeSnapshots
	if orders.Settings.CrossNamespace {
		if orders.Grants, err = grants.New(config); err != nil {
			return nil, err
		}
	}
	composer, err := provision.NewComposer(config, driver, orders)
	if err != nil {
		return nil, err
	}
	if o.gates.Enabled(attributesGate) {
		sayAttributesClasses(ctx, composer)
	}
	settings := o.provisionConfig(node)
	settings.Snapshots = volumeSnapshots
	settings.Volumes, settings.Changed, settings.Events, settings.Metrics = shared.Volumes, shared.Changed, shared.Events, shared.Metrics
	settings.Log, settings.Lease = shared.Log, shared.Lease
	if plugin := request.InTreePlugin(driver.Name()); plugin != "" {
		settings.AlsoKnownAs = []string{plugin}
	}
	return provision.New(config, driver.Name(), driver, composer, settings)
}

// newSweeper returns what removes the finalizers that were left on VolumeSnapshots, nil where that is not to be
// done.
func newSweeper(o *options, config *rest.Config, driver *csidriver.Driver, provisioner *provision.Provisioner) (*provision.Sweeper, error) {
	if !o.sweeps() || !driver.Has(csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT) {
		return nil, nil //nolint:nilnil // nothing that sweeps is an answer of its own here
	}
	volumeSnapshots, err := snapshot.New(config)
	if err != nil {
		return nil, err
	}
	settings := provision.SweeperConfig{Interval: o.sweepInterval}
	if o.provisions() {
		settings.Uses = provisioner // which knows what is in flight
	}
	return provision.NewSweeper(config, driver.Name(), volumeSnapshots, settings)
}

// releaseSources removes the finalizers of what volumes were made from, and prints what came of it. Where
// that is not granted, or snapshots are not installed, it says so, and it is no error: then nothing of this
// program's has such a finalizer.
func releaseSources(ctx context.Context, config *rest.Config, driver string, stdout io.Writer) error {
	volumeSnapshots, err := snapshot.New(config)
	if err != nil {
		return err
	}
	core, err := corev1.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for the API server: %w", err)
	}
	freed, ofSnapshots := provision.ReleaseSnapshots(ctx, driver, volumeSnapshots)
	claims, ofClaims := provision.ReleaseClonedClaims(ctx, core, driver)
	var errs []error
	for _, done := range []struct {
		what string
		n    int
		err  error
	}{{"VolumeSnapshots", freed, ofSnapshots}, {"claims that were cloned", claims, ofClaims}} {
		text := ""
		if done.n > 0 {
			text = fmt.Sprintf("%d %s were released\n", done.n, done.what)
		}
		switch {
		case errors.Is(done.err, snapshot.ErrNotInstalled):
		case done.n == 0 && apierrors.IsForbidden(done.err):
			text = fmt.Sprintf("%s are left as they are: %v\n", done.what, done.err)
		default:
			errs = append(errs, done.err)
		}
		if _, err := io.WriteString(stdout, text); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
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
func identity(driver string, node *volume.Node) string {
	id := fmt.Sprintf("%d-%d-%s", time.Now().UnixMilli(), rand.IntN(10000), driver)
	if node != nil {
		id += "-" + node.Name
	}
	return id
}
