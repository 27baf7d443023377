package leaks

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// remediationAnnotation names the remediation for which a PV was created: "adopt" or "reclaim".
const remediationAnnotation = "csi-reclaimer.io/remedy"

// Remediation is a person's choice between keeping and deleting a suspect.
type Remediation string

const (
	// Adopt keeps the volume: its PV has policy Retain and is available to a claim, see PVOptions.Claim.
	Adopt Remediation = "adopt"
	// Reclaim deletes the volume, in the same way as the volumes of released PVs.
	Reclaim Remediation = "reclaim"
)

// PVOptions complete a report's data about a volume, and may be empty if the driver reports sizes.
type PVOptions struct {
	// Bytes is the volume's size, and 0 takes the report's size. A PV for Adopt must have a size.
	Bytes int64
	// StorageClass is the PV's class, which for Reclaim also selects the Secret of the deletion; empty means no class
	// and no Secret.
	StorageClass string
	// Claim is the claim that the PV of Adopt is reserved for, which may not exist yet: the PV controller binds the PV to
	// no other. Adopt needs it with a StorageClass. Reclaim ignores it.
	Claim types.NamespacedName
	// FSType and Attributes are passed to the driver's node service. They may be empty.
	FSType     string
	Attributes map[string]string
	// Block marks the volume as a raw block device instead of a filesystem.
	Block bool
}

// errSizeUnknown: neither the report nor the caller provides the volume's size.
var errSizeUnknown = errors.New("the driver does not report its size")

// errUnreserved: the PV controller would bind the PV to the next claim of its class, in any namespace.
var errUnreserved = errors.New("a PV with a StorageClass must be reserved for a claim, or the next claim of the " +
	"class in any namespace gets its data")

// AdoptPV returns the PV that makes a volume available again. A claim can bind to it, and its policy Retain keeps the
// volume even after that claim is gone. AdoptPV returns an error if the size is unknown, or if the PV has a class and
// is not reserved for a claim.
func AdoptPV(driver string, v Found, o PVOptions) (*v1.PersistentVolume, error) {
	pv := remediationPV(Adopt, driver, v, o)
	if size := pv.Spec.Capacity[v1.ResourceStorage]; size.IsZero() {
		return nil, fmt.Errorf("adopt volume %q: %w", shown(v.Handle), errSizeUnknown)
	}
	switch {
	case o.Claim.Namespace != "" && o.Claim.Name != "":
		pv.Spec.ClaimRef = &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
			Namespace: o.Claim.Namespace, Name: o.Claim.Name}
	case o.StorageClass != "":
		return nil, fmt.Errorf("adopt volume %q: %w", shown(v.Handle), errUnreserved)
	}
	return pv, nil
}

// reclaimedClaim is the alleged claim of a PV for Reclaim. A real claim of this name would have another UID.
const (
	reclaimedNamespace = metav1.NamespaceDefault
	reclaimedClaim     = "csi-reclaimer-leaks"
)

// ReclaimPV returns the PV by which a volume is deleted in the normal way. Its initial policy is Retain, and it looks
// as if it was provisioned for a claim that is gone, so the PV controller marks it Released and leaves the deletion
// to the program that deletes the driver's volumes. A change of its policy to Delete starts the deletion (see
// [Remediator]). The claim's UID belongs to no claim, because it is derived from driver and handle.
func ReclaimPV(driver string, v Found, o PVOptions) *v1.PersistentVolume {
	pv := remediationPV(Reclaim, driver, v, o)
	if size := pv.Spec.Capacity[v1.ResourceStorage]; size.IsZero() {
		pv.Spec.Capacity[v1.ResourceStorage] = resource.MustParse("1") // a PV must have a size, and nothing uses it
	}
	pv.Annotations[volume.AnnProvisionedBy] = driver
	if o.StorageClass == "" {
		pv.Annotations[volume.AnnDeletionSecretName], pv.Annotations[volume.AnnDeletionSecretNamespace] = "", ""
	}
	pv.Spec.ClaimRef = &v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: reclaimedNamespace, Name: reclaimedClaim,
		UID: uidOf(driver, v.Handle),
	}
	return pv
}

// remediationPV returns the common part of both kinds of PVs. Their names depend on driver and handle only, so that
// repeated runs create one PV.
func remediationPV(to Remediation, driver string, v Found, o PVOptions) *v1.PersistentVolume {
	bytes := v.Bytes
	if o.Bytes > 0 {
		bytes = o.Bytes
	}
	mode := v1.PersistentVolumeFilesystem
	if o.Block {
		mode = v1.PersistentVolumeBlock
	}
	return &v1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        string(to) + "-" + digest(driver, v.Handle),
			Annotations: map[string]string{remediationAnnotation: string(to)},
		},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(bytes, resource.BinarySI)},
			AccessModes:                   []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			StorageClassName:              o.StorageClass,
			VolumeMode:                    &mode,
			NodeAffinity:                  affinity(v.Topology),
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: v.Handle, FSType: o.FSType, VolumeAttributes: o.Attributes,
			}},
		},
	}
}

func affinity(places []map[string]string) *v1.VolumeNodeAffinity {
	var at []*csi.Topology
	for _, segments := range places {
		at = append(at, &csi.Topology{Segments: segments})
	}
	return topology.Affinity(at)
}

// digest returns the part of a PV's name that identifies the volume.
func digest(driver, handle string) string {
	sum := digestOf(driver, handle)
	return hex.EncodeToString(sum[:8])
}

// uidOf returns the UID of a claim that never existed.
func uidOf(driver, handle string) types.UID {
	sum := digestOf(driver, handle)
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[8:12], sum[12:14], sum[14:16], sum[16:18], sum[18:24]))
}

func digestOf(driver, handle string) [sha256.Size]byte {
	return sha256.Sum256([]byte(driver + "\x00" + handle))
}

// isRemediation reports whether the PV was created for the remediation, regardless of later changes, such as the
// claim of an adopted PV.
func isRemediation(made, want *v1.PersistentVolume) bool {
	pv, is := volume.Of(made), volume.Of(want)
	to := want.Annotations[remediationAnnotation]
	return made.Name == want.Name && made.Annotations[remediationAnnotation] == to && pv.Driver == is.Driver &&
		pv.Handle == is.Handle &&
		(to == string(Adopt) || pv.Claim == is.Claim && pv.ProvisionedBy == is.ProvisionedBy)
}

// isReserved reports whether the PV is for the claim that it is to be reserved for, if any.
func isReserved(made, want *v1.PersistentVolume) bool {
	is, of := made.Spec.ClaimRef, want.Spec.ClaimRef
	return of == nil || is != nil && is.Namespace == of.Namespace && is.Name == of.Name
}

// step is the next step of a remediation. Its zero value is refuse.
type step uint8

const (
	// refuse changes nothing and ends the remediation.
	refuse step = iota
	// createPV creates the PV with policy Retain, which keeps the volume.
	createPV
	// waitReleased waits until the PV controller has marked the PV Released.
	waitReleased
	// turnPolicy sets the PV's policy to Delete, which starts the deletion of the volume.
	turnPolicy
	// Finished: the PV has its final policy, so the remediation is complete.
	Finished
)

// String returns the step as it appears in logs and tests.
func (s step) String() string {
	return [...]string{"Refuse", "CreatePV", "WaitReleased", "TurnPolicy", "Finished"}[s]
}

// refusal is the reason of a step, especially of a refusal, as a clause for messages.
type refusal string

// Reasons of the steps that decideRemediation returns.
const (
	// whyUnknown: PVs or VolumeAttachments were not read.
	whyUnknown      refusal = "it is not known whether another object names it"
	whyNotReported  refusal = "the report has no volume of that name; write it as the report does"
	whyNotSuspected refusal = "it is no suspect"
	// whyReportOld: the report is older than maxReportAge, or has no complete leak check.
	whyReportOld refusal = "the report is too old; have a new one made"
	// whyNamed: a PV other than the remediation's own, or a VolumeAttachment, names the volume.
	whyNamed refusal = "an object names it by now"
	// whyAttached: a VolumeAttachment names a PV that does not exist.
	whyAttached refusal = "a volume of the driver is attached whose PV does not exist, and may be this one: end the pod " +
		"that uses it. Delete the VolumeAttachment only if no node has the volume"
	// whyNameTaken: another PV already has the name of the remediation's PV.
	whyNameTaken refusal = "the name of its PV is taken"
	// whyChanged: the remediation's PV exists in a state that none of its steps leaves.
	whyChanged refusal = "its PV exists already, and is claimed, terminating or otherwise changed: see kubectl reclaim " +
		"explain"
	whyUnreserved refusal = "its PV exists already, and is not reserved for this claim: delete the PV, whose policy " +
		"Retain keeps the volume, and have a new report made"
	// whyTakenBack: another client deleted the PV during its remediation.
	whyTakenBack refusal = "its PV was created, and has been deleted since"
	// whySuspected: the volume is suspected to be a leak, or already has the remediation's PV.
	whySuspected refusal = "nothing in the cluster accounts for it"
)

// maxReportAge is the maximum age of a report to act on.
const maxReportAge = 24 * time.Hour

// situation holds everything known about one remediation, for the pure function decideRemediation. The zero value of
// every field means that the fact is unknown, or prevents the remediation.
type situation struct {
	Remediation Remediation
	// Fresh: this is the first decision, before the PV is created. If the PV is deleted after that, the remediation is
	// withdrawn and does not create it again.
	Fresh bool
	// Reported and Suspected are the report's data about the volume, and Completed is the end of its leak check.
	Reported, Suspected bool
	Completed           time.Time
	// Others: a PV other than the remediation's own names the volume, or a VolumeAttachment does inline, according to
	// live lists of both.
	Others existence
	// Attached: a VolumeAttachment of the driver names a PV that does not exist, so its volume may be this one.
	Attached existence
	// Own is the result of a live read of the remediation's own PV.
	Own ownPV
}

// ownPV is the state of the remediation's PV in the API server.
type ownPV struct {
	// Read is true if the read succeeded, Found if a PV with this name exists, and Made if the remediation created it.
	// Reserved is true if it is for the requested claim, or none was requested.
	Read, Found, Made, Reserved bool
	PV                          volume.PV
}

// decideRemediation returns the next step and its reason. It is a pure function, which measures the report's age at
// now. The deletion of a volume starts only while no other object names the volume and no volume of an unknown PV is
// attached, and only after the PV controller itself has found that this PV's claim is gone.
func decideRemediation(c situation, now time.Time) (step, refusal) {
	next, why := c.next(now)
	if c.Remediation == Reclaim && c.Attached != absent && (next == createPV || next == turnPolicy) {
		return refuse, whyAttached
	}
	return next, why
}

// next returns the next step as far as attachments do not matter.
func (c situation) next(now time.Time) (step, refusal) {
	switch {
	case c.Others == present:
		return refuse, whyNamed
	case c.Others != absent || !c.Own.Read:
		return refuse, whyUnknown
	case c.Own.Found && !c.Own.Made:
		return refuse, whyNameTaken
	case c.Own.Found:
		return c.goOn() // its own PV accounts for the volume, so reports no longer have it
	case !c.Fresh:
		return refuse, whyTakenBack
	case !c.Reported:
		return refuse, whyNotReported
	case !c.Suspected:
		return refuse, whyNotSuspected
	case c.Completed.IsZero() || now.Sub(c.Completed) > maxReportAge:
		return refuse, whyReportOld
	}
	return createPV, whySuspected
}

// unreserved returns the reason to refuse a PV that is not for the requested claim. Only the deletion of a free PV with
// policy Retain takes the volume from no claim, and keeps it.
func unreserved(pv volume.PV) refusal {
	free := pv.Phase == volume.PhaseAvailable && pv.Claim == (volume.ClaimRef{})
	if free && pv.Policy == volume.PolicyRetain {
		return whyUnreserved
	}
	return whyChanged
}

// goOn sets the policy of a PV for Reclaim only after the PV is marked Released under policy Retain.
func (c situation) goOn() (step, refusal) {
	pv := c.Own.PV
	switch {
	case c.Remediation == Reclaim && pv.Policy == volume.PolicyDelete:
		return Finished, whySuspected // also if it is terminating, because its volume is deleted with it
	case pv.Terminating:
		return refuse, whyChanged
	case c.Remediation == Adopt && !c.Own.Reserved:
		return refuse, unreserved(pv)
	case c.Remediation == Adopt:
		return Finished, whySuspected
	case c.Remediation != Reclaim || pv.Policy != volume.PolicyRetain:
		return refuse, whyChanged
	case pv.Phase == volume.PhasePending || pv.Phase == volume.PhaseUnknown:
		return waitReleased, whySuspected
	case pv.Phase == volume.PhaseReleased:
		return turnPolicy, whySuspected
	}
	return refuse, whyChanged
}
