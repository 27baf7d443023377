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

	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/builder"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/grants"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/sources"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// newProvisioner returns the provisioner, or nil in a dry run. From shared it takes only Log, Lease, PVs, Claims,
// Changed, Metrics and TracerProvider, and node is nil for all nodes.
func newProvisioner(ctx context.Context, o *options, config *rest.Config, driver *csidriver.Driver, node *volume.Node,
	where *nodes.Lister, shared provision.Config) (*provision.Controller, error) {
	if o.dryRun {
		return nil, nil
	}
	if !o.provisions() {
		klog.FromContext(ctx).Info("Not provisioning; finishing the volumes that are in flight", "role", o.role)
	}
	volumeSnapshots, err := snapshot.New(config)
	if err != nil {
		return nil, err
	}
	requests := o.builderConfig(identity(driver.Name(), node), node)
	requests.Nodes, requests.Snapshots = where, volumeSnapshots
	if requests.Settings.CrossNamespace {
		if requests.Grants, err = grants.New(config); err != nil {
			return nil, err
		}
	}
	requestBuilder, err := builder.New(config, driver, requests)
	if err != nil {
		return nil, err
	}
	if o.gates.Enabled(attributesGate) {
		logAttributesClasses(ctx, requestBuilder)
	}
	settings := o.provisionConfig(node)
	settings.Snapshots = volumeSnapshots
	settings.PVs, settings.Changed, settings.Metrics = shared.PVs, shared.Changed, shared.Metrics
	settings.Log, settings.Lease, settings.Claims = shared.Log, shared.Lease, shared.Claims
	settings.TracerProvider = shared.TracerProvider
	if plugin := request.InTreePlugin(driver.Name()); plugin != "" {
		settings.AlsoKnownAs = []string{plugin}
	}
	return provision.New(config, driver.Name(), driver, requestBuilder, settings)
}

// newSweeper returns the controller that removes finalizers left on VolumeSnapshots, or nil if it is off.
func newSweeper(o *options, config *rest.Config, driver *csidriver.Driver,
	provisioner *provision.Controller) (*sources.Sweeper, error) {
	if !o.sweeps() || !driver.Has(csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT) {
		return nil, nil
	}
	volumeSnapshots, err := snapshot.New(config)
	if err != nil {
		return nil, err
	}
	return sources.NewSweeper(config, driver.Name(), volumeSnapshots, sources.SweeperConfig{
		Interval: o.sweepInterval, Uses: provisioner, ReadClaims: !o.provisions()})
}

// releaseSources removes the finalizers from sources of volumes, and prints the result. If the program lacks the
// permission, or snapshots are not installed, it prints so and returns no error, because then it cannot have added
// such a finalizer. The sources that inUse names keep theirs, which is an error.
func releaseSources(ctx context.Context, config *rest.Config, driver string, inUse func(volume.SourceRef) bool,
	stdout io.Writer) error {
	volumeSnapshots, err := snapshot.New(config)
	if err != nil {
		return err
	}
	core, err := corev1.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create a client for the API server: %w", err)
	}
	var errs []error
	keep := func(of volume.SourceRef) bool {
		used := inUse(of)
		if used {
			errs = append(errs, fmt.Errorf("%s %s/%s keeps its finalizer: a volume is, or may be, in flight from it",
				of.Kind, of.Namespace, of.Name))
		}
		return used
	}
	freed, ofSnapshots := sources.ReleaseSnapshots(ctx, driver, volumeSnapshots, keep)
	claims, ofClaims := sources.ReleaseClonedClaims(ctx, core, driver, keep)
	for _, done := range []struct {
		what string
		n    int
		err  error
	}{{"VolumeSnapshot", freed, ofSnapshots}, {"cloned claim", claims, ofClaims}} {
		line := ""
		if done.n > 0 {
			line = fmt.Sprintf("%s %s released\n", plural.Count(done.n, done.what), plural.Verb(done.n, "was", "were"))
		}
		switch {
		case errors.Is(done.err, snapshot.ErrNotInstalled):
		case done.n == 0 && apierrors.IsForbidden(done.err):
			line = fmt.Sprintf("no %s was released: %v\n", done.what, done.err)
		default:
			errs = append(errs, done.err)
		}
		if _, err := io.WriteString(stdout, line); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// logAttributesClasses logs if the cluster has no VolumeAttributesClasses, which matters only for claims that name
// one.
func logAttributesClasses(ctx context.Context, requestBuilder *builder.Builder) {
	switch served, err := requestBuilder.ServesAttributesClasses(ctx); {
	case err != nil:
		klog.FromContext(ctx).Info("Could not read whether the cluster has VolumeAttributesClasses", "err", err)
	case !served:
		klog.FromContext(ctx).Info("VolumeAttributesClass is off: the API server does not serve it in storage.k8s.io/v1. " +
			"A claim that names one gets no volume")
	}
}

// identity returns the provisioner identity in the attributes of each volume, in the form of the stock provisioner.
func identity(driver string, node *volume.Node) string {
	id := fmt.Sprintf("%d-%d-%s", time.Now().UnixMilli(), rand.IntN(10000), driver)
	if node != nil {
		id += "-" + node.Name
	}
	return id
}
