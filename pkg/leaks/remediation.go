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

// Annotations of the PVs that are made for suspects.
const (
	// RemediationAnnotation says what a PV was made for: "adopt" or "reclaim".
	RemediationAnnotation = "csi-reclaimer.io/remedy"

	annProvisionedBy   = "pv.kubernetes.io/provisioned-by"
	annSecretName      = "volume.kubernetes.io/provisioner-deletion-secret-name"
	annSecretNamespace = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
)

// Remediation is what a person can have done about a suspect.
type Remediation string

const (
	// Adopt brings the volume back: a PV that keeps it, and that a claim can take.
	Adopt Remediation = "adopt"
	// Reclaim has the volume deleted, in the way in which volumes of released PVs are.
	Reclaim Remediation = "reclaim"
)

// PVOptions are what a report does not say about a volume. The zero value is usable where the driver says
// sizes.
type PVOptions struct {
	// Bytes is the volume's size; 0 is what the report says. A PV that is adopted must have one.
	Bytes int64
	// StorageClass is that of the PV. Of one that is to be reclaimed it names the Secret for the deletion;
	// empty: no class, and no Secret.
	StorageClass string
	// FSType and Attributes are what the driver's node service needs. Default nothing.
	FSType     string
	Attributes map[string]string
	// Block: it is a raw device. Default: a filesystem.
	Block bool
}

// errSizeUnknown: neither the report nor the caller says how large the volume is.
var errSizeUnknown = errors.New("the driver does not report its size")

// AdoptPV returns the PV that brings a volume back: it keeps the volume whatever becomes of its claim, and
// waits for one. An error means that its size is not known.
func AdoptPV(driver string, v Found, o PVOptions) (*v1.PersistentVolume, error) {
	pv := remediationPV(Adopt, driver, v, o)
	if size := pv.Spec.Capacity[v1.ResourceStorage]; size.IsZero() {
		return nil, fmt.Errorf("adopt volume %q: %w", shown(v.Handle), errSizeUnknown)
	}
	return pv, nil
}

// reclaimedClaim is the claim that the PV of a volume to be reclaimed is said to have had. Nobody makes one of
// that name; were there one, its UID would be another.
const (
	reclaimedNamespace = metav1.NamespaceDefault
	reclaimedClaim     = "csi-reclaimer-leaks"
)

// ReclaimPV returns the PV by which a volume is deleted in the normal way, as it is created: it still keeps the
// volume. It is one that was provisioned for a claim which is gone, so that the PV controller marks it
// Released and leaves the deletion to the program that deletes the driver's volumes. Changing its policy to Delete
// starts that (see [Remediator]). The claim's UID is that of no claim: it is derived from the volume's name.
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

// remediationPV is what the PVs of both remedies have in common. Their names hang on the volume alone, so that one
// is made for it however often it is asked for.
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
			Annotations: map[string]string{RemediationAnnotation: string(to)},
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

// digest is a name for a volume that objects may have.
func digest(driver, handle string) string {
	sum := digestOf(driver, handle)
	return hex.EncodeToString(sum[:8])
}

// uidOf is the UID of a claim that there never was.
func uidOf(driver, handle string) types.UID {
	sum := digestOf(driver, handle)
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", sum[8:12], sum[12:14], sum[14:16], sum[16:18], sum[18:24]))
}

func digestOf(driver, handle string) [sha256.Size]byte {
	return sha256.Sum256([]byte(driver + "\x00" + handle))
}

// isRemediation reports whether a PV is the one that was made for the remedy, whatever became of it since. One that
// was adopted may have a claim.
func isRemediation(made, want *v1.PersistentVolume) bool {
	pv, is := volume.Of(made), volume.Of(want)
	to := want.Annotations[RemediationAnnotation]
	return made.Name == want.Name && made.Annotations[RemediationAnnotation] == to && pv.Driver == is.Driver &&
		pv.Handle == is.Handle &&
		(to == string(Adopt) || pv.Claim == is.Claim && pv.ProvisionedBy == is.ProvisionedBy)
}
