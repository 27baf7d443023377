package objects

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// ClaimClass returns the name of a claim's StorageClass, empty for none. The deprecated annotation has precedence
// (component-helpers, GetPersistentVolumeClaimClass).
func ClaimClass(o *v1.PersistentVolumeClaim) string {
	if class, found := o.Annotations[v1.BetaStorageClassAnnotation]; found {
		return class
	}
	return ptr.Deref(o.Spec.StorageClassName, "")
}
