package inflight

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Location is where an entry is stored.
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

// Settle returns the annotation of the Lease that settles the entry as it is stored: csi-reclaimer drops the entry
// before it calls the driver for it again, or when it takes the log over.
func (l Location) Settle() (annotation, value string) {
	return settleKey(l.Annotation), settleValue(l.Stored)
}

// Located is an entry with its location.
type Located struct {
	Entry
	Location
}

// Of returns whether the entry is about the volume of a PV of this name: it has the volume's name, or the one of
// ApartName.
func (l Located) Of(pv string) bool { return pv == l.Volume || volumeOfPV(pv) == l.Volume }

// LocatedProblem is a problem of a driver's log. Driver is empty where the shard does not name it.
type LocatedProblem struct {
	Problem
	Driver string
}

// Locate is Decode for programs that also name the location of each entry. It returns the entries that are not settled,
// by shard and key, and what cannot be read.
func Locate(leases []coordinationv1.Lease) ([]Located, []LocatedProblem) {
	var located []Located
	var problems []LocatedProblem
	for i := range leases {
		lease, driver := &leases[i], look(&leases[i], "").meta.Driver
		entries, unreadable := Decode(leases[i : i+1])
		for _, problem := range unreadable {
			problems = append(problems, LocatedProblem{problem, driver})
		}
		for _, e := range entries {
			located = append(located, Located{e, Location{
				Lease:      types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name},
				LeaseUID:   lease.UID,
				Annotation: annotationKey(e.Volume), Stored: lease.Annotations[annotationKey(e.Volume)], Driver: driver,
			}})
		}
	}
	return located, problems
}
