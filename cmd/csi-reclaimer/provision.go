package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/builder"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/grants"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/snapshot"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/sources"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// provisioningFlags adds the flags of the stock external-provisioner, with its names and defaults, and some flags
// that only csi-reclaimer has.
func (o *options) provisioningFlags(fs *pflag.FlagSet) {
	fs.Var(&o.provision, "provision",
		"Provision the volumes of claims, in place of the external-provisioner. Default: true in role owner; the other "+
			"roles work beside a provisioner.")
	fs.Lookup("provision").NoOptDefVal = "true"
	fs.DurationVar(&o.quiet, "in-flight-quiet-period", 0,
		"How long an unanswered call to the driver or the API server may still take effect. Until then, the "+
			"volume's entry stays in the in-flight log, and the volume is not deleted. "+
			"A shorter period risks a leaked volume. Default: --leader-election-lease-duration + the longer of --timeout and "+
			"1m + 30s.")
	fs.StringVar(&o.volumes.VolumeNamePrefix, "volume-name-prefix", "pvc",
		"Prefix of the names of volumes and of their PVs. After a change, claims with a volume in the in-flight log, or "+
			"with an unbound PV, keep their names. Where external-provisioner was creating the volume, the claim gets a "+
			"second one.")
	fs.IntVar(&o.volumes.VolumeNameUUIDLength, "volume-name-uuid-length", -1,
		"How many characters of the claim's UID end the names, 1 to 32, without dashes. -1: all, with dashes. With few "+
			"characters, two claims can get the same name; the second then waits until the first is gone.")
	fs.StringVar(&o.volumes.DefaultFSType, "default-fstype", "",
		"Filesystem of volumes whose StorageClass names none. Default: the driver decides.")
	fs.BoolVar(&o.volumes.ExtraCreateMetadata, "extra-create-metadata", false,
		"Pass the names of claim and PV to the driver, as parameters of CreateVolume.")
	fs.BoolVar(&o.volumes.StrictTopology, "strict-topology", false,
		"Late binding: pass only the topology segment of the selected node to the driver, instead of the segments of all "+
			"nodes.")
	fs.BoolVar(&o.immediate, "immediate-topology", true,
		"Immediate binding: pass the topology segments of all nodes to the driver. false: none, unless the StorageClass "+
			"restricts them.")
	fs.BoolVar(&o.preventMode, "prevent-volume-mode-conversion", true,
		"Restore a snapshot only with its own volume mode (Filesystem or Block), unless its VolumeSnapshotContent allows "+
			"a conversion.")
	fs.BoolVar(&o.volumes.ControllerPublishReadOnly, "controller-publish-readonly", false,
		"Mark the PVs of claims whose only access mode is ReadOnlyMany as read-only.")
	fs.IntVar(&o.cloneWorkers, "cloning-protection-threads", 1,
		"How many finalizers are removed concurrently from claims that were cloned and VolumeSnapshots that were restored.")
	fs.DurationVar(&o.sweepInterval, "snapshot-orphan-sweep-interval", 5*time.Minute,
		"How often to search for VolumeSnapshots of the driver that have the finalizer "+request.SnapshotFinalizer+
			" while no volume is being restored from them, and to remove it. An external-provisioner or a crash leaves such "+
			"VolumeSnapshots, which cannot be deleted otherwise. In role owner, also with --provision=false. 0: never.")
	o.node.flags(fs)
}

// provisions reports whether this process provisions volumes, which only role owner does.
func (o *options) provisions() bool {
	if o.provision.value != nil && !*o.provision.value {
		return false
	}
	return parseRole(o.role) == volume.RoleOwner && !o.dryRun && !o.releaseFinalizers
}

// sweeps reports whether this process removes finalizers that were left on VolumeSnapshots.
func (o *options) sweeps() bool {
	return o.sweepInterval > 0 && parseRole(o.role) == volume.RoleOwner && !o.dryRun && !o.releaseFinalizers
}

// validateProvisioning returns an error that names all invalid settings of provisioning, or nil.
func (o *options) validateProvisioning(role volume.Role) error {
	var wrong settings.Wrong
	wrong.If(o.provision.value != nil && *o.provision.value && role != volume.RoleOwner,
		"--provision: in role %s another provisioner creates the volumes; set --role=owner or leave the flag out", o.role)
	o.node.validate(&wrong, o.gates.Enabled(topologyGate))
	wrong.If(o.sweepInterval < 0, "--snapshot-orphan-sweep-interval=%v: must not be negative", o.sweepInterval)
	wrong.If(o.quiet < 0, "--in-flight-quiet-period=%v: must not be negative", o.quiet)
	wrong.If(o.cloneWorkers < 1, "--cloning-protection-threads=%d: must be at least 1", o.cloneWorkers)
	err := o.volumes.Validate()
	wrong.If(err != nil, "--volume-name-prefix, --volume-name-uuid-length: %w", err)
	return wrong.Err()
}

func (o *options) provisionConfig(node *volume.Node) provision.Config {
	return provision.Config{
		Quiet: o.quietPeriod(), CallTimeout: o.callTimeout(), FinishOnly: !o.provisions(), Workers: o.workers,
		CloneWorkers: o.cloneWorkers, RetryStart: o.retryStart, RetryMax: o.retryMax, Local: o.node.local(node),
	}
}

// requestTimeout is the API server's default --request-timeout, and allowance covers further delays of a call.
const (
	requestTimeout = time.Minute
	allowance      = 30 * time.Second
)

// quietPeriod returns the longest time after which a call without an answer can still arrive.
func (o *options) quietPeriod() time.Duration {
	if o.quiet > 0 {
		return o.quiet
	}
	return o.leader.Settings.LeaseDuration + max(o.timeout, requestTimeout) + allowance
}

// builderConfig returns the settings of CreateVolume requests, without their Nodes, Snapshots and Grants.
func (o *options) builderConfig(identity string, node *volume.Node) builder.Config {
	c := builder.Config{Settings: o.volumes, IgnoreTopology: !o.gates.Enabled(topologyGate), Node: node}
	c.Settings.SkipImmediateTopology = !o.immediate
	c.Settings.AllowModeConversion = !o.preventMode
	c.Settings.CrossNamespace = o.gates.Enabled(crossNamespaceGate)
	c.Settings.NoAttributesClass = !o.gates.Enabled(attributesGate)
	c.Settings.Identity = identity
	return c
}

// newProvisioner returns the provisioner, or nil in a dry run.
func (s *sidecar) newProvisioner(ctx context.Context, all *controllers,
	reclaiming reclaim.Config) (*provision.Controller, error) {
	if s.dryRun {
		return nil, nil
	}
	if !s.provisions() {
		klog.FromContext(ctx).Info("Not provisioning; finishing the volumes that are in flight", "role", s.role)
	}
	reads := kube.Limited(s.acting) // for CreateVolume requests
	volumeSnapshots, err := snapshot.New(reads)
	if err != nil {
		return nil, err
	}
	driver := s.driver
	requests := s.builderConfig(identity(driver.Name(), s.node), s.node)
	requests.Nodes, requests.Snapshots = s.nodes, volumeSnapshots
	if requests.Settings.CrossNamespace {
		if requests.Grants, err = grants.New(reads); err != nil {
			return nil, err
		}
	}
	requestBuilder, err := builder.New(reads, driver, requests)
	if err != nil {
		return nil, err
	}
	if s.gates.Enabled(attributesGate) {
		logAttributesClasses(ctx, requestBuilder)
	}
	cfg := s.provisionConfig(s.node)
	cfg.Log, cfg.Lease, cfg.Snapshots = all.log, reclaiming.Lease, volumeSnapshots
	cfg.PVs, cfg.Claims, cfg.Changed = all.reclaimer.PVs(), all.reclaimer, reclaiming.Deleted
	cfg.Metrics, cfg.TracerProvider = s.metrics, s.traces // its many Events need their own recorder
	if plugin := request.InTreePlugin(driver.Name()); plugin != "" {
		cfg.AlsoKnownAs = []string{plugin}
	}
	return provision.New(s.acting, driver.Name(), driver, requestBuilder, cfg)
}

// newSweeper returns the controller that removes finalizers left on VolumeSnapshots, or nil if it is off.
func (s *sidecar) newSweeper(provisioner *provision.Controller) (*sources.Sweeper, error) {
	if !s.sweeps() || !s.driver.Has(csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT) {
		return nil, nil
	}
	config := kube.Limited(s.acting)
	volumeSnapshots, err := snapshot.New(config)
	if err != nil {
		return nil, err
	}
	return sources.NewSweeper(config, s.driver.Name(), volumeSnapshots, sources.SweeperConfig{
		Interval: s.sweepInterval, Uses: provisioner, ReadClaims: !s.provisions()})
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
	core, err := corev1.NewForConfig(kube.ConfigOf(config))
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
