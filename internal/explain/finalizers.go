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
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

type Finalizer struct {
	Name string `json:"name"`
	// Owner is the program that removes the finalizer, empty if it is unknown.
	Owner string `json:"owner,omitempty"`
	// When is the condition under which the owner removes it.
	When string `json:"when,omitempty"`
	// Stuck is the reason why no program removes it, empty if a program may.
	Stuck string `json:"stuck,omitempty"`
	// AddedBy is the field manager that added it, empty if managedFields do not show one.
	AddedBy string `json:"addedBy,omitempty"`
}

const (
	attacherPrefix     = "external-attacher/"
	snapshotFinalizer  = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
	foregroundDeletion = metav1.FinalizerDeleteDependents
	orphanDependents   = metav1.FinalizerOrphanDependents
)

// finalizersOf returns the finalizers of an object, with their owners. driver manages the volume, and csiDriver is the
// name in its CSI source. plugin says why the in-tree plugin does nothing, empty if no reason is known.
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
	case request.CloningFinalizer:
		return w.driverFinalizer(driver, "csi-reclaimer or external-provisioner of "+driver,
			"when no clone of the claim is being created")
	case objects.RunningFinalizer:
		f := Finalizer{Owner: VolumeGuard + " (pod-safety)",
			When: "when the claim is terminating and its pod is no longer held"}
		if runs, known := w.GuardRuns(); known && !runs {
			f.When += "; no replica of volume-guard holds its Lease"
		}
		return f
	case singlenode.Finalizer:
		return Finalizer{Owner: VolumeGuard + " (single-node)",
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

// attacherOf returns the driver whose sanitized name is short: csiDriver or an installed driver, and short itself if
// none matches.
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

// driverFinalizer describes a finalizer that a driver's sidecar removes.
func (w ClusterFacts) driverFinalizer(driver, owner, when string) Finalizer {
	f := Finalizer{Owner: owner, When: when}
	switch {
	case driver == "":
		f.Owner, f.When, f.Stuck = "", "", "no CSI driver manages this object"
	case InTree(driver):
		f.Owner, f.When = VolumeGuard,
			"when the volume, which is not a CSI driver's, is protected by another finalizer or deleted"
	case !CSIName(driver), w.by.foreign[driver]:
		f.Owner = "provisioner " + driver
	case w.presenceOf(driver) == presenceGone:
		f.Stuck = fmt.Sprintf("driver %s is gone: no CSIDriver has its name, no node runs it, and no program holds a Lease "+
			"of it", driver)
	}
	return f
}

// AddedBy returns the field manager of a finalizer according to managedFields, empty if they show none.
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

// AnnotatedAt returns the time at which the field manager of an annotation last wrote to the object, according to
// managedFields. It is the zero time if they show none.
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

const rbd, cephFS = "rbd", "cephfs"

// removed reports whether Kubernetes of a minor version, 0 if unknown, lacks a former plugin. Both Ceph plugins existed
// up to 1.30; the others left before any version still in use.
func removed(plugin string, minor int) bool {
	return plugin != "" && (minor > 30 || plugin != rbd && plugin != cephFS)
}

// formerPlugin returns the in-tree plugin that a PV needs, if Kubernetes has removed it in any version, and otherwise
// an empty string. The list follows the documentation of PersistentVolumeSource in core/v1 ("no longer supported").
func formerPlugin(o *v1.PersistentVolume) string {
	switch s := o.Spec.PersistentVolumeSource; {
	case s.RBD != nil:
		return rbd
	case s.CephFS != nil:
		return cephFS
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
