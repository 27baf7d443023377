package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NoBackup is the label that keeps Velero from backing an object up. A restored NodeFence requests another fence, an
// agent's restored object fences by itself, and a restore over a Lease with the brake would remove the brake.
const NoBackup = "velero.io/exclude-from-backup"

// MetadataPatch is a write of annotations, owner references and finalizers of an object.
type MetadataPatch struct {
	// Name and UID, both required, identify the object. An object that was deleted and created again under the same name
	// is not changed.
	Name string
	UID  types.UID
	// ResourceVersion, if set, makes the write fail with ErrChanged if the object has changed since it was read.
	ResourceVersion string
	// Annotations are set to these values, and nil removes one; other annotations stay.
	Annotations map[string]*string
	// Owners, if not nil, replaces all owner references. It needs ResourceVersion, because later additions by other
	// programs would be lost.
	Owners *[]metav1.OwnerReference
	// Finalizers, if not nil, replaces all finalizers, under the same condition. Only a custom resource needs it, because
	// the API server accepts no strategic merge patch for it; for other objects see FinalizerPatch.
	Finalizers *[]string
}

// body is a JSON merge patch, because a strategic merge patch merges owner references by their UID, and needs a
// directive for each removal. The whole list of one resourceVersion has the same effect in one form.
func (p MetadataPatch) body() ([]byte, error) {
	metadata := map[string]any{"uid": p.UID}
	if p.ResourceVersion != "" {
		metadata["resourceVersion"] = p.ResourceVersion
	}
	if len(p.Annotations) > 0 {
		metadata["annotations"] = p.Annotations
	}
	if p.Owners != nil {
		metadata["ownerReferences"] = *p.Owners
	}
	if p.Finalizers != nil {
		metadata["finalizers"] = *p.Finalizers
	}
	replaces := p.Owners != nil || p.Finalizers != nil
	switch {
	case p.UID == "", len(p.Annotations) == 0 && !replaces:
		return nil, errors.New("want a UID, and annotations, owner references or finalizers")
	case replaces && p.ResourceVersion == "":
		return nil, errors.New("want a resourceVersion to replace owner references or finalizers")
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}

// PatchMetadata carries out p and returns the resulting object. Its errors are the same as for PatchFinalizers.
func PatchMetadata[T any](ctx context.Context, objects Patcher[T], p MetadataPatch) (after T, err error) {
	if after, err = patch(ctx, objects, p.Name, types.MergePatchType, p.body, ""); err != nil {
		return after, fmt.Errorf("patch metadata of %s %q: %w", noun(after), p.Name, err)
	}
	return after, nil
}
