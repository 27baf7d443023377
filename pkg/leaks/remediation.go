package leaks

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Annotations of the PVs that are created for remediations.
const (
	// remediationAnnotation names the remediation of a PV: "adopt" or "reclaim".
	remediationAnnotation = "csi-reclaimer.io/remedy"

	annProvisionedBy   = "pv.kubernetes.io/provisioned-by"
	annSecretName      = "volume.kubernetes.io/provisioner-deletion-secret-name"
	annSecretNamespace = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
)

// Remediation is a person's choice between keeping and deleting a suspect.
type Remediation string

const (
	// Adopt keeps the volume: its PV has policy Retain and is available to a claim.
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
	// FSType and Attributes are passed to the driver's node service. They may be empty.
	FSType     string
	Attributes map[string]string
	// Block marks the volume as a raw block device instead of a filesystem.
	Block bool
}

// errSizeUnknown: neither the report nor the caller provides the volume's size.
var errSizeUnknown = errors.New("the driver does not report its size")

// AdoptPV returns the PV that makes a volume available again. A claim can bind to it, and its policy Retain keeps the
// volume even after that claim is gone. AdoptPV returns an error if the size is unknown.
func AdoptPV(driver string, v Found, o PVOptions) (*v1.PersistentVolume, error) {
	pv := remediationPV(Adopt, driver, v, o)
	if size := pv.Spec.Capacity[v1.ResourceStorage]; size.IsZero() {
		return nil, fmt.Errorf("adopt volume %q: %w", shown(v.Handle), errSizeUnknown)
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
	if pv.Spec.Capacity[v1.ResourceStorage] == (resource.Quantity{}) {
		pv.Spec.Capacity[v1.ResourceStorage] = resource.MustParse("1") // a PV must have a size, and nothing uses it
	}
	pv.Annotations[annProvisionedBy] = driver
	if o.StorageClass == "" {
		pv.Annotations[annSecretName], pv.Annotations[annSecretNamespace] = "", ""
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
