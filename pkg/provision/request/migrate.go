package request

import (
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	csitranslation "k8s.io/csi-translation-lib"

	"github.com/csi-reclaimer/csi-reclaimer/internal/migration"
)

// InTreePlugin returns the name of the in-tree plugin that a CSI driver took over from, empty for
// none (csi-translation-lib).
func InTreePlugin(driver string) string { return migration.Plugin(driver) }

// migrates reports whether the class is of the in-tree plugin that the driver took over from.
func (f Facts) migrates() bool { return migration.Migrates(f.Class.Provisioner, f.Driver.Name) }

// translatedClass returns the class in terms of CSI: parameters and topologies. What it returns
// may be the class itself, and is only read. The provisioner it names stays.
func (f Facts) translatedClass() (*storagev1.StorageClass, error) {
	class, err := migration.Class(f.Class, f.Driver.Name)
	if err != nil {
		return nil, refuse(ReasonClassUntranslatable,
			"StorageClass %q of in-tree plugin %q means nothing to CSI driver %q: %w; make a new class for the driver",
			f.Class.Name, f.Class.Provisioner, f.Driver.Name, err)
	}
	return class, nil
}

// inTreeForm returns the PV, which has annotations, as the in-tree plugin would have made it, so
// that whatever knew the plugin's volumes continues knowing them. migrated-to is the PV
// controller's annotation, and is there from the start: without it nobody would answer for the
// PV until the PV controller has come by.
func inTreeForm(pv *v1.PersistentVolume, driver string) (*v1.PersistentVolume, error) {
	translated, err := csitranslation.New().TranslateCSIPVToInTree(pv)
	if err != nil {
		return nil, refuse(ReasonAnswerUntranslatable,
			"the volume %q of CSI driver %q has no translation to the in-tree plugin: %w", pv.Spec.CSI.VolumeHandle,
			driver, err)
	}
	translated.Annotations[annMigratedTo] = driver
	return translated, nil
}
