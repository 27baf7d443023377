package inflight

import (
	"fmt"
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
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

// FillOf returns the used part of the fullest Lease of each driver's log, where 1 is full, as Stats has it. It leaves
// out Leases that cannot be read.
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
// entries that are not settled, by shard and key, and the shards and entries that cannot be read. The entries share no
// memory with the Leases, but may share it with each other.
func Locate(leases []coordinationv1.Lease) ([]Located, []LocatedProblem) {
	var located []Located
	var problems []LocatedProblem
	topologies, known := map[string]view{}, map[string]*chunks{}
	for i := range leases {
		if number, _ := shardNumber(leases[i].Name); number == topologyNumber {
			topologies[leaseName(&leases[i])] = look(&leases[i], "")
		}
	}
	for i := range leases {
		lease, v := &leases[i], look(&leases[i], "")
		number, named := shardNumber(lease.Name)
		if v.err == nil && (!named || number >= v.meta.shards()) {
			v.err = fmt.Errorf("%w: its name has no number of a shard", ErrForeign)
		}
		if v.err != nil {
			problems = append(problems, LocatedProblem{
				Problem{Lease: leaseName(lease), Err: v.err, shards: v.shards()}, v.meta.Driver})
			continue
		}
		topology := topologyOf(leaseName(lease))
		if known[topology] == nil {
			known[topology] = newChunks(topology)
		}
		entries, unreadable := v.read(number, known[topology], topologies[topology])
		for _, problem := range unreadable {
			problems = append(problems, LocatedProblem{problem, v.meta.Driver})
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			if !v.settles(key) {
				located = append(located, Located{*entries[key].entry, Location{
					Lease:    types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name},
					LeaseUID: lease.UID, Annotation: key, Stored: entries[key].value, Driver: v.meta.Driver,
				}})
			}
		}
	}
	return located, problems
}
