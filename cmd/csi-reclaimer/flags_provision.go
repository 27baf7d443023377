package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/builder"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
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

// validateProvisioning returns an error for each invalid setting of provisioning.
func (o *options) validateProvisioning(role volume.Role) []error {
	var wrong []error
	if o.provision.value != nil && *o.provision.value && role != volume.RoleOwner {
		wrong = append(wrong, fmt.Errorf("--provision: in role %s another provisioner creates the volumes; set "+
			"--role=owner or leave the flag out", o.role))
	}
	if err := o.node.validate(o.gates.Enabled(topologyGate)); err != nil {
		wrong = append(wrong, err)
	}
	if o.sweepInterval < 0 {
		wrong = append(wrong, fmt.Errorf("--snapshot-orphan-sweep-interval=%v: must not be negative", o.sweepInterval))
	}
	if o.quiet < 0 {
		wrong = append(wrong, fmt.Errorf("--in-flight-quiet-period=%v: must not be negative", o.quiet))
	}
	if o.cloneWorkers < 1 {
		wrong = append(wrong, fmt.Errorf("--cloning-protection-threads=%d: must be at least 1", o.cloneWorkers))
	}
	if err := o.volumes.Validate(); err != nil {
		wrong = append(wrong, fmt.Errorf("--volume-name-prefix, --volume-name-uuid-length: %w", err))
	}
	return wrong
}

func (o *options) provisionConfig(node *volume.Node) provision.Config {
	return provision.Config{
		Quiet: o.quietPeriod(), FinishOnly: !o.provisions(), Workers: o.workers, CloneWorkers: o.cloneWorkers,
		RetryStart: o.retryStart, RetryMax: o.retryMax, Local: o.node.local(node),
	}
}

// requestTimeout is the API server's default --request-timeout, and allowance covers further delays of a request.
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
