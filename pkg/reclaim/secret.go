package reclaim

import (
	"context"
	"errors"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/migration"
	"github.com/csi-reclaimer/csi-reclaimer/internal/secretref"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// errSecretUnclear reports that the Secret for a deletion cannot be determined.
var errSecretUnclear = errors.New("which Secret the deletion needs cannot be determined")

// readSecrets reads the Secret that the PV's annotations name, or else its StorageClass. Like the stock provisioner,
// it leaves out an object that does not exist, and returns its name as missing. An object that cannot be read or
// determined is an error, because a driver must not be called with the wrong credentials.
func (r *Controller) readSecrets(ctx context.Context, pv volume.PV) (secrets map[string]string, missing string,
	err error) {
	var ref volume.SecretRef
	switch {
	case pv.SecretKnown:
		ref, err = secretOf(pv)
	case pv.StorageClass != "":
		class, found, readErr := r.cluster.readClass(ctx, pv.StorageClass)
		switch {
		case readErr != nil:
			err = readErr
		case found:
			ref, err = secretOfClass(pv, class)
		case pv.Provisioned():
			// Most static PVs name a class that is a mere label, so a missing class is reported only for provisioned PVs.
			missing = fmt.Sprintf("StorageClass %s, which would name it", pv.StorageClass)
		}
	}
	if err != nil || ref == (volume.SecretRef{}) {
		return nil, missing, err
	}
	secrets, found, err := r.cluster.readSecret(ctx, ref)
	if err == nil && !found {
		missing = fmt.Sprintf("Secret %s/%s", ref.Namespace, ref.Name)
	}
	return secrets, missing, err
}

// secretOf returns the Secret that a PV's annotations name, the zero value for none.
func secretOf(pv volume.PV) (volume.SecretRef, error) {
	ref := pv.DeletionSecret
	if ref == (volume.SecretRef{}) {
		return ref, nil
	}
	if err := secretref.Check(ref.Namespace, ref.Name); err != nil {
		return volume.SecretRef{}, fmt.Errorf("%w: annotations %s and %s: %w", errSecretUnclear,
			volume.AnnDeletionSecretName, volume.AnnDeletionSecretNamespace, err)
	}
	return ref, nil
}

// secretOfClass returns the Secret that a StorageClass names for a PV, the zero value for none. The claim is gone, so
// only its name is known: a template that refers to one of its annotations cannot be resolved. The rules are the same
// as at creation, so a class of the in-tree plugin that the driver took over from is translated first: its own
// parameters (Portworx: openstorage.io/auth-secret-name) name no Secret in terms of CSI.
func secretOfClass(pv volume.PV, class *storagev1.StorageClass) (ref volume.SecretRef, err error) {
	// Only the parameters name Secrets, so a topology without translation does not keep the volume.
	translated, err := migration.Class(&storagev1.StorageClass{Provisioner: class.Provisioner,
		Parameters: class.Parameters}, pv.Driver)
	if err != nil {
		return volume.SecretRef{}, unclearOfClass(pv, fmt.Errorf("its parameters have no translation for CSI driver %q: %w",
			pv.Driver, err))
	}
	template, err := secretref.Find(translated.Parameters, secretref.Provisioner(), secretref.Default())
	if err == nil && template != (secretref.Template{}) {
		ref.Namespace, ref.Name, err = template.For(secretref.Volume{PV: pv.Name, ClaimNamespace: pv.Claim.Namespace,
			ClaimName: pv.Claim.Name})
	}
	if err != nil {
		return volume.SecretRef{}, unclearOfClass(pv, err)
	}
	return ref, nil
}

func unclearOfClass(pv volume.PV, err error) error {
	return fmt.Errorf("%w: StorageClass %q, now that the claim is gone: %w; add the annotations %s and %s to the PV",
		errSecretUnclear, pv.StorageClass, err, volume.AnnDeletionSecretName, volume.AnnDeletionSecretNamespace)
}
