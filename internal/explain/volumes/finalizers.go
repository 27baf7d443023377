package volumes

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	attacherPrefix     = "external-attacher/"
	snapshotFinalizer  = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
	foregroundDeletion = metav1.FinalizerDeleteDependents
	orphanDependents   = metav1.FinalizerOrphanDependents
)

// finalizersOf returns the finalizers of an object, with their owners. driver manages the volume, and csiDriver is the
// name in its CSI source. plugin says why the in-tree plugin does nothing, empty if no reason is known.
func (w ClusterFacts) finalizersOf(o metav1.Object, driver, csiDriver, plugin string) []explain.Finalizer {
	all := make([]explain.Finalizer, 0, len(o.GetFinalizers()))
	for _, name := range o.GetFinalizers() {
		f := w.finalizer(name, driver, csiDriver, plugin)
		f.Name, f.AddedBy = name, explain.AddedBy(o, name)
		all = append(all, f)
	}
	return all
}

func (w ClusterFacts) finalizer(name, driver, csiDriver, plugin string) explain.Finalizer {
	switch name {
	case volume.Finalizer:
		return w.driverFinalizer(driver, "csi-reclaimer, or external-provisioner 5 and newer, of "+driver,
			"when the volume is deleted, or the policy keeps it")
	case volume.CompanionFinalizer:
		return w.driverFinalizer(driver, "csi-reclaimer of "+driver+", role companion",
			"when the volume is deleted, or the policy keeps it")
	case intree.Finalizer:
		return explain.Finalizer{Owner: "kube-controller-manager from 1.31 on, or volume-guard",
			When: "when the volume is deleted, or the policy keeps it", Stuck: plugin}
	case pv.Finalizer:
		return explain.Finalizer{Owner: "kube-controller-manager (pv-protection)",
			When: "when the PV is terminating and no claim is bound to it"}
	case pvc.Finalizer:
		return explain.Finalizer{Owner: "kube-controller-manager (pvc-protection)",
			When: "when the claim is terminating and no pod uses it"}
	case request.CloningFinalizer:
		return w.driverFinalizer(driver, "csi-reclaimer or external-provisioner of "+driver,
			"when no clone of the claim is being created")
	case objects.RunningFinalizer:
		f := explain.Finalizer{Owner: explain.VolumeGuard + " (pod-safety)",
			When: "when the claim is terminating and its pod is no longer held"}
		if runs, known := w.GuardRuns(); known && !runs {
			f.When += "; no replica of volume-guard holds its Lease"
		}
		return f
	case singlenode.Finalizer:
		return explain.Finalizer{Owner: explain.VolumeGuard + " (single-node)",
			When: "when the pod that has the lock of the claim cannot write any more"}
	case snapshotFinalizer:
		return explain.Finalizer{Owner: "snapshot-controller", When: "when no snapshot of the claim is being taken"}
	case foregroundDeletion, orphanDependents:
		return explain.Finalizer{Owner: "kube-controller-manager (garbage collector)",
			When: "when the objects that it owns are deleted or orphaned"}
	}
	if short, is := strings.CutPrefix(name, attacherPrefix); is {
		attacher := w.attacherOf(short, csiDriver)
		return w.driverFinalizer(attacher, "external-attacher of "+attacher,
			"when the PV is terminating and no VolumeAttachment names it")
	}
	return explain.Finalizer{}
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
func (w ClusterFacts) driverFinalizer(driver, owner, when string) explain.Finalizer {
	f := explain.Finalizer{Owner: owner, When: when}
	switch {
	case driver == "":
		f.Owner, f.When, f.Stuck = "", "", "no CSI driver manages this object"
	case explain.InTree(driver):
		f.Owner, f.When = explain.VolumeGuard,
			"when the volume, which is not a CSI driver's, is protected by another finalizer or deleted"
	case !explain.CSIName(driver), w.by.foreign[driver]:
		f.Owner = "provisioner " + driver
	case w.presenceOf(driver) == presenceGone:
		f.Stuck = fmt.Sprintf("driver %s is gone: no CSIDriver has its name, no node runs it, and no program holds a Lease "+
			"of it", driver)
	}
	return f
}

// removed reports whether Kubernetes of a minor version, 0 if unknown, lacks a former plugin. Both Ceph plugins existed
// up to 1.30; the others left before any version still in use.
func removed(plugin string, minor int) bool {
	return plugin != "" && (minor > 30 || plugin != explain.RBD && plugin != explain.CephFS)
}

func stuck(all []explain.Finalizer) (left []explain.Finalizer) {
	for _, f := range all {
		if f.Stuck != "" {
			left = append(left, f)
		}
	}
	return left
}

// removeCommand returns the command that removes a finalizer by hand.
func removeCommand(kind, name, finalizer string) string {
	return fmt.Sprintf(`kubectl patch %s %s -p '{"metadata":{"$deleteFromPrimitiveList/finalizers":["%s"]}}'`, kind,
		name, finalizer)
}
