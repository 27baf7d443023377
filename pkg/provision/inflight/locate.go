package inflight

import (
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Location is the place at which an entry is stored.
type Location struct {
	// Lease is the shard, and LeaseUID its UID.
	Lease    types.NamespacedName
	LeaseUID types.UID
	// Annotation is the key of the entry in the shard's annotations.
	Annotation string
	// Stored is the value of the annotation.
	Stored string
	// Driver is the CSI driver whose log it is.
	Driver string
}

// Settle returns the annotation of the Lease that settles the entry in its stored form. csi-reclaimer drops the entry
// before it calls the driver for it again, or when it takes the log over.
func (l Location) Settle() (annotation, value string) {
	return settleKey(l.Annotation), settleValue(l.Stored)
}

// Located is an entry with its location.
type Located struct {
	Entry
	Location
}

// Of reports whether the entry concerns the volume of the PV with this name, which is the volume's name or the result
// of ApartName.
func (l Located) Of(pv string) bool { return pv == l.Volume || volumeOfPV(pv) == l.Volume }

// LocatedProblem is a problem of a driver's log. Driver is empty if the shard does not name it.
type LocatedProblem struct {
	Problem
	Driver string
}

// FillOf returns the used part of the fullest Lease of each driver's log, where 1 is full, by stored bytes alone. It
// leaves out Leases that cannot be read.
func FillOf(leases []coordinationv1.Lease) map[string]float64 {
	fill := map[string]float64{}
	for i := range leases {
		if v := look(&leases[i], ""); v.err == nil {
			fill[v.meta.Driver] = max(fill[v.meta.Driver], float64(size(leases[i].Annotations))/float64(room))
		}
	}
	return fill
}

// Locate decodes the Leases of one or several logs, as listed by LabelLog, for read-only programs. It returns the
// entries that are not settled, by shard and key, and the shards and entries that cannot be read. Both are limited to
// the drivers that asked names, nil for all, and to Leases that do not name their driver.
//
// Anyone who may create a Lease may have written them. So an entry has of its requests only what programs show, and
// none of the topologies, whose chunks are not read.
func Locate(leases []coordinationv1.Lease, asked func(driver string) bool) ([]Located, []LocatedProblem) {
	var located []Located
	var problems []LocatedProblem
	topologies := map[string]view{}
	for i := range leases {
		if number, _ := shardNumber(leases[i].Name); number == topologyNumber {
			topologies[leaseName(&leases[i])] = look(&leases[i], "")
		}
	}
	for i := range leases {
		lease, v := &leases[i], look(&leases[i], "")
		if asked != nil && v.meta.Driver != "" && !asked(v.meta.Driver) {
			continue
		}
		number, named := shardNumber(lease.Name)
		if v.err == nil && (!named || number >= v.meta.shards()) {
			v.err = fmt.Errorf("%w: its name has no number of a shard", ErrForeign)
		}
		if v.err != nil {
			problems = append(problems, LocatedProblem{
				Problem{Lease: leaseName(lease), Err: v.err, shards: v.shards()}, v.meta.Driver})
			continue
		}
		add := func(key string, one coded) {
			if !v.settles(key) {
				located = append(located, Located{shown(one.entry), Location{
					Lease:    types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name},
					LeaseUID: lease.UID, Annotation: key, Stored: one.value, Driver: v.meta.Driver,
				}})
			}
		}
		topology, left := topologyOf(leaseName(lease)), maxContent
		for _, problem := range v.read(number, &chunks{lease: topology}, topologies[topology], &left, add) {
			problems = append(problems, LocatedProblem{problem, v.meta.Driver})
		}
	}
	return located, problems
}

// shown returns an entry with the part of its requests that programs show.
func shown(e *Entry) Entry {
	less := *e
	less.Requests = slices.Clone(e.Requests)
	for i := range less.Requests {
		r := &less.Requests[i]
		r.Create = &csi.CreateVolumeRequest{Name: r.Create.GetName(), CapacityRange: r.Create.GetCapacityRange(),
			Parameters: r.Create.GetParameters(), VolumeContentSource: r.Create.GetVolumeContentSource()}
		r.PV = &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: r.PV.Name},
			Spec: v1.PersistentVolumeSpec{StorageClassName: r.PV.Spec.StorageClassName}}
	}
	return less
}
