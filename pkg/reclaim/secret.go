package reclaim

import (
	"errors"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/migration"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/secretname"
)

// errSecretUnclear: the Secret that a deletion needs cannot be told from what is there.
var errSecretUnclear = errors.New("which Secret the deletion needs cannot be told")

// secretOf returns the Secret that a PV's annotations name, the zero value for none.
func secretOf(pv PV) (SecretRef, error) {
	ref := pv.DeletionSecret
	if ref == (SecretRef{}) {
		return ref, nil
	}
	if ref.Name == "" || ref.Namespace == "" {
		return SecretRef{}, fmt.Errorf("%w: of the annotations %s=%q and %s=%q one is empty", errSecretUnclear,
			annSecretName, ref.Name, annSecretNamespace, ref.Namespace)
	}
	if err := secretname.Check(ref.Namespace, ref.Name); err != nil {
		return SecretRef{}, fmt.Errorf("%w: annotations %s and %s: %w", errSecretUnclear, annSecretName, annSecretNamespace, err)
	}
	return ref, nil
}

// secretOfClass returns the Secret that a StorageClass names for a PV, the zero value for
// none. The claim is gone, so only its name is known: a template that asks for one of its
// annotations cannot be resolved. The rules are those by which the volume was made: a class of
// the in-tree plugin that the driver took over from is translated first, as its own parameters
// (Portworx: openstorage.io/auth-secret-name) name no Secret in terms of CSI.
func secretOfClass(pv PV, class *storagev1.StorageClass) (ref SecretRef, err error) {
	// Only the parameters name Secrets: topologies that have no translation keep no volume.
	translated, err := migration.Class(&storagev1.StorageClass{Provisioner: class.Provisioner, Parameters: class.Parameters}, pv.Driver)
	if err != nil {
		return SecretRef{}, unclearOfClass(pv, fmt.Errorf("its parameters have no translation for CSI driver %q: %w", pv.Driver, err))
	}
	template, err := secretname.Find(translated.Parameters, secretname.Provisioner(), secretname.Default())
	if err == nil && template != (secretname.Template{}) {
		ref.Namespace, ref.Name, err = template.For(secretname.Volume{PV: pv.Name, ClaimNamespace: pv.Claim.Namespace, ClaimName: pv.Claim.Name})
	}
	if err != nil {
		return SecretRef{}, unclearOfClass(pv, err)
	}
	return ref, nil
}

func unclearOfClass(pv PV, err error) error {
	return fmt.Errorf("%w: StorageClass %q, now that the claim is gone: %w; put the annotations %s and %s on the PV",
		errSecretUnclear, pv.StorageClass, err, annSecretName, annSecretNamespace)
}
