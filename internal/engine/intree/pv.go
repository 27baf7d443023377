package intree

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unique"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	// Finalizer holds an in-tree PV until its volume is deleted. It is the one that kube-controller-manager adds from
	// 1.31 on (storagehelpers.PVDeletionInTreeProtectionFinalizer).
	Finalizer = "kubernetes.io/pv-controller"
	// FieldManager is the name under which package intree writes. It distinguishes a finalizer of ours from one that
	// kube-controller-manager added, also after a restart.
	FieldManager = "volume-guard"
	// twinOfAnnotation on a twin is the name of the PV whose volume it is a second name of; the label volume.TwinLabel
	// has the UID.
	twinOfAnnotation = "csi-reclaimer.io/twin-of"

	// inTree begins the name of every provisioner that is a plugin of kube-controller-manager;
	// modifyDeletionFinalizers in pv_controller_base.go recognizes them by it too.
	inTree = "kubernetes.io/"
	// noPlugin is what FindPluginByName and FindPluginBySpec in pkg/volume/plugins.go return for a plugin
	// that does not exist, and noDeleter for one that deletes nothing; deleteVolumeOperation stores
	// it in status.message.
	noPlugin  = "no volume plugin matched"
	noDeleter = "no deletable volume plugin matched"
	// maxMessage bounds what is kept of a plugin's message, in bytes.
	maxMessage = 512
)

// Writer is who added the finalizer to a PV. The zero value is not known.
type Writer uint8

const (
	// WriterUnknown: the PV has the finalizer, or may have it, and it is not known who added it.
	WriterUnknown Writer = iota
	// WriterNone: the PV does not have the finalizer.
	WriterNone
	// WriterSelf: volume-guard added it.
	WriterSelf
	// WriterOther: another program added it, which then manages the PV.
	WriterOther
)

// PV holds the fields of a PersistentVolume that decisions are made from. The zero value is a
// PV that nothing is done to.
type PV struct {
	Name            string
	UID             types.UID
	ResourceVersion string

	// ProvisionedBy and MigratedTo are the annotations pv.kubernetes.io/provisioned-by and
	// pv.kubernetes.io/migrated-to.
	ProvisionedBy, MigratedTo string
	Claim                     volume.ClaimRef
	// Manager is the field manager that added the finalizer, where Writer is WriterOther.
	Manager string
	// Source identifies the volume.
	Source Source

	// TerminatingSince is the deletionTimestamp in seconds since 1970, 0 for none.
	TerminatingSince int64

	Policy volume.Policy
	Phase  volume.Phase
	// Writer is who added kubernetes.io/pv-controller.
	Writer Writer
	// Terminating: the PV has a deletionTimestamp.
	Terminating bool
	// HasFinalizer and HasCompanionFinalizer: the PV has these finalizers of the CSI side.
	HasFinalizer, HasCompanionFinalizer bool
	// Held: the PV has the annotation csi-reclaimer.io/hold.
	Held bool
	// PluginGone: the PV controller found no plugin for the volume.
	PluginGone bool

	// HeldBecause is the value of the annotation csi-reclaimer.io/hold.
	HeldBecause string
	// Message is status.message, which the PV controller sets on a PV in phase Failed.
	Message string

	// TwinOf and Original are the UID and the name of the PV that the label and annotation of a twin name, empty without.
	// Whether that is true: see isTwinOf.
	TwinOf   types.UID
	Original string
}

// Of reads what is needed of a PersistentVolume, without keeping a reference to it.
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

// Intern has the PV share its strings with all others that have the same.
func (pv *PV) Intern() {
	for _, word := range []*string{&pv.ProvisionedBy, &pv.MigratedTo, &pv.Manager, &pv.Claim.Namespace} {
		*word = unique.Make(*word).Value()
	}
}

// Field managers under which the API server keeps what others wrote, where it does not know who (apimachinery,
// util/managedfields: NewSkipNonAppliedManager, NewCapManagersManager).
const (
	beforeApply    = "before-first-apply"
	ancientChanges = "ancient-changes"
)

// writerOf returns who added the finalizer according to managedFields. The API server keeps there who added each entry
// of the list; a later write of the same entry does not count.
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

// holdsFinalizer reports whether a set of fields holds the finalizer. In it an entry of a list of strings is a field
// "v:" and the string as JSON.
func holdsFinalizer(fields *metav1.FieldsV1) bool {
	if !bytes.Contains(fields.GetRawBytes(), []byte(Finalizer)) {
		return false
	}
	var set struct {
		Metadata struct {
			Finalizers map[string]json.RawMessage `json:"f:finalizers"`
		} `json:"f:metadata"`
	}
	if json.Unmarshal(fields.GetRawBytes(), &set) != nil {
		return false
	}
	_, holds := set.Metadata.Finalizers[`v:"`+Finalizer+`"`]
	return holds
}

// Provisioned reports whether an in-tree plugin created the volume; only those get the finalizer, as in
// modifyDeletionFinalizers.
func (pv PV) Provisioned() bool {
	return pv.TwinOf == "" && pv.Source.Known() && strings.HasPrefix(pv.ProvisionedBy, inTree)
}

// Claimed reports whether the PV belongs to a claim. A claimRef without UID is a PV that an administrator takes back.
func (pv PV) Claimed() bool { return pv.Claim.UID != "" }

// released reports whether the PV controller has seen the end of the claim.
func (pv PV) released() bool {
	return pv.Phase == volume.PhaseReleased || pv.Phase == volume.PhaseFailed
}

// deletable reports whether the policy and phase of the PV permit the deletion of its volume.
func (pv PV) deletable() bool {
	return pv.Policy == volume.PolicyDelete && pv.released() && pv.Claimed()
}

// otherActs reports whether a program that manages the finalizer would act on the PV: add the finalizer, or delete the
// volume. One that failed to delete it tries again.
func (pv PV) otherActs() bool {
	switch {
	case pv.MigratedTo != "" || pv.Policy != volume.PolicyDelete:
		return false
	case !pv.Terminating:
		return pv.Writer == WriterNone
	}
	return pv.Writer != WriterNone && pv.Phase == volume.PhaseReleased && pv.Claimed()
}

// csiFinalizers returns the finalizers of the CSI side that the PV has. On a PV that is not migrated no program
// of that side removes them.
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
