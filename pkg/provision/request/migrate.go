package request

import (
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/csi-translation-lib/plugins"

	"github.com/csi-reclaimer/csi-reclaimer/internal/migration"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// InTreePlugin returns the name of the in-tree plugin that a CSI driver replaces, empty for none (csi-translation-lib).
func InTreePlugin(driver string) string { return migration.Plugin(driver) }

// migrates reports whether the class belongs to the in-tree plugin that the driver replaces.
func (f Facts) migrates() bool { return migration.Migrates(f.Class.Provisioner, f.Driver.Name) }

// translatedClass returns the class with CSI parameters and topologies, but the original provisioner. The result may be
// the class itself and must not be changed.
func (f Facts) translatedClass() (*storagev1.StorageClass, error) {
	class, err := migration.Class(f.Class, f.Driver.Name)
	if err != nil {
		return nil, refuse(ReasonClassUntranslatable,
			"StorageClass %q of in-tree plugin %q means nothing to CSI driver %q: %w; make a new class for the driver",
			f.Class.Name, f.Class.Provisioner, f.Driver.Name, err)
	}
	return class, nil
}

// inTreeForm returns the PV, which has annotations, in the form of the in-tree plugin, so that programs that know the
// plugin's volumes continue to know them. The PV controller's annotation migrated-to is set from the start, because
// until the PV controller sets it, no program handles the PV.
//
// Portworx' in-tree form has no field for a Secret. Kubelet, external-attacher and external-resizer, which translate it
// back, read the Secret of all their calls from two annotations, which the library does not write.
func inTreeForm(pv *v1.PersistentVolume, driver string) (*v1.PersistentVolume, error) {
	translated, err := csitranslation.New().TranslateCSIPVToInTree(pv)
	if err != nil {
		return nil, refuse(ReasonAnswerUntranslatable,
			"the volume %q of CSI driver %q has no translation to the in-tree plugin: %w", pv.Spec.CSI.VolumeHandle,
			driver, err)
	}
	translated.Annotations[volume.AnnMigratedTo] = driver
	if secret := pv.Spec.CSI.NodePublishSecretRef; secret != nil && translated.Spec.PortworxVolume != nil {
		translated.Annotations[plugins.OpenStorageAuthSecretNameKey] = secret.Name
		translated.Annotations[plugins.OpenStorageAuthSecretNamespaceKey] = secret.Namespace
	}
	return translated, nil
}
