package reclaim

import (
	"errors"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/migration"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/secretref"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// errSecretUnclear: the Secret that a deletion needs cannot be told from what is there.
var errSecretUnclear = errors.New("which Secret the deletion needs cannot be told")

// secretOf returns the Secret that a PV's annotations name, the zero value for none.
func secretOf(pv volume.PV) (volume.SecretRef, error) {
	ref := pv.DeletionSecret
	if ref == (volume.SecretRef{}) {
		return ref, nil
	}
	if ref.Name == "" || ref.Namespace == "" {
		return volume.SecretRef{}, fmt.Errorf("%w: of the annotations %s=%q and %s=%q one is empty", errSecretUnclear,
			volume.AnnDeletionSecretName, ref.Name, volume.AnnDeletionSecretNamespace, ref.Namespace)
	}
	if err := secretref.Check(ref.Namespace, ref.Name); err != nil {
		return volume.SecretRef{}, fmt.Errorf("%w: annotations %s and %s: %w", errSecretUnclear, volume.AnnDeletionSecretName, volume.AnnDeletionSecretNamespace, err)
	}
	return ref, nil
}

// secretOfClass returns the Secret that a StorageClass names for a PV, the zero value for
// none. The claim is gone, so only its name is known: a template that asks for one of its
// annotations cannot be resolved. The rules are those by which the volume was made: a class of
// the in-tree plugin that the driver took over from is translated first, as its own parameters
// (Portworx: openstorage.io/auth-secret-name) name no Secret in terms of CSI.
func secretOfClass(pv volume.PV, class *storagev1.StorageClass) (ref volume.SecretRef, err error) {
	// Only the parameters name Secrets: topologies that have no translation keep no volume.
	translated, err := migration.Class(&storagev1.StorageClass{Provisioner: class.Provisioner, Parameters: class.Parameters}, pv.Driver)
	if err != nil {
		return volume.SecretRef{}, unclearOfClass(pv, fmt.Errorf("its parameters have no translation for CSI driver %q: %w", pv.Driver, err))
	}
	template, err := secretref.Find(translated.Parameters, secretref.Provisioner(), secretref.Default())
	if err == nil && template != (secretref.Template{}) {
		ref.Namespace, ref.Name, err = template.For(secretref.Volume{PV: pv.Name, ClaimNamespace: pv.Claim.Namespace, ClaimName: pv.Claim.Name})
	}
	if err != nil {
		return volume.SecretRef{}, unclearOfClass(pv, err)
	}
	return ref, nil
}

func unclearOfClass(pv volume.PV, err error) error {
	return fmt.Errorf("%w: StorageClass %q, now that the claim is gone: %w; put the annotations %s and %s on the PV",
		errSecretUnclear, pv.StorageClass, err, volume.AnnDeletionSecretName, volume.AnnDeletionSecretNamespace)
}
