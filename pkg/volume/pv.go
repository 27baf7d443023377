// Package volume holds what the controllers read of a PersistentVolume: the record PV, who owns its volume, which
// finalizers and annotations count, and which node reaches it. Its functions are pure. It decides nothing: that is
// left to the engines.
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
	// Finalizer holds a PV until its volume is deleted. It is the one that
	// sig-storage-lib-external-provisioner adds (KEP-2644,
	// "PVDeletionProtectionFinalizer").
	Finalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	// CompanionFinalizer serves the same purpose beside an external-provisioner that removes
	// Finalizer. Where no program does, both count.
	CompanionFinalizer = "csi-reclaimer.io/reclaim"

	// HoldAnnotation on a PV keeps its volume, with any policy, for as long as the
	// annotation is there. Its value is the reason, for people.
	HoldAnnotation = "csi-reclaimer.io/hold"

	// TwinLabel marks a PV that volume-guard made to have kube-controller-manager delete the
	// volume of another one. Its value is the other's UID.
	TwinLabel = "csi-reclaimer.io/twin-of"
	// attacherFinalizerPrefix begins the finalizer that external-attacher adds to a PV when
	// it attaches it for the first time. What follows is the driver's name with dashes for
	// dots; a PV has no other driver's.
	attacherFinalizerPrefix = "external-attacher/"
	// MaxHoldReason bounds PV.HeldBecause, in bytes.
	MaxHoldReason = 200
	// maxAffinity bounds what is kept of a node affinity, in bytes: far more than a driver writes.
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
	// annStorageClass is how a PV named its class before it had a field; it still goes first.
	annStorageClass = v1.BetaStorageClassAnnotation
)

// Policy is a PV's reclaim policy. The zero value is one that this package does not know,
// under which nothing is deleted and no protection is removed.
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

	// Driver and Handle are spec.csi.driver and spec.csi.volumeHandle. For a volume of an
	// in-tree plugin that has a CSI driver to migrate to they are what csi-translation-lib
	// makes of it. Empty for all others.
	Driver, Handle string
	// ProvisionedBy and MigratedTo are the annotations pv.kubernetes.io/provisioned-by
	// and pv.kubernetes.io/migrated-to.
	ProvisionedBy, MigratedTo string
	StorageClass              string
	// Affinity is where the volume can be used, as labels of nodes: "zone=a,rack=1;zone=b". Empty:
	// everywhere, or in a way that such labels do not express.
	Affinity string
	Claim    ClaimRef

	// What is one byte stands together: a cluster may have 100,000 of these.

	Policy Policy
	Phase  Phase
	// InTree: the volume is one of an in-tree plugin.
	InTree bool
	// Terminating: the PV has a deletionTimestamp.
	Terminating bool
	// HasFinalizer and HasCompanionFinalizer say which of the two protect the PV.
	HasFinalizer, HasCompanionFinalizer bool
	// WasAttached: external-attacher's finalizer of this driver is on the PV.
	WasAttached bool
	// Held: the annotation csi-reclaimer.io/hold is there.
	Held bool
	// Reach says whether the volume is that of the node that decides, where each node decides on
	// its own (Config.Node).
	Reach Reach
	// SecretKnown: the annotations volume.kubernetes.io/provisioner-deletion-secret-
	// {name,namespace} are both there, and DeletionSecret is what they say. Otherwise the
	// StorageClass names the Secret.
	SecretKnown bool

	// TerminatingSince is the deletionTimestamp in seconds since 1970, 0 for none.
	TerminatingSince int64
	// HeldBecause is the value of the annotation csi-reclaimer.io/hold.
	HeldBecause    string
	DeletionSecret SecretRef

	// TwinOf is the UID of the PV whose volume this PV is a second name of, made by
	// volume-guard. Empty for all others.
	TwinOf types.UID
}

// Of reads what is needed of a PersistentVolume, without keeping a reference to it.
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
		return strings.HasPrefix(f,
			attacherFinalizerPrefix)
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

// translate returns the CSI name of an in-tree volume, empty where there is none. A volume
// that cannot be translated has no handle: nothing can be asked for it.
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

// affinityOf reads where a volume can be used, in the form in which provisioners write it: one value
// for each key.
func affinityOf(o *v1.PersistentVolume) string {
	if o.Spec.NodeAffinity == nil || o.Spec.NodeAffinity.Required == nil {
		return ""
	}
	var terms []string
	for _, term := range o.Spec.NodeAffinity.Required.NodeSelectorTerms {
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

// Segments returns what the affinity says.
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

// Claimed reports whether the PV belongs to a claim. A claimRef without UID is a PV reserved
// for a claim to come, or one that an administrator takes back.
func (pv PV) Claimed() bool { return pv.Claim.UID != "" }

// Provisioned reports whether a provisioner made the PV; otherwise a person did.
func (pv PV) Provisioned() bool { return pv.ProvisionedBy != "" }

// Released reports whether the PV controller has seen the end of the claim.
func (pv PV) Released() bool { return pv.Phase == PhaseReleased || pv.Phase == PhaseFailed }

// Deletable reports whether the PV itself asks for the end of its volume.
func (pv PV) Deletable() bool {
	return pv.Policy == PolicyDelete && pv.Released() && pv.Claimed()
}

// Intern has the PV share its words with all others that use them: in a cluster of many PVs
// most of what is kept of one would be such words.
func (pv *PV) Intern() {
	for _, word := range []*string{
		&pv.Driver, &pv.ProvisionedBy, &pv.MigratedTo, &pv.StorageClass, &pv.Affinity, &pv.Claim.Namespace,
		&pv.DeletionSecret.Namespace, &pv.DeletionSecret.Name,
	} {
		*word = unique.Make(*word).Value()
	}
	// The name that a provisioner gives ends with the claim's UID.
	if uid := string(pv.Claim.UID); strings.HasSuffix(pv.Name, uid) {
		pv.Claim.UID = types.UID(pv.Name[len(pv.Name)-len(uid):])
	}
}

// Owner returns the name of the driver that answers for the PV's volume, or of the in-tree plugin that
// provisioned it and is not migrated (kubernetes.io/...). Empty where no driver does.
func (pv PV) Owner() string {
	for _, name := range []string{pv.MigratedTo, pv.ProvisionedBy, pv.Driver} {
		if pv.OwnedBy(name) {
			return name
		}
	}
	return ""
}

// OwnedBy reports whether the driver with this name answers for the PV's volume.
//
// A PV that was provisioned belongs to its provisioner, or to the driver its in-tree
// plugin was migrated to; a static one to the driver it names. An in-tree provisioner's
// name alone is not enough: kube-controller-manager answers for those. Neither is a volume
// that could be migrated: only migrated-to shows that it was. A twin belongs to the program
// that created it.
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
