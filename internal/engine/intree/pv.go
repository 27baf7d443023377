package intree

import (
	"bytes"
	"slices"
	"strings"
	"unique"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	// Finalizer holds an in-tree PV until its volume is deleted. It is the finalizer that kube-controller-manager adds
	// from 1.31 on (storagehelpers.PVDeletionInTreeProtectionFinalizer).
	Finalizer = "kubernetes.io/pv-controller"
	// FieldManager is the field manager of all writes of package intree. It distinguishes our finalizer from the finalizer
	// of kube-controller-manager, also after a restart.
	FieldManager = "volume-guard"
	// twinOfAnnotation on a twin holds the name of the original PV; the label volume.TwinLabel holds its UID.
	twinOfAnnotation = "csi-reclaimer.io/twin-of"

	// inTree is the prefix of the name of every provisioner that is a plugin of kube-controller-manager;
	// modifyDeletionFinalizers in pv_controller_base.go recognizes them by it too.
	inTree = "kubernetes.io/"
	// noPlugin is the error of FindPluginByName and FindPluginBySpec in pkg/volume/plugins.go for a plugin that does not
	// exist, and noDeleter the error for one that deletes nothing; deleteVolumeOperation stores the error in
	// status.message.
	noPlugin  = "no volume plugin matched"
	noDeleter = "no deletable volume plugin matched"
	// maxMessage is the maximum length of a stored plugin message, in bytes.
	maxMessage = 512
)

// Writer indicates who added the finalizer to a PV; the zero value is unknown.
type Writer uint8

const (
	// WriterUnknown means that the PV has the finalizer, or may have it, but its writer is unknown.
	WriterUnknown Writer = iota
	// WriterNone means that the PV does not have the finalizer.
	WriterNone
	// WriterSelf means that volume-guard added it.
	WriterSelf
	// WriterOther means that another program added it, and so manages the PV.
	WriterOther
)

// PV holds the fields of a PersistentVolume that decisions are made from; no step is taken for the zero value.
type PV struct {
	Name            string
	UID             types.UID
	ResourceVersion string

	// ProvisionedBy and MigratedTo are the annotations pv.kubernetes.io/provisioned-by and pv.kubernetes.io/migrated-to.
	ProvisionedBy, MigratedTo string
	Claim                     volume.ClaimRef
	// Manager is the field manager that added the finalizer, if Writer is WriterOther.
	Manager string
	// Source identifies the volume.
	Source Source

	// TerminatingSince is the deletionTimestamp in seconds since 1970, 0 for none.
	TerminatingSince int64

	Policy volume.Policy
	Phase  volume.Phase
	// Writer indicates who added kubernetes.io/pv-controller.
	Writer Writer
	// Terminating is true if the PV has a deletionTimestamp.
	Terminating bool
	// HasFinalizer and HasCompanionFinalizer indicate which finalizers of the CSI side the PV has.
	HasFinalizer, HasCompanionFinalizer bool
	// Held is true if the PV has the annotation csi-reclaimer.io/hold.
	Held bool
	// PluginGone is true if the PV controller found no plugin for the volume.
	PluginGone bool

	// HeldBecause is the value of the annotation csi-reclaimer.io/hold.
	HeldBecause string
	// Message is status.message, which the PV controller sets on a PV in phase Failed.
	Message string

	// TwinOf and Original are the UID and the name of the original PV, from the label and annotation of a twin. They are
	// empty on other PVs, and unverified: see isTwinOf.
	TwinOf   types.UID
	Original string
}

// Of returns the needed fields of a PersistentVolume, without keeping a reference to it.
func Of(o *v1.PersistentVolume) PV {
	p := volume.Of(o)
	pv := PV{
		Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
		ProvisionedBy: p.ProvisionedBy, MigratedTo: p.MigratedTo, Claim: p.Claim, Source: sourceOf(o),
		TerminatingSince: p.TerminatingSince, Policy: p.Policy, Phase: p.Phase, Terminating: p.Terminating,
		HasFinalizer: p.HasFinalizer, HasCompanionFinalizer: p.HasCompanionFinalizer,
		Held: p.Held, HeldBecause: p.HeldBecause,
		TwinOf: p.TwinOf, Original: o.Annotations[twinOfAnnotation],
	}
	pv.Writer, pv.Manager = writerOf(o)
	if pv.Phase == volume.PhaseFailed {
		pv.Message = text.Truncate(o.Status.Message, maxMessage)
		pv.PluginGone = strings.Contains(o.Status.Message, noPlugin) || strings.Contains(o.Status.Message, noDeleter)
	}
	return pv
}

// Intern makes the PV share its strings with all other PVs that have the same.
func (pv *PV) Intern() {
	for _, word := range []*string{&pv.ProvisionedBy, &pv.MigratedTo, &pv.Manager, &pv.Claim.Namespace} {
		*word = unique.Make(*word).Value()
	}
}

// Field managers that the API server records for writes of unknown origin (apimachinery, util/managedfields:
// NewSkipNonAppliedManager, NewCapManagersManager).
const (
	beforeApply    = "before-first-apply"
	ancientChanges = "ancient-changes"
)

// writerOf returns the writer of the finalizer according to managedFields, where the API server records who added each
// entry of the list. A later write of the same entry does not count.
func writerOf(o *v1.PersistentVolume) (w Writer, manager string) {
	if !slices.Contains(o.Finalizers, Finalizer) {
		return WriterNone, ""
	}
	for i := range o.ManagedFields {
		entry := &o.ManagedFields[i]
		switch {
		case !holdsFinalizer(entry.FieldsV1):
		case entry.Manager == FieldManager:
			return WriterSelf, ""
		case entry.Manager != beforeApply && entry.Manager != ancientChanges:
			w, manager = WriterOther, entry.Manager
		}
	}
	return w, manager
}

// holdsFinalizer reports whether a set of fields contains the finalizer. The search for its name saves the parsing of
// most sets.
func holdsFinalizer(fields *metav1.FieldsV1) bool {
	return bytes.Contains(fields.GetRawBytes(), []byte(Finalizer)) &&
		objects.HasField(fields, "f:metadata", "f:finalizers", `v:"`+Finalizer+`"`)
}

// Provisioned reports whether an in-tree plugin created the volume. Only such PVs get the finalizer, as in
// modifyDeletionFinalizers.
func (pv PV) Provisioned() bool {
	return pv.TwinOf == "" && pv.Source.Known() && strings.HasPrefix(pv.ProvisionedBy, inTree)
}

// Claimed reports whether the PV belongs to a claim. If the claimRef has no UID, an administrator is taking the PV
// back.
func (pv PV) Claimed() bool { return pv.Claim.UID != "" }

// released reports whether the PV controller has seen the end of the claim.
func (pv PV) released() bool {
	return pv.Phase == volume.PhaseReleased || pv.Phase == volume.PhaseFailed
}

// deletable reports whether the policy and phase of the PV permit the deletion of its volume.
func (pv PV) deletable() bool {
	return pv.Policy == volume.PolicyDelete && pv.released() && pv.Claimed()
}

// keepsVolume reports whether the policy is known to keep the volume.
func (pv PV) keepsVolume() bool {
	return pv.Policy == volume.PolicyRetain || pv.Policy == volume.PolicyRecycle
}

// csiFinalizers returns the finalizers of the CSI side that the PV has. No program of that side removes them from a PV
// that is not migrated.
func (pv PV) csiFinalizers() []string {
	var on []string
	if pv.HasFinalizer {
		on = append(on, volume.Finalizer)
	}
	if pv.HasCompanionFinalizer {
		on = append(on, volume.CompanionFinalizer)
	}
	return on
}
