package explain

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// clusterIndex speeds up lookups in ClusterFacts, which may hold 100,000 PVs.
type clusterIndex struct {
	attachments map[string][]storagev1.VolumeAttachment // by PV name
	volumes     map[volumeID][]PV
	companions  map[string]bool // drivers with a PV that carries the companion's finalizer
	foreign     map[string]bool // provisioners with a PV that is not a CSI driver's
	named       map[string]int  // positions in ClusterFacts.PVs, by PV name
}

// volumeID is equal for PVs of one volume.
type volumeID struct {
	driver, handle string
	source         intree.Source
}

// volumesOf returns the volume that a PV names: as volume-guard identifies volumes of in-tree plugins, and as sidecars
// identify volumes, those of in-tree plugins by their translation. Either is zero if the PV names none.
func volumesOf(pv PV) (inTree, csi volumeID) {
	if pv.Tree != nil {
		inTree.source = pv.Tree.Source
	}
	if pv.Handle != "" {
		csi.driver, csi.handle = pv.Driver, volume.HandleKey(pv.Handle)
	}
	return inTree, csi
}

// indexed returns w with an index, which is built only once.
func (w ClusterFacts) indexed() ClusterFacts {
	if w.by != nil {
		return w
	}
	by := &clusterIndex{attachments: map[string][]storagev1.VolumeAttachment{}, volumes: map[volumeID][]PV{},
		companions: map[string]bool{}, foreign: map[string]bool{}, named: make(map[string]int, len(w.PVs.Value))}
	for _, a := range w.Attachments.Value {
		if name := a.Spec.Source.PersistentVolumeName; name != nil {
			by.attachments[*name] = append(by.attachments[*name], a)
		}
	}
	for i, pv := range w.PVs.Value {
		by.named[pv.Name] = i
		inTree, csi := volumesOf(pv)
		for _, v := range []volumeID{inTree, csi} {
			if v != (volumeID{}) {
				by.volumes[v] = append(by.volumes[v], pv)
			}
		}
		if pv.HasCompanionFinalizer {
			by.companions[pv.Owner()] = true
		}
		if pv.foreign() {
			by.foreign[pv.Owner()] = true
		}
	}
	w.by = by
	return w
}

func (w ClusterFacts) attachmentsOf(pv string) []storagev1.VolumeAttachment {
	return w.by.attachments[pv]
}

// siblingsOf returns the other PVs of a PV's volume, as the program that decides on the PV finds them.
func (w ClusterFacts) siblingsOf(pv PV) (siblings []PV) {
	inTree, v := volumesOf(pv)
	if owner := pv.Owner(); pv.Tree != nil && (owner == "" || InTree(owner)) {
		v = inTree
	}
	for _, other := range w.by.volumes[v] {
		if other.UID != pv.UID {
			siblings = append(siblings, other)
		}
	}
	return siblings
}

// detached returns the index without any VolumeAttachment.
func (i *clusterIndex) detached() *clusterIndex {
	return &clusterIndex{volumes: i.volumes, companions: i.companions, named: i.named}
}
