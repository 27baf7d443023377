package explain

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
)

// clusterIndex speeds up lookups in ClusterFacts, which may hold 100,000 PVs.
type clusterIndex struct {
	attachments map[string][]storagev1.VolumeAttachment // by PV name
	volumes     map[volumeID][]PV
	companions  map[string]bool // drivers with a PV that carries the companion's finalizer
	named       map[string]int  // positions in ClusterFacts.PVs, by PV name
}

// volumeID is equal for PVs of one volume.
type volumeID struct {
	driver, handle string
	source         intree.Source
}

// volumeOf returns the volume that a PV names. known is false if the PV names none.
func volumeOf(pv PV) (v volumeID, known bool) {
	if pv.Tree != nil {
		return volumeID{source: pv.Tree.Source}, pv.Tree.Source.Known()
	}
	return volumeID{driver: pv.Driver, handle: pv.Handle}, pv.Handle != ""
}

// indexed returns w with an index, which is built only once.
func (w ClusterFacts) indexed() ClusterFacts {
	if w.by != nil {
		return w
	}
	by := &clusterIndex{attachments: map[string][]storagev1.VolumeAttachment{}, volumes: map[volumeID][]PV{},
		companions: map[string]bool{}, named: make(map[string]int, len(w.PVs.Value))}
	for _, a := range w.Attachments.Value {
		if name := a.Spec.Source.PersistentVolumeName; name != nil {
			by.attachments[*name] = append(by.attachments[*name], a)
		}
	}
	for i, pv := range w.PVs.Value {
		by.named[pv.Name] = i
		if v, known := volumeOf(pv); known {
			by.volumes[v] = append(by.volumes[v], pv)
		}
		if pv.HasCompanionFinalizer {
			by.companions[pv.Owner()] = true
		}
	}
	w.by = by
	return w
}

func (w ClusterFacts) attachmentsOf(pv string) []storagev1.VolumeAttachment {
	return w.by.attachments[pv]
}

func (w ClusterFacts) siblingsOf(pv PV) (siblings []PV) {
	v, known := volumeOf(pv)
	if !known {
		return nil
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
