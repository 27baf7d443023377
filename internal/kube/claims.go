package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// updateTries bounds the tries for a claim that other clients keep changing.
const updateTries = 10

// ChangeClaimFinalizers does the same as PatchFinalizers for a claim. If PATCH is forbidden, as with the permissions of
// the stock external-provisioner, it reads the claim and sends an UPDATE, bound to the state that was read.
func ChangeClaimFinalizers(ctx context.Context, claims corev1.PersistentVolumeClaimInterface, p FinalizerPatch) error {
	_, err := PatchFinalizers(ctx, claims, p)
	if !apierrors.IsForbidden(err) || len(p.Annotations) > 0 {
		return err
	}
	for range updateTries {
		changed := updateClaimFinalizers(ctx, claims, p)
		if p.ResourceVersion == "" && errors.Is(changed, ErrChanged) {
			continue
		}
		if apierrors.IsForbidden(changed) {
			return err // this error names the verb that suffices
		}
		return changed
	}
	return fmt.Errorf("update finalizers of claim %q: %w %d times meanwhile", p.Name, ErrChanged, updateTries)
}

// updateClaimFinalizers reads a claim and changes its finalizers, if that is still needed.
func updateClaimFinalizers(ctx context.Context, claims corev1.PersistentVolumeClaimInterface, p FinalizerPatch) error {
	claim, err := claims.Get(ctx, p.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("read claim %q: %w", p.Name, Meaning(err, p.Name))
	case claim.UID != p.UID:
		return fmt.Errorf("update finalizers of claim %q: %w: its UID is %s", p.Name, ErrGone, claim.UID)
	case p.ResourceVersion != "" && claim.ResourceVersion != p.ResourceVersion:
		return fmt.Errorf("update finalizers of claim %q: %w", p.Name, ErrChanged)
	}
	wanted := p.finalizers(claim)
	if slices.Equal(wanted, claim.Finalizers) {
		return nil
	}
	claim.Finalizers = wanted
	after, err := claims.Update(ctx, claim, metav1.UpdateOptions{FieldManager: p.FieldManager})
	if err != nil {
		return fmt.Errorf("update finalizers of claim %q: %w", p.Name, Meaning(err, p.Name))
	}
	if p.undone(after.Finalizers) {
		return fmt.Errorf("update finalizers of claim %q: %w: it has %q", p.Name, ErrUndone, after.Finalizers)
	}
	return nil
}

// finalizers returns the finalizers of a claim with the change.
func (p FinalizerPatch) finalizers(claim *v1.PersistentVolumeClaim) []string {
	removed := func(f string) bool { return slices.Contains(p.Remove, f) }
	wanted := slices.DeleteFunc(slices.Clone(claim.Finalizers), removed)
	for _, f := range p.Add {
		if !slices.Contains(wanted, f) {
			wanted = append(wanted, f)
		}
	}
	return wanted
}
