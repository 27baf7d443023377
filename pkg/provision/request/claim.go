package request

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
)

// Annotations of a claim that this package reads.
const (
	// annProvisioner is set by the PV controller, annProvisionerBeta by the PV controller before Kubernetes 1.23.
	annProvisioner     = "volume.kubernetes.io/storage-provisioner"
	annProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
	annMigratedTo      = "pv.kubernetes.io/migrated-to"
	annSelectedNode    = "volume.kubernetes.io/selected-node"
)

// checkOurs returns an error unless this driver provisions the claim, according to the PV controller's annotation on
// the claim.
func (f Facts) checkOurs() error {
	asked, found := f.Claim.Annotations[annProvisioner]
	if !found {
		asked = f.Claim.Annotations[annProvisionerBeta]
	}
	if f.Driver.Name == "" || asked != f.Driver.Name && f.Claim.Annotations[annMigratedTo] != f.Driver.Name {
		return refuse(ReasonNotOurs, "claim %q is for provisioner %q, this is %q", f.claimName(), asked, f.Driver.Name)
	}
	return nil
}

// checkClass returns an error unless the class is the claim's and belongs to this driver or the in-tree plugin that it
// replaces.
func (f Facts) checkClass() error {
	name := className(f.Claim)
	switch {
	case f.Class == nil || f.Class.Name != name:
		return refuse(ReasonClassMissing,
			"StorageClass %q of claim %q does not exist; create it again, or delete the claim", name, f.claimName())
	case f.Class.Provisioner != f.Driver.Name && !f.migrates():
		return refuse(ReasonNotOurs, "StorageClass %q is for provisioner %q, this is %q", name, f.Class.Provisioner,
			f.Driver.Name)
	}
	return nil
}

// className returns the class that a claim names. The deprecated annotation has precedence (component-helpers,
// GetPersistentVolumeClaimClass).
func className(claim *v1.PersistentVolumeClaim) string {
	if class, found := claim.Annotations[v1.BetaStorageClassAnnotation]; found {
		return class
	}
	return ptr.Deref(claim.Spec.StorageClassName, "")
}

// checkClaim returns an error if no volume can be created for the claim at all.
func (f Facts) checkClaim() error {
	switch {
	case f.Claim.Spec.Selector != nil:
		return refuse(ReasonClaimUnsupported,
			"claim %q has a selector, which chooses among volumes that are there; for a new one create it without",
			f.claimName())
	case f.size() <= 0:
		return refuse(ReasonClaimInvalid, "claim %q requests no storage; set spec.resources.requests.storage", f.claimName())
	case f.lateBinding() && f.selectedNode() == "":
		return refuse(ReasonNodeNotSelected,
			"claim %q waits for a pod that uses it: StorageClass %q binds late (WaitForFirstConsumer)", f.claimName(),
			f.Class.Name)
	}
	return nil
}

func (f Facts) lateBinding() bool {
	return ptr.Deref(f.Class.VolumeBindingMode, "") == storagev1.VolumeBindingWaitForFirstConsumer
}

func (f Facts) selectedNode() string { return f.Claim.Annotations[annSelectedNode] }

// checkDriver returns an error if the driver lacks a capability that the claim needs.
func (f Facts) checkDriver(source SourceRef) error {
	cannot := func(capability, what string) error {
		return refuse(ReasonDriverIncapable, "CSI driver %q cannot %s for claim %q: it does not report the capability %s",
			f.Driver.Name, what, f.claimName(), capability)
	}
	controller := f.Driver.Controller
	switch {
	case !f.Driver.Plugin[csi.PluginCapability_Service_CONTROLLER_SERVICE]:
		return cannot("CONTROLLER_SERVICE", "make a volume")
	case !controller[csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME]:
		return cannot("CREATE_DELETE_VOLUME", "make a volume")
	case source.Kind == SourceSnapshot && !controller[csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT]:
		return cannot("CREATE_DELETE_SNAPSHOT", "restore a snapshot")
	case source.Kind == SourceClaim && !controller[csi.ControllerServiceCapability_RPC_CLONE_VOLUME]:
		return cannot("CLONE_VOLUME", "clone a volume")
	case f.attributesClass() != "" && !controller[csi.ControllerServiceCapability_RPC_MODIFY_VOLUME]:
		return cannot("MODIFY_VOLUME", "apply a VolumeAttributesClass")
	}
	return nil
}
