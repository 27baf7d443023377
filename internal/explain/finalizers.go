package explain

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/finalizers"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Finalizer is one that an object carries.
type Finalizer struct {
	Name string `json:"name"`
	// Owner is the program that removes it, empty if it is unknown.
	Owner string `json:"owner,omitempty"`
	// When is what the owner waits for.
	When string `json:"when,omitempty"`
	// Stuck is why no program removes it, empty where its owner runs.
	Stuck string `json:"stuck,omitempty"`
	// AddedBy is the field manager that added it, empty where the API server does not know it.
	AddedBy string `json:"addedBy,omitempty"`
}

// Finalizers that other programs add to PVs and claims.
const (
	attacherPrefix     = "external-attacher/"
	snapshotFinalizer  = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
	foregroundDeletion = metav1.FinalizerDeleteDependents
	orphanDependents   = metav1.FinalizerOrphanDependents
)

// finalizersOf returns the finalizers of an object, with their owners. driver is the one that answers for the
// volume, plugin why its in-tree plugin does nothing, empty if that is not known.
func (w ClusterFacts) finalizersOf(o metav1.Object, driver, csiDriver, plugin string) []Finalizer {
	all := make([]Finalizer, 0, len(o.GetFinalizers()))
	for _, name := range o.GetFinalizers() {
		f := w.finalizer(name, driver, csiDriver, plugin)
		f.Name, f.AddedBy = name, AddedBy(o, name)
		all = append(all, f)
	}
	return all
}

func (w ClusterFacts) finalizer(name, driver, csiDriver, plugin string) Finalizer {
	switch name {
	case volume.Finalizer:
		return w.driverFinalizer(driver, "csi-reclaimer, or external-provisioner 5 and newer, of "+driver,
			"when the volume is deleted, or the policy keeps it")
	case volume.CompanionFinalizer:
		return w.driverFinalizer(driver, "csi-reclaimer of "+driver+", role companion",
			"when the volume is deleted, or the policy keeps it")
	case intree.Finalizer:
		return Finalizer{Owner: "kube-controller-manager from 1.31 on, or volume-guard",
			When: "when the volume is deleted, or the policy keeps it", Stuck: plugin}
	case pv.Finalizer:
		return Finalizer{Owner: "kube-controller-manager (pv-protection)",
			When: "when the PV is terminating and no claim is bound to it"}
	case pvc.Finalizer:
		return Finalizer{Owner: "kube-controller-manager (pvc-protection)",
			When: "when the claim is terminating and no pod uses it"}
	case finalizers.Cloning:
		return w.driverFinalizer(driver, "csi-reclaimer or external-provisioner of "+driver,
			"when no clone of the claim is being created")
	case singlenode.Finalizer:
		return Finalizer{Owner: volumeGuard + " (single-node)",
			When: "when the pod that has the lock of the claim cannot write any more"}
	case snapshotFinalizer:
		return Finalizer{Owner: "snapshot-controller", When: "when no snapshot of the claim is being taken"}
	case foregroundDeletion, orphanDependents:
		return Finalizer{Owner: "kube-controller-manager (garbage collector)",
			When: "when the objects that it owns are deleted or orphaned"}
	}
	if short, is := strings.CutPrefix(name, attacherPrefix); is {
		attacher := w.attacherOf(short, csiDriver)
		return w.driverFinalizer(attacher, "external-attacher of "+attacher,
			"when the PV is terminating and no VolumeAttachment names it")
	}
	return Finalizer{}
}

// attacherOf returns the driver whose name external-attacher has turned into this one: the PV's own, or
// one that is installed. Otherwise the name stays as it is.
func (w ClusterFacts) attacherOf(short, csiDriver string) string {
	for _, names := range [][]string{{csiDriver}, w.Installed.Value, w.OnNodes.Value} {
		for _, name := range names {
			if sanitized(name) == short {
				return name
			}
		}
	}
	return short
}

// driverFinalizer is a finalizer that a sidecar of a driver removes.
func (w ClusterFacts) driverFinalizer(driver, owner, when string) Finalizer {
	f := Finalizer{Owner: owner, When: when}
	switch {
	case driver == "":
		f.Owner, f.When, f.Stuck = "", "", "no CSI driver manages this object"
	case strings.HasPrefix(driver, inTreePrefix):
		f.Owner, f.When = volumeGuard,
			"when the volume, which is not a CSI driver's, is protected by another finalizer or deleted"
	case w.presenceOf(driver) == presenceGone:
		f.Stuck = fmt.Sprintf("driver %s is gone: there is no CSIDriver of that name, no node runs it, and no program holds "+
			"a Lease of it", driver)
	}
	return f
}

// AddedBy returns the field manager of a finalizer, from managedFields.
func AddedBy(o metav1.Object, finalizer string) string {
	for _, entry := range o.GetManagedFields() {
		var set struct {
			Metadata struct {
				Finalizers map[string]json.RawMessage `json:"f:finalizers"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) != nil {
			continue
		}
		if _, holds := set.Metadata.Finalizers[`v:"`+finalizer+`"`]; holds {
			return entry.Manager
		}
	}
	return ""
}

// AnnotatedAt returns when the field manager of an annotation last wrote to the object, from managedFields; the zero
// time where the API server does not know it.
func AnnotatedAt(o metav1.Object, annotation string) time.Time {
	for _, entry := range o.GetManagedFields() {
		var set struct {
			Metadata struct {
				Annotations map[string]json.RawMessage `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || entry.Time == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) != nil {
			continue
		}
		if _, has := set.Metadata.Annotations["f:"+annotation]; has {
			return entry.Time.Time
		}
	}
	return time.Time{}
}

// removedPlugin reports which in-tree plugin a PV needs that Kubernetes no longer has, empty for none that is
// known. minor is that of the API server's version 1.x, 0 for not known. The list is of those that the API's own
// documentation calls no longer supported (core/v1, PersistentVolumeSource); ceph's two were there up to 1.30, the
// others left before any version that is still to be met.
func removedPlugin(o *v1.PersistentVolume, minor int) string {
	switch s := o.Spec.PersistentVolumeSource; {
	case s.RBD != nil && minor > 30:
		return "rbd"
	case s.CephFS != nil && minor > 30:
		return "cephfs"
	case s.Glusterfs != nil:
		return "glusterfs"
	case s.Flocker != nil:
		return "flocker"
	case s.Quobyte != nil:
		return "quobyte"
	case s.StorageOS != nil:
		return "storageos"
	case s.ScaleIO != nil:
		return "scaleIO"
	case s.PhotonPersistentDisk != nil:
		return "photonPersistentDisk"
	}
	return ""
}
