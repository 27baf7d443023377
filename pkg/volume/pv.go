// Package volume reads PersistentVolumes for the controllers: the record PV, the owner of its volume, the finalizers
// and annotations that count, and the node that reaches it. Its functions are pure and leave all decisions to the
// engines.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package volume

import (
	"slices"
	"strings"
	"unique"

	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

const (
	// Finalizer holds a PV until its volume is deleted, and is the same that sig-storage-lib-external-provisioner adds
	// (KEP-2644, "PVDeletionProtectionFinalizer").
	Finalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	// CompanionFinalizer serves the same purpose beside an external-provisioner that removes Finalizer. Both count if no
	// program removes Finalizer.
	CompanionFinalizer = "csi-reclaimer.io/reclaim"

	// HoldAnnotation keeps the volume of a PV that carries it, with any policy, for the reason in its value.
	HoldAnnotation = "csi-reclaimer.io/hold"

	// TwinLabel marks a PV that volume-guard created so that kube-controller-manager deletes the volume of another PV,
	// whose UID is the value.
	TwinLabel = "csi-reclaimer.io/twin-of"
	// attacherFinalizerPrefix begins the finalizer that external-attacher adds to a PV when it attaches it for the first
	// time. The driver's name follows, with dashes for dots; a PV never has another driver's.
	attacherFinalizerPrefix = "external-attacher/"
	// MaxHoldReason bounds PV.HeldBecause, in bytes.
	MaxHoldReason = 200
	// maxAffinity bounds PV.Affinity, in bytes: far more than a driver writes.
	maxAffinity = 1024
)

// Annotations of a PersistentVolume that Kubernetes' own provisioners and controllers write.
const (
	// AnnProvisionedBy names the provisioner that created the PV (component-helpers/storage/volume,
	// AnnDynamicallyProvisioned).
	AnnProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// AnnMigratedTo names the CSI driver that took over from the in-tree plugin that provisioned the PV
	// (component-helpers/storage/volume, AnnMigratedTo).
	AnnMigratedTo = "pv.kubernetes.io/migrated-to"
	// AnnDeletionSecretName and AnnDeletionSecretNamespace name the Secret for DeleteVolume (external-provisioner).
	AnnDeletionSecretName      = "volume.kubernetes.io/provisioner-deletion-secret-name"
	AnnDeletionSecretNamespace = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
	// annStorageClass named a PV's class before spec.storageClassName existed; it still takes precedence.
	annStorageClass = v1.BetaStorageClassAnnotation
)

// Policy is a PV's reclaim policy, or the zero value if this package does not know it: then no volume is deleted and
// no protection is removed.
type Policy uint8

// The reclaim policies of core/v1.
const (
	PolicyUnknown Policy = iota
	PolicyDelete
	PolicyRetain
	PolicyRecycle
)

// Phase is a PV's phase, or the zero value if this package does not know it: then the PV is left alone.
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

// ClaimRef names the claim that a PV belongs to, or is to belong to.
type ClaimRef struct {
	Namespace, Name string
	// UID is empty if no claim was ever bound, or if an administrator cleared it to take the volume back.
	UID types.UID
}

// SecretRef names the Secret that the driver needs for a deletion, or none in its zero value.
type SecretRef struct {
	Namespace, Name string
}

// PV holds the fields of a PersistentVolume that decisions depend on. The zero value is a PV that is left alone.
type PV struct {
	Name            string
	UID             types.UID
	ResourceVersion string

	// Driver and Handle are spec.csi.driver and spec.csi.volumeHandle. For an in-tree volume with a CSI driver to migrate
	// to, they are the result of csi-translation-lib, and for all others empty.
	Driver, Handle string
	// ProvisionedBy and MigratedTo are the annotations pv.kubernetes.io/provisioned-by and pv.kubernetes.io/migrated-to.
	ProvisionedBy, MigratedTo string
	StorageClass              string
	// Affinity lists the node labels of the places where the volume can be used: "zone=a,rack=1;zone=b". It is empty if
	// the volume can be used everywhere, or if such labels cannot express its affinity.
	Affinity string
	Claim    ClaimRef

	// Fields of one byte stand together, because a cluster may have 100,000 PVs.

	Policy Policy
	Phase  Phase
	// InTree is true if the volume is one of an in-tree plugin.
	InTree bool
	// Terminating is true if the PV has a deletionTimestamp.
	Terminating bool
	// HasFinalizer and HasCompanionFinalizer report which of the two finalizers the PV has.
	HasFinalizer, HasCompanionFinalizer bool
	// WasAttached is true if external-attacher's finalizer of this driver is on the PV.
	WasAttached bool
	// Held is true if the annotation csi-reclaimer.io/hold exists.
	Held bool
	// Reach relates the volume to the deciding node, if each node decides on its own (Config.Node).
	Reach Reach
	// SecretKnown is true if both annotations volume.kubernetes.io/provisioner-deletion-secret-{name,namespace} exist, so
	// that DeletionSecret has their values; otherwise the StorageClass names the Secret.
	SecretKnown bool

	// TerminatingSince is the deletionTimestamp in seconds since 1970, 0 for none.
	TerminatingSince int64
	// HeldBecause is the value of the annotation csi-reclaimer.io/hold.
	HeldBecause    string
	DeletionSecret SecretRef

	// TwinOf is the UID of the PV whose volume this PV names a second time, as volume-guard created it, empty for all
	// others.
	TwinOf types.UID
}

// Of returns the record of a PersistentVolume, without keeping a reference to it.
func Of(o *v1.PersistentVolume) PV {
	pv := PV{
		Name:            o.Name,
		UID:             o.UID,
		ResourceVersion: o.ResourceVersion,
		ProvisionedBy:   o.Annotations[AnnProvisionedBy],
		MigratedTo:      o.Annotations[AnnMigratedTo],
		StorageClass:    storageClassOf(o),
		Affinity:        affinityOf(o),
		Policy:          policyOf(o.Spec.PersistentVolumeReclaimPolicy),
		Phase:           phaseOf(o.Status.Phase),
		Terminating:     o.DeletionTimestamp != nil,

		HasFinalizer:          slices.Contains(o.Finalizers, Finalizer),
		HasCompanionFinalizer: slices.Contains(o.Finalizers, CompanionFinalizer),

		DeletionSecret: SecretRef{
			Namespace: o.Annotations[AnnDeletionSecretNamespace],
			Name:      o.Annotations[AnnDeletionSecretName],
		},
		TwinOf: types.UID(o.Labels[TwinLabel]),
	}
	if o.DeletionTimestamp != nil {
		pv.TerminatingSince = o.DeletionTimestamp.Unix()
	}
	pv.HeldBecause, pv.Held = o.Annotations[HoldAnnotation]
	pv.HeldBecause = text.Truncate(pv.HeldBecause, MaxHoldReason)
	_, hasName := o.Annotations[AnnDeletionSecretName]
	_, hasNamespace := o.Annotations[AnnDeletionSecretNamespace]
	pv.SecretKnown = hasName && hasNamespace
	pv.WasAttached = slices.ContainsFunc(o.Finalizers, func(f string) bool {
		return strings.HasPrefix(f, attacherFinalizerPrefix)
	})
	if csi := o.Spec.CSI; csi != nil {
		pv.Driver, pv.Handle = csi.Driver, csi.VolumeHandle
	} else {
		pv.InTree = true
		pv.Driver, pv.Handle = translate(o)
	}
	if ref := o.Spec.ClaimRef; ref != nil {
		pv.Claim = ClaimRef{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	}
	return pv
}

// translate returns the CSI driver and handle of an in-tree volume, empty for none. A volume that cannot be translated
// has no handle, so no driver can be asked to delete it.
func translate(o *v1.PersistentVolume) (driver, handle string) {
	translator := csitranslation.New()
	if !translator.IsPVMigratable(o) {
		return "", ""
	}
	csi, err := translator.TranslateInTreePVToCSI(klog.Background(), o)
	if err != nil || csi.Spec.CSI == nil {
		return "", ""
	}
	return csi.Spec.CSI.Driver, csi.Spec.CSI.VolumeHandle
}

func storageClassOf(o *v1.PersistentVolume) string {
	if class, found := o.Annotations[annStorageClass]; found {
		return class
	}
	return o.Spec.StorageClassName
}

// affinityOf returns the affinity in the form in which provisioners write it, with one value for each key.
func affinityOf(o *v1.PersistentVolume) string {
	if o.Spec.NodeAffinity == nil || o.Spec.NodeAffinity.Required == nil {
		return ""
	}
	var terms []string
	for _, term := range o.Spec.NodeAffinity.Required.NodeSelectorTerms {
		if len(term.MatchFields) > 0 {
			return ""
		}
		var labels []string
		for _, e := range term.MatchExpressions {
			if e.Operator != v1.NodeSelectorOpIn || len(e.Values) != 1 {
				return ""
			}
			labels = append(labels, e.Key+"="+e.Values[0])
		}
		terms = append(terms, strings.Join(labels, ","))
	}
	if text := strings.Join(terms, ";"); len(text) <= maxAffinity {
		return text
	}
	return ""
}

// Segments returns the topology segments in Affinity.
func (pv PV) Segments() []map[string]string {
	var at []map[string]string
	for _, term := range strings.Split(pv.Affinity, ";") {
		labels := map[string]string{}
		for _, label := range strings.Split(term, ",") {
			if key, value, found := strings.Cut(label, "="); found {
				labels[key] = value
			}
		}
		if len(labels) > 0 {
			at = append(at, labels)
		}
	}
	return at
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

// Claimed reports whether the PV belongs to a claim. A claimRef without UID reserves the PV for a future claim, or is
// left by an administrator who takes the volume back.
func (pv PV) Claimed() bool { return pv.Claim.UID != "" }

// Provisioned reports whether a provisioner created the PV, as opposed to a person.
func (pv PV) Provisioned() bool { return pv.ProvisionedBy != "" }

// Released reports whether the PV controller has seen the end of the claim.
func (pv PV) Released() bool { return pv.Phase == PhaseReleased || pv.Phase == PhaseFailed }

// Deletable reports whether the PV's policy, phase and claimRef permit the deletion of its volume.
func (pv PV) Deletable() bool {
	return pv.Policy == PolicyDelete && pv.Released() && pv.Claimed()
}

// Keeps reports whether the PV keeps its volume from being deleted under another PV of the same volume: by its policy,
// phase, claimRef, or a hold.
func (pv PV) Keeps() bool { return pv.Held || !pv.Deletable() }

// HandleKey returns a key that is equal for volume handles that differ only in case. They count as one volume, because
// some drivers vary the case (Azure). If the case does distinguish two volumes, each is kept for the PVs of the other.
func HandleKey(handle string) string { return strings.ToLower(handle) }

// Intern makes the PV share its strings with all other PVs that use them, because most of the memory of many PVs would
// be such strings.
func (pv *PV) Intern() {
	for _, word := range []*string{
		&pv.Driver, &pv.ProvisionedBy, &pv.MigratedTo, &pv.StorageClass, &pv.Affinity, &pv.Claim.Namespace,
		&pv.DeletionSecret.Namespace, &pv.DeletionSecret.Name,
	} {
		*word = unique.Make(*word).Value()
	}
	// A provisioner's name for the PV ends with the claim's UID.
	if uid := string(pv.Claim.UID); strings.HasSuffix(pv.Name, uid) {
		pv.Claim.UID = types.UID(pv.Name[len(pv.Name)-len(uid):])
	}
}

// Owner returns the name of the driver that is responsible for the PV's volume, or of the in-tree plugin that
// provisioned it and is not migrated (kubernetes.io/...), empty for neither.
func (pv PV) Owner() string {
	for _, name := range []string{pv.MigratedTo, pv.ProvisionedBy, pv.Driver} {
		if pv.OwnedBy(name) {
			return name
		}
	}
	return ""
}

// OwnedBy reports whether the driver with this name is responsible for the PV's volume.
//
// A provisioned PV belongs to its provisioner, or to the driver that its in-tree plugin was migrated to, and a static
// PV to the driver that it names. The driver of an in-tree volume is not enough, because kube-controller-manager is
// responsible for the volume until the annotation migrated-to shows a migration. A twin belongs to the program that
// created it.
func (pv PV) OwnedBy(driver string) bool {
	switch {
	case driver == "" || pv.TwinOf != "":
		return false
	case pv.MigratedTo == driver:
		return true
	case pv.Provisioned():
		return pv.ProvisionedBy == driver
	default:
		return !pv.InTree && pv.Driver == driver
	}
}
