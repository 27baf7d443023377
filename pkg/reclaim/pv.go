package reclaim

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Finalizer holds a PV until its volume is deleted. It is the one that
	// sig-storage-lib-external-provisioner puts on (KEP-2644,
	// "PVDeletionProtectionFinalizer").
	Finalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	// CompanionFinalizer serves the same purpose beside an external-provisioner that takes
	// Finalizer off. Where nobody does, both count.
	CompanionFinalizer = "csi-reclaimer.io/reclaim"

	// attacherFinalizerPrefix and the driver's name make the finalizer that
	// external-attacher puts on a PV when it attaches it for the first time.
	attacherFinalizerPrefix = "external-attacher/"
)

// Annotations of a PV that are read.
const (
	annProvisionedBy   = "pv.kubernetes.io/provisioned-by"
	annMigratedTo      = "pv.kubernetes.io/migrated-to"
	annSecretName      = "volume.kubernetes.io/provisioner-deletion-secret-name"
	annSecretNamespace = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
)

// Policy is a PV's reclaim policy. The zero value is one that this package does not know,
// under which nothing is deleted and no protection is taken off.
type Policy uint8

// The reclaim policies of core/v1.
const (
	PolicyUnknown Policy = iota
	PolicyDelete
	PolicyRetain
	PolicyRecycle
)

// Phase is a PV's phase. The zero value is one that this package does not know, in which
// nothing is done.
type Phase uint8

// The phases of core/v1.
const (
	PhaseUnknown Phase = iota
	PhasePending
	PhaseAvailable
	PhaseBound
	PhaseReleased
	PhaseFailed
)

// ClaimRef names the claim a PV belongs to.
type ClaimRef struct {
	Namespace, Name string
	// UID is empty when no claim was ever bound, or when an administrator cleared it to
	// take the volume back.
	UID types.UID
}

// SecretRef names the Secret that the storage system wants to see for a deletion. Its zero
// value is none.
type SecretRef struct {
	Namespace, Name string
}

// PV holds the fields of a PersistentVolume that decisions are made from. The zero value
// is a PV that nothing is done to.
type PV struct {
	Name            string
	UID             types.UID
	ResourceVersion string

	// Driver and Handle are spec.csi.driver and spec.csi.volumeHandle; empty for volumes
	// that are not CSI.
	Driver, Handle string
	// ProvisionedBy and MigratedTo are the annotations pv.kubernetes.io/provisioned-by
	// and pv.kubernetes.io/migrated-to.
	ProvisionedBy, MigratedTo string
	StorageClass              string

	Policy Policy
	Phase  Phase
	Claim  ClaimRef

	// Terminating: the PV has a deletionTimestamp.
	Terminating bool
	// HasFinalizer and HasCompanionFinalizer tell which of the two protect the PV.
	HasFinalizer, HasCompanionFinalizer bool
	// WasAttached: external-attacher's finalizer of this driver is on the PV.
	WasAttached bool

	// DeletionSecret is what the annotations volume.kubernetes.io/provisioner-deletion-
	// secret-{name,namespace} say.
	DeletionSecret SecretRef
}

// PVOf reads what is needed of a PersistentVolume, without keeping a reference to it.
func PVOf(o *v1.PersistentVolume) PV {
	pv := PV{
		Name:            o.Name,
		UID:             o.UID,
		ResourceVersion: o.ResourceVersion,
		ProvisionedBy:   o.Annotations[annProvisionedBy],
		MigratedTo:      o.Annotations[annMigratedTo],
		StorageClass:    o.Spec.StorageClassName,
		Policy:          policyOf(o.Spec.PersistentVolumeReclaimPolicy),
		Phase:           phaseOf(o.Status.Phase),
		Terminating:     o.DeletionTimestamp != nil,

		HasFinalizer:          slices.Contains(o.Finalizers, Finalizer),
		HasCompanionFinalizer: slices.Contains(o.Finalizers, CompanionFinalizer),

		DeletionSecret: SecretRef{
			Namespace: o.Annotations[annSecretNamespace],
			Name:      o.Annotations[annSecretName],
		},
	}
	if csi := o.Spec.CSI; csi != nil {
		pv.Driver, pv.Handle = csi.Driver, csi.VolumeHandle
		pv.WasAttached = slices.Contains(o.Finalizers, attacherFinalizerPrefix+csi.Driver)
	}
	if ref := o.Spec.ClaimRef; ref != nil {
		pv.Claim = ClaimRef{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	}
	return pv
}

func policyOf(p v1.PersistentVolumeReclaimPolicy) Policy {
	switch p {
	case v1.PersistentVolumeReclaimDelete:
		return PolicyDelete
	case v1.PersistentVolumeReclaimRetain:
		return PolicyRetain
	case v1.PersistentVolumeReclaimRecycle:
		return PolicyRecycle
	}
	return PolicyUnknown
}

func phaseOf(p v1.PersistentVolumePhase) Phase {
	switch p {
	case v1.VolumePending:
		return PhasePending
	case v1.VolumeAvailable:
		return PhaseAvailable
	case v1.VolumeBound:
		return PhaseBound
	case v1.VolumeReleased:
		return PhaseReleased
	case v1.VolumeFailed:
		return PhaseFailed
	}
	return PhaseUnknown
}

// Protected tells whether a finalizer of ours holds the PV.
func (pv PV) Protected() bool { return pv.HasFinalizer || pv.HasCompanionFinalizer }

// finalizers returns those of ours that are on the PV.
func (pv PV) finalizers() []string {
	var on []string
	if pv.HasFinalizer {
		on = append(on, Finalizer)
	}
	if pv.HasCompanionFinalizer {
		on = append(on, CompanionFinalizer)
	}
	return on
}

// claimed tells whether the PV belongs to a claim. A claimRef without UID is a PV reserved
// for a claim to come, or one that an administrator takes back.
func (pv PV) claimed() bool { return pv.Claim.UID != "" }

// dynamic tells whether a provisioner made the PV; otherwise a person did.
func (pv PV) dynamic() bool { return pv.ProvisionedBy != "" }

// released tells whether the PV controller has seen the end of the claim.
func (pv PV) released() bool { return pv.Phase == PhaseReleased || pv.Phase == PhaseFailed }

// deletable tells whether the PV itself asks for the end of its volume.
func (pv PV) deletable() bool {
	return pv.Policy == PolicyDelete && pv.released() && pv.claimed()
}

// GetObjectMeta lets a watch cache keep a PV.
func (pv *PV) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion}
}

// ownedBy tells whether the driver with this name answers for the PV's volume.
//
// A PV that was provisioned belongs to its provisioner, or to the driver its in-tree
// plugin was migrated to; a static one to the driver it names. An in-tree provisioner's
// name alone is not enough: kube-controller-manager answers for those.
func (pv PV) ownedBy(driver string) bool {
	switch {
	case driver == "":
		return false
	case pv.dynamic():
		return pv.ProvisionedBy == driver || pv.MigratedTo == driver
	default:
		return pv.Driver == driver || pv.MigratedTo == driver
	}
}
