package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

var (
	// ErrGone means that the object with that UID no longer exists.
	ErrGone = errors.New("object is gone")
	// ErrChanged means that the object has changed since the write was decided, so the caller must decide again.
	ErrChanged = errors.New("object changed")
	// ErrUndone means that an admission policy or webhook undid the write within the request.
	ErrUndone = errors.New("the API server accepted the change and undid it: look for an admission policy or " +
		"webhook that does")
)

// FinalizerPatch is a write to an object's list of finalizers that leaves foreign entries unchanged and has the same
// size for lists of any length.
type FinalizerPatch struct {
	// Name and UID, both required, identify the object. An object that was deleted and created again under the same name
	// is not changed.
	Name string
	UID  types.UID
	// ResourceVersion, if set, makes the write fail with ErrChanged if the object has changed since it was read.
	ResourceVersion string
	// Add and Remove are the finalizers to add and remove in one write, of which at least one is set.
	Add, Remove []string
	// Annotations are set to these values in the same write, and nil removes one; other annotations stay.
	Annotations map[string]*string
	// FieldManager, if set, is the field manager of the write, by default the program's name.
	FieldManager string
}

func (p FinalizerPatch) body() ([]byte, error) {
	if p.UID == "" || len(p.Add)+len(p.Remove) == 0 {
		return nil, errors.New("want a UID, and finalizers to add or to drop")
	}
	metadata := map[string]any{"uid": p.UID}
	if p.ResourceVersion != "" {
		metadata["resourceVersion"] = p.ResourceVersion
	}
	if len(p.Annotations) > 0 {
		metadata["annotations"] = p.Annotations
	}
	if len(p.Add) > 0 {
		metadata["finalizers"] = p.Add
	}
	if len(p.Remove) > 0 {
		// A directive of strategic merge patch, which removes these entries at any position.
		metadata["$deleteFromPrimitiveList/finalizers"] = p.Remove
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}

// Patcher is the typed client of one kind of object, such as corev1.PodInterface, where T is the pointer to the kind.
type Patcher[T any] interface {
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, options metav1.PatchOptions,
		subresources ...string) (T, error)
}

// PatchFinalizers carries out p and returns the resulting object, also with ErrUndone.
//
// The API server's answers are classified by their meaning, not by their code: ErrGone (404 for this name, or another
// UID under the name), ErrChanged (409, or the object became terminating so that no finalizer can be added), and
// ErrUndone (a success, after which the object lacks an added finalizer or has a removed one). After any other error,
// the write may have happened.
func PatchFinalizers[T metav1.Object](ctx context.Context, objects Patcher[T], p FinalizerPatch) (after T, err error) {
	after, err = patch(ctx, objects, p.Name, types.StrategicMergePatchType, p.body, p.FieldManager)
	if err == nil && p.undone(after.GetFinalizers()) {
		err = fmt.Errorf("%w: it has %q", ErrUndone, after.GetFinalizers())
	}
	if err != nil {
		return after, fmt.Errorf("patch finalizers of %s %q: %w", noun(after), p.Name, err)
	}
	return after, nil
}

func (p FinalizerPatch) undone(after []string) bool {
	has := func(f string) bool { return slices.Contains(after, f) }
	lacks := func(f string) bool { return !has(f) }
	return slices.ContainsFunc(p.Remove, has) || slices.ContainsFunc(p.Add, lacks)
}

// patch sends the body of a patch. It returns the zero value with an error, which Meaning has classified.
func patch[T any](ctx context.Context, objects Patcher[T], name string, kind types.PatchType,
	body func() ([]byte, error), manager string, subresources ...string) (after T, err error) {
	data, err := body()
	if err == nil {
		after, err = objects.Patch(ctx, name, kind, data, metav1.PatchOptions{FieldManager: manager}, subresources...)
	}
	if err != nil {
		return *new(T), Meaning(err, name)
	}
	return after, nil
}

// noun returns the name of an object's kind for errors.
func noun(object any) string {
	switch object.(type) {
	case *v1.PersistentVolume:
		return "PV"
	case *v1.PersistentVolumeClaim:
		return "claim"
	case *v1.Pod:
		return "pod"
	case *appsv1.StatefulSet:
		return "StatefulSet"
	}
	return "object"
}

// Meaning classifies the API server's answer to a write to the object of this name that is bound to a UID or a
// resourceVersion, like PatchFinalizers, and returns nil for nil.
func Meaning(err error, name string) error {
	switch {
	case apierrors.IsInvalid(err) && concerns(err, "metadata.uid"):
		return fmt.Errorf("%w: %w", ErrGone, err)
	case apierrors.IsInvalid(err) && concerns(err, "metadata.finalizers"):
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return meaningOfDeletion(err, name)
}

// meaningOfDeletion classifies the API server's answers to a deletion with preconditions, where 422 proves nothing.
func meaningOfDeletion(err error, name string) error {
	switch _, absent := notFound(err, name); {
	case absent:
		return fmt.Errorf("%w: %w", ErrGone, err)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

// PolicyPatch sets the reclaim policy of a PV.
type PolicyPatch struct {
	// Name, UID and ResourceVersion identify the PV that was read; a PV that has changed since is not written to.
	// Required.
	Name            string
	UID             types.UID
	ResourceVersion string
	// Policy is the new policy. Required.
	Policy v1.PersistentVolumeReclaimPolicy
	// FieldManager is the same as in FinalizerPatch.
	FieldManager string
}

func (p PolicyPatch) body() ([]byte, error) {
	if p.UID == "" || p.ResourceVersion == "" || p.Policy == "" {
		return nil, errors.New("want a UID, a resourceVersion and a policy")
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID, "resourceVersion": p.ResourceVersion},
		"spec":     map[string]any{"persistentVolumeReclaimPolicy": p.Policy},
	})
}

// PatchPolicy carries out p and returns the resulting PV. Its errors are the same as for PatchFinalizers.
func PatchPolicy(ctx context.Context, pvs corev1.PersistentVolumeInterface, p PolicyPatch) (pv *v1.PersistentVolume,
	err error) {
	if pv, err = patch(ctx, pvs, p.Name, types.StrategicMergePatchType, p.body, p.FieldManager); err != nil {
		return nil, fmt.Errorf("patch reclaim policy of PV %q: %w", p.Name, err)
	}
	return pv, nil
}

// Deleter is the typed client of one kind of object, such as corev1.PodInterface.
type Deleter interface {
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// Delete asks the API server to delete the object with that UID, and with that resourceVersion unless version is empty.
// word is the kind in errors. It returns ErrGone if no object has the name any more, and ErrChanged if the object of
// that name does not match the preconditions.
func Delete(ctx context.Context, word string, objects Deleter, name string, uid types.UID, version string) error {
	return remove(ctx, objects, "delete "+word+" %q: %w", name, uid, version, metav1.DeleteOptions{})
}

// DeleteClaim asks the API server to delete the claim with that UID and resourceVersion. Its errors are the same as for
// Delete.
func DeleteClaim(ctx context.Context, claims corev1.PersistentVolumeClaimInterface, name string, uid types.UID,
	version string) error {
	if version == "" {
		return fmt.Errorf("delete claim %q: want a resourceVersion", name)
	}
	return Delete(ctx, "claim", claims, name, uid, version)
}

// remove is Delete with more options. An error has the form of failed, with the object's name and the meaning of the
// error.
func remove(ctx context.Context, objects Deleter, failed, name string, uid types.UID, version string,
	options metav1.DeleteOptions) error {
	if uid == "" {
		return fmt.Errorf(failed, name, errors.New("want a UID"))
	}
	options.Preconditions = metav1.NewUIDPreconditions(string(uid))
	if version != "" {
		options.Preconditions.ResourceVersion = &version
	}
	if err := objects.Delete(ctx, name, options); err != nil {
		return fmt.Errorf(failed, name, meaningOfDeletion(err, name))
	}
	return nil
}

// concerns reports whether an API error names the field among its causes.
func concerns(err error, field string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == field {
			return true
		}
	}
	return false
}
