package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// provisioningFlags are those of the stock external-provisioner, with its names and defaults, and
// two of our own.
func (o *options) provisioningFlags(fs *pflag.FlagSet) {
	fs.Var(&o.provision, "provision",
		"Make the volumes of claims, in place of the external-provisioner. Default: true in role owner; the other roles work beside a provisioner.")
	fs.Lookup("provision").NoOptDefVal = "true"
	fs.BoolVar(&o.holdClaims, "provisioning-finalizer", true,
		"Hold a claim by the finalizer "+provision.Finalizer+" while its volume is made, so that no crash leaves a volume behind. Needs the right to patch claims; without that right claims are not held. Finalizers that are there are taken off in any case.")
	fs.StringVar(&o.volumes.VolumeNamePrefix, "volume-name-prefix", "pvc",
		"What the names of volumes and of their PVs begin with. With another one a volume whose making was under way is not found again.")
	fs.IntVar(&o.volumes.VolumeNameUUIDLength, "volume-name-uuid-length", -1,
		"How many characters of the claim's UID end the names, 1 to 32, without dashes. -1: all, with dashes. Of few characters two claims may have the same; the second then waits until the first is gone.")
	fs.StringVar(&o.volumes.DefaultFSType, "default-fstype", "",
		"Filesystem of volumes whose StorageClass names none. Default: the driver decides.")
	fs.BoolVar(&o.volumes.ExtraCreateMetadata, "extra-create-metadata", false,
		"Tell the driver the names of claim and PV, as parameters of CreateVolume.")
	fs.BoolVar(&o.volumes.StrictTopology, "strict-topology", false,
		"Late binding: tell the driver the place of the selected node alone, and not those of all nodes.")
	fs.BoolVar(&o.immediate, "immediate-topology", true,
		"Immediate binding: tell the driver the places of all its nodes. false: none, unless the StorageClass restricts them.")
	fs.BoolVar(&o.preventMode, "prevent-volume-mode-conversion", true,
		"Restore a snapshot in its own volume mode only (Filesystem or Block), unless its VolumeSnapshotContent allows the other.")
	fs.BoolVar(&o.volumes.ControllerPublishReadOnly, "controller-publish-readonly", false,
		"Mark the PVs of claims whose only access mode is ReadOnlyMany as read-only.")
	fs.IntVar(&o.cloneWorkers, "cloning-protection-threads", 1,
		"How many claims that were cloned are let go at once.")
	o.node.flags(fs)
}

// provisions tells whether volumes are made for claims.
func (o *options) provisions() bool {
	if o.provision.value != nil && !*o.provision.value {
		return false
	}
	return parseRole(o.role) == reclaim.RoleOwner && !o.dryRun && !o.releaseFinalizers
}

// validateProvisioning returns every setting of provisioning that is wrong.
func (o *options) validateProvisioning(role reclaim.Role) []error {
	var wrong []error
	if o.provision.value != nil && *o.provision.value && role != reclaim.RoleOwner {
		wrong = append(wrong, fmt.Errorf("--provision: in role %s another provisioner makes the volumes; only role owner provisions", o.role))
	}
	if err := o.node.validate(o.gates.Enabled(topologyGate)); err != nil {
		wrong = append(wrong, err)
	}
	if o.gates.Enabled(crossNamespaceGate) {
		wrong = append(wrong, errors.New("--feature-gates=CrossNamespaceVolumeDataSource=true: sources in other namespaces are not supported yet"))
	}
	if o.cloneWorkers < 1 {
		wrong = append(wrong, fmt.Errorf("--cloning-protection-threads=%d: must be at least 1", o.cloneWorkers))
	}
	if err := o.volumes.Validate(); err != nil {
		wrong = append(wrong, fmt.Errorf("--volume-name-prefix, --volume-name-uuid-length: %w", err))
	}
	return wrong
}

// provisionConfig is what the command line says to the library.
func (o *options) provisionConfig(node *reclaim.Node) provision.Config {
	return provision.Config{
		NoFinalizer: !o.holdClaims, Workers: o.workers, CloneWorkers: o.cloneWorkers,
		RetryStart: o.retryStart, RetryMax: o.retryMax, Local: o.node.local(node),
	}
}

// composerConfig is what volumes are to be like.
func (o *options) composerConfig(identity string, node *reclaim.Node) provision.ComposerConfig {
	c := provision.ComposerConfig{Settings: o.volumes, IgnoreTopology: !o.gates.Enabled(topologyGate), Node: node}
	c.Settings.SkipImmediateTopology = !o.immediate
	c.Settings.AllowModeConversion = !o.preventMode
	c.Settings.NoAttributesClass = !o.gates.Enabled(attributesGate)
	c.Settings.Identity = identity
	return c
}
