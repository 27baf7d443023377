// Package migration translates the StorageClasses of in-tree plugins for the CSI drivers that took over
// from them (CSI migration, KEP-625; csi-translation-lib). The provisioner and the reclaimer both use it, so that
// they read the same parameters.
package migration

import (
	storagev1 "k8s.io/api/storage/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// Plugin returns the name of the in-tree plugin that a CSI driver took over from, empty for none.
func Plugin(driver string) string {
	name, err := csitranslation.New().GetInTreeNameFromCSIName(driver)
	if err != nil {
		return "" // the only error there is: it took over from none
	}
	return name
}

// Migrates reports whether a class's provisioner is the in-tree plugin that the driver took over from.
func Migrates(provisioner, driver string) bool {
	return provisioner != "" && provisioner == Plugin(driver)
}

// Class returns the class in terms of CSI, with translated parameters and topologies. A class that is
// not one of the driver's in-tree plugin is returned as it is, so the result may be the class itself
// and is only to be read. The argument is not changed. An error means that the parameters have no
// translation.
func Class(class *storagev1.StorageClass, driver string) (*storagev1.StorageClass, error) {
	if !Migrates(class.Provisioner, driver) {
		return class, nil
	}
	// The translation writes to its argument, which may belong to a cache.
	return csitranslation.New().TranslateInTreeStorageClassToCSI(klog.Background(), class.Provisioner, class.DeepCopy())
}
