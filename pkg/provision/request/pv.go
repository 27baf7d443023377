package request

import (
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Annotations and attributes of a new PV.
const (
	// annModifySecretName and annModifySecretNamespace name the Secret for ControllerModifyVolume to external-resizer,
	// because a PV has no field for it (external-provisioner's annModifyControllerSecretRef{Name,Namespace}). They are
	// absent if no Secret is needed.
	annModifySecretName      = "volume.kubernetes.io/controller-modify-secret-name"
	annModifySecretNamespace = "volume.kubernetes.io/controller-modify-secret-namespace"
	// attributeIdentity is the volume attribute that identifies the process that created the volume.
	attributeIdentity = "storage.kubernetes.io/csiProvisionerIdentity"
)

// volume returns the PV without the driver's answer.
func (f Facts) volume(request *csi.CreateVolumeRequest, fsType string, s secrets) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: request.Name,
			// A PV that is created with the finalizer is protected from the start, without another write. Under Retain the
			// finalizer would only have to be removed again.
			Finalizers: finalizersFor(f.Class),
			Annotations: map[string]string{
				volume.AnnProvisionedBy: f.Class.Provisioner,
				// An empty value means that no Secret is needed; an absent one would mean unknown.
				volume.AnnDeletionSecretName: "", volume.AnnDeletionSecretNamespace: "",
			},
		},
		Spec: v1.PersistentVolumeSpec{
			ClaimRef: &v1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: f.Claim.Namespace, Name: f.Claim.Name, UID: f.Claim.UID, ResourceVersion: f.Claim.ResourceVersion,
			},
			AccessModes:                   f.accessModes(),
			MountOptions:                  slices.Clone(f.Class.MountOptions),
			StorageClassName:              f.Class.Name,
			PersistentVolumeReclaimPolicy: ptr.Deref(f.Class.ReclaimPolicy, ""),
			VolumeMode:                    clone(f.Claim.Spec.VolumeMode),
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver:                     f.Driver.Name,
				ReadOnly:                   f.Settings.readOnly(request.VolumeCapabilities),
				VolumeAttributes:           map[string]string{},
				ControllerPublishSecretRef: s.controllerPublish,
				NodeStageSecretRef:         s.nodeStage,
				NodePublishSecretRef:       s.nodePublish,
				ControllerExpandSecretRef:  s.controllerExpand,
				NodeExpandSecretRef:        s.nodeExpand,
			}},
		},
	}
	if s.provisioner != nil {
		pv.Annotations[volume.AnnDeletionSecretName] = s.provisioner.Name
		pv.Annotations[volume.AnnDeletionSecretNamespace] = s.provisioner.Namespace
	}
	if s.controllerModify != nil {
		pv.Annotations[annModifySecretName], pv.Annotations[annModifySecretNamespace] = s.controllerModify.Name,
			s.controllerModify.Namespace
	}
	if f.Settings.Identity != "" {
		pv.Spec.CSI.VolumeAttributes[attributeIdentity] = f.Settings.Identity
	}
	if !block(f.Claim.Spec.VolumeMode) {
		pv.Spec.CSI.FSType = fsType
	}
	if f.attributesClass() != "" {
		pv.Spec.VolumeAttributesClassName = clone(f.Claim.Spec.VolumeAttributesClassName)
	}
	return pv
}

func finalizersFor(class *storagev1.StorageClass) []string {
	if ptr.Deref(class.ReclaimPolicy, "") == v1.PersistentVolumeReclaimRetain {
		return nil
	}
	return []string{volume.Finalizer}
}

// PV returns the PersistentVolume to create for the driver's answer. An error means that no PersistentVolume may be
// created. With RemediationDiscard the volume has to be deleted first. With ReasonAnswerWithoutVolume the answer names
// no volume that could be deleted, and CreateVolume has to be called again.
func (o Plan) PV(answer *csi.CreateVolumeResponse) (*v1.PersistentVolume, error) {
	volume := answer.GetVolume()
	if err := o.check(volume); err != nil {
		return nil, err
	}
	pv := o.Template.DeepCopy()
	// 0 means that the driver does not know the size (CSI spec, "Volume").
	size := volume.CapacityBytes
	if size == 0 {
		size = o.Request.CapacityRange.RequiredBytes
	}
	pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(size, resource.BinarySI)}
	pv.Spec.CSI.VolumeHandle = volume.VolumeId
	if pv.Spec.CSI.VolumeAttributes == nil {
		pv.Spec.CSI.VolumeAttributes = map[string]string{} // a stored template has no empty map
	}
	maps.Copy(pv.Spec.CSI.VolumeAttributes, volume.VolumeContext)
	if o.Topology {
		pv.Spec.NodeAffinity = topology.Affinity(volume.AccessibleTopology)
	}
	if o.Migrated {
		return inTreeForm(pv, o.Driver)
	}
	return pv, nil
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	value := *p
	return &value
}

// maxHandle limits the part of a handle that messages repeat, in bytes. The CSI spec allows 128 ("Size Limits").
const maxHandle = 256

// check returns an error if the created volume does not match the request.
func (o Plan) check(volume *csi.Volume) error {
	handle := text.Truncate(volume.GetVolumeId(), maxHandle)
	asked := o.Request.GetCapacityRange().GetRequiredBytes()
	source := o.Request.GetVolumeContentSource()
	switch {
	case handle == "":
		return refuse(ReasonAnswerWithoutVolume,
			"CSI driver %q reported volume %q as created without an id; a volume may be left behind in the storage "+
				"system", o.Driver, o.Request.GetName())
	case volume.CapacityBytes < asked && volume.CapacityBytes != 0:
		return refuse(ReasonAnswerTooSmall,
			"CSI driver %q returned volume %q with %d bytes instead of %d; it is deleted again", o.Driver, handle,
			volume.CapacityBytes, asked)
	case source != nil && volume.ContentSource == nil:
		return refuse(ReasonAnswerFromNoSource,
			"CSI driver %q does not say that volume %q has the data of %s; it is deleted again", o.Driver, handle,
			describe(source))
	}
	// Kind and id of the source may differ: some drivers clone by a snapshot of their own, or return an id of their cloud.
	return nil
}

// describe names the source of a request, which is a snapshot or a volume.
func describe(source *csi.VolumeContentSource) string {
	if source.GetSnapshot() != nil {
		return "snapshot " + source.GetSnapshot().GetSnapshotId()
	}
	return "volume " + source.GetVolume().GetVolumeId()
}
