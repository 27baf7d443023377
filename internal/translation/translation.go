// Package translation translates the StorageClasses of in-tree plugins for the CSI drivers that replaced them (CSI
// migration, KEP-625; csi-translation-lib). The provisioner and the reclaimer both use it, so that they read the same
// parameters.
package translation

import (
	storagev1 "k8s.io/api/storage/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// Plugin returns the name of the in-tree plugin that a CSI driver replaced, empty for none.
func Plugin(driver string) string {
	name, err := csitranslation.New().GetInTreeNameFromCSIName(driver)
	if err != nil {
		return "" // the only possible error: it replaced none
	}
	return name
}

// Migrates reports whether a class's provisioner is the in-tree plugin that the driver replaced.
func Migrates(provisioner, driver string) bool {
	return provisioner != "" && provisioner == Plugin(driver)
}

// Class returns the class in terms of CSI, with translated parameters and topologies, and the original provisioner. A
// class of another provisioner than the driver's in-tree plugin is returned unchanged, so the result may be the class
// itself and must not be modified. The argument is not changed, and an error means that the parameters have no
// translation.
func Class(class *storagev1.StorageClass, driver string) (*storagev1.StorageClass, error) {
	if !Migrates(class.Provisioner, driver) {
		return class, nil
	}
	own := class.DeepCopy() // which the translation changes
	translated, err := csitranslation.New().TranslateInTreeStorageClassToCSI(klog.Background(), class.Provisioner, own)
	if err != nil {
		return nil, err
	}
	translated.Provisioner = class.Provisioner // Portworx' translation changes it
	return translated, nil
}
