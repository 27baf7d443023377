package view

import (
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leaks"
)

// Facts is what was read of a whole cluster. The zero value of each field is not known.
type Facts struct {
	explain.StatusFacts
	// Driver is the only one that counts, empty for all.
	Driver string
	// Object returns the PV of that name, nil for one that is not in the list.
	Object func(name string) *v1.PersistentVolume
	// AllClaims are those of the cluster, and ClaimOf one of them, nil for one that is gone.
	AllClaims explain.Read[[]*v1.PersistentVolumeClaim]
	ClaimOf   func(namespace, name string) explain.Read[*v1.PersistentVolumeClaim]
	// Class returns a StorageClass, nil for one that is gone.
	Class func(name string) explain.Read[*storagev1.StorageClass]
	// Users returns the pods that name a claim.
	Users func(namespace, name string) explain.Read[[]pvc.Pod]
	// Pods are those that may have a row, and Nodes all of the cluster.
	Pods pods.ListFacts
	// Fences are all of the cluster.
	Fences nodes.ListFacts
	// Leaks are the reports of the leak checks.
	Leaks []leaks.Report
}
