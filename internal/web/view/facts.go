package view

import (
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
)

// Facts holds the results of all reads about a whole cluster. The zero value of each field is unknown.
type Facts struct {
	volumes.StatusFacts
	// Driver limits the rows to one driver; empty means all.
	Driver string
	// Object returns the PV of this name, nil if the list lacks it.
	Object func(name string) *v1.PersistentVolume
	// AllClaims holds all claims of the cluster. ClaimOf returns one of them, with a nil Value if it is gone.
	AllClaims explain.Read[[]*v1.PersistentVolumeClaim]
	ClaimOf   func(namespace, name string) explain.Read[*v1.PersistentVolumeClaim]
	// Class returns a StorageClass, with a nil Value if it is gone.
	Class func(name string) explain.Read[*storagev1.StorageClass]
	Users func(namespace, name string) explain.Read[[]pvc.Pod]
	// Pods holds the pods that may have a row, and all Nodes of the cluster.
	Pods   pods.ListFacts
	Fences nodes.ListFacts
	// Locks holds the facts about the locks of claims; nil shows none.
	Locks *locks.Facts
	Leaks []leaks.Report
}
