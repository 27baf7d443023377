package request

import (
	"maps"
	"math"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/csi-translation-lib/plugins"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/translation"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// checkOurs returns an error unless this driver provisions the claim, according to the PV controller's annotation on
// the claim.
func (f Facts) checkOurs() error {
	asked, _ := volume.ProvisionerOf(f.Claim)
	if f.Driver.Name == "" || asked != f.Driver.Name && f.Claim.Annotations[volume.AnnMigratedTo] != f.Driver.Name {
		return refuse(ReasonNotOurs, "claim %q is for provisioner %q, this is %q", f.claimName(), asked, f.Driver.Name)
	}
	return nil
}

// checkClass returns an error unless the class is the claim's and belongs to this driver or the in-tree plugin that it
// replaces.
func (f Facts) checkClass() error {
	name := objects.ClaimClass(f.Claim)
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

// checkClaim returns an error if no volume can be created for the claim at all.
func (f Facts) checkClaim() error {
	requested := f.Claim.Spec.Resources.Requests[v1.ResourceStorage]
	switch {
	case f.Claim.Spec.Selector != nil:
		return refuse(ReasonClaimUnsupported,
			"claim %q has a selector, which chooses among volumes that are there; for a new one create it without",
			f.claimName())
	case requested.CmpInt64(math.MaxInt64) > 0: // the API server accepts it, and Value drops its upper bits
		return refuse(ReasonClaimInvalid, "claim %q requests %s, and CSI has sizes up to %d bytes; create it with less",
			f.claimName(), requested.String(), int64(math.MaxInt64))
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

func (f Facts) selectedNode() string { return f.Claim.Annotations[volume.AnnSelectedNode] }

// checkDriver returns an error if the driver lacks a capability that the claim needs.
func (f Facts) checkDriver(source volume.SourceRef) error {
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
	case source.Kind == volume.SourceSnapshot && !controller[csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT]:
		return cannot("CREATE_DELETE_SNAPSHOT", "restore a snapshot")
	case source.Kind == volume.SourceClaim && !controller[csi.ControllerServiceCapability_RPC_CLONE_VOLUME]:
		return cannot("CLONE_VOLUME", "clone a volume")
	case f.attributesClass() != "" && !controller[csi.ControllerServiceCapability_RPC_MODIFY_VOLUME]:
		return cannot("MODIFY_VOLUME", "apply a VolumeAttributesClass")
	}
	return nil
}

// accessModes returns the access modes of the claim, each once and in its order. The API server accepts thousands of
// equal ones, which would fill the request, the PV, and the in-flight log that all tenants share.
func (f Facts) accessModes() (modes []v1.PersistentVolumeAccessMode) {
	for _, mode := range f.Claim.Spec.AccessModes {
		if !slices.Contains(modes, mode) {
			modes = append(modes, mode)
		}
	}
	return modes
}

// capabilities returns one capability for each access mode. The CSI mode of an access mode, with and without the
// driver's SINGLE_NODE_MULTI_WRITER, comes from a table of csi-lib-utils, which the attacher shares.
func (f Facts) capabilities(fsType string) ([]*csi.VolumeCapability, error) {
	modes := f.accessModes()
	switch {
	case len(modes) == 0:
		return nil, refuse(ReasonClaimInvalid, "claim %q has no access mode; set spec.accessModes", f.claimName())
	case len(modes) > 1 && slices.Contains(modes, v1.ReadWriteOncePod):
		return nil, refuse(ReasonClaimInvalid,
			"claim %q has ReadWriteOncePod beside other access modes; create it with one or the others", f.claimName())
	}
	var all []*csi.VolumeCapability
	for _, mode := range modes {
		asCSI, err := accessmodes.ToCSIAccessMode([]v1.PersistentVolumeAccessMode{mode},
			f.Driver.Controller[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER])
		if err != nil {
			return nil, refuse(ReasonClaimInvalid, "claim %q has an access mode that is none: %w", f.claimName(), err)
		}
		capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: asCSI}}
		if block(f.Claim.Spec.VolumeMode) {
			capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		} else {
			capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
				FsType: fsType, MountFlags: slices.Clone(f.Class.MountOptions),
			}}
		}
		all = append(all, capability)
	}
	return all, nil
}

// readOnly reports whether the volume is attached read-only: its only access mode is read-only, and the settings
// request it.
func (s Settings) readOnly(capabilities []*csi.VolumeCapability) bool {
	return s.ControllerPublishReadOnly && len(capabilities) == 1 &&
		capabilities[0].GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

// attributesClass returns the name of the claim's VolumeAttributesClass, empty for none.
func (f Facts) attributesClass() string { return ptr.Deref(f.Claim.Spec.VolumeAttributesClassName, "") }

// readsAttributes reports whether the VolumeAttributesClass has to be read.
func (f Facts) readsAttributes() bool {
	return f.attributesClass() != "" && !f.Settings.NoAttributesClass
}

// mutableParameters returns the parameters of the VolumeAttributesClass (CSI spec, "CreateVolume", mutable_parameters),
// nil if the claim names none.
func (f Facts) mutableParameters() (map[string]string, error) {
	name := f.attributesClass()
	switch {
	case name == "":
		return nil, nil
	case f.Settings.NoAttributesClass:
		return nil, refuse(ReasonAttributesClassUnserved,
			"claim %q names VolumeAttributesClass %q, and the feature gate VolumeAttributesClass of this provisioner is off; "+
				"turn it on, or create the claim without",
			f.claimName(), name)
	case f.AttributesUnserved:
		return nil, refuse(ReasonAttributesClassUnserved,
			"claim %q names VolumeAttributesClass %q, and this cluster does not serve that API (storage.k8s.io/v1, "+
				"Kubernetes 1.34 and newer); create the claim without",
			f.claimName(), name)
	case f.Attributes == nil || f.Attributes.Name != name:
		return nil, refuse(ReasonAttributesClassMissing,
			"VolumeAttributesClass %q of claim %q does not exist; create it, or let the claim name another", name, f.claimName())
	case f.Attributes.DriverName != f.Driver.Name:
		return nil, refuse(ReasonAttributesClassForeign,
			"VolumeAttributesClass %q of claim %q is for driver %q, the StorageClass is for %q; let the claim name one of "+
				"the same driver",
			name, f.claimName(), f.Attributes.DriverName, f.Driver.Name)
	}
	return maps.Clone(f.Attributes.Parameters), nil
}

// InTreePlugin returns the name of the in-tree plugin that a CSI driver replaces, empty for none (csi-translation-lib).
func InTreePlugin(driver string) string { return translation.Plugin(driver) }

// migrates reports whether the class belongs to the in-tree plugin that the driver replaces.
func (f Facts) migrates() bool { return translation.Migrates(f.Class.Provisioner, f.Driver.Name) }

// translatedClass returns the class with CSI parameters and topologies, but the original provisioner. The result may be
// the class itself and must not be changed.
func (f Facts) translatedClass() (*storagev1.StorageClass, error) {
	class, err := translation.Class(f.Class, f.Driver.Name)
	if err != nil {
		return nil, refuse(ReasonClassUntranslatable,
			"StorageClass %q of in-tree plugin %q means nothing to CSI driver %q: %w; make a new class for the driver",
			f.Class.Name, f.Class.Provisioner, f.Driver.Name, err)
	}
	return class, nil
}

// inTreeForm returns the PV, which has annotations, in the form of the in-tree plugin, so that programs that know the
// plugin's volumes continue to know them. The PV controller's annotation migrated-to is set from the start, because
// until the PV controller sets it, no program handles the PV.
//
// Portworx' in-tree form has no field for a Secret. Kubelet, external-attacher and external-resizer, which translate it
// back, read the Secret of all their calls from two annotations, which the library does not write.
func inTreeForm(pv *v1.PersistentVolume, driver string) (*v1.PersistentVolume, error) {
	translated, err := csitranslation.New().TranslateCSIPVToInTree(pv)
	if err != nil {
		return nil, refuse(ReasonAnswerUntranslatable,
			"the volume %q of CSI driver %q has no translation to the in-tree plugin: %w", pv.Spec.CSI.VolumeHandle,
			driver, err)
	}
	translated.Annotations[volume.AnnMigratedTo] = driver
	if secret := pv.Spec.CSI.NodePublishSecretRef; secret != nil && translated.Spec.PortworxVolume != nil {
		translated.Annotations[plugins.OpenStorageAuthSecretNameKey] = secret.Name
		translated.Annotations[plugins.OpenStorageAuthSecretNamespaceKey] = secret.Namespace
	}
	return translated, nil
}
