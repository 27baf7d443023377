package objects

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Class describes a StorageClass.
type Class struct {
	// Name, new in the cluster. Required.
	Name string
	// Policy of the PVs. Default: Delete.
	Policy v1.PersistentVolumeReclaimPolicy
	// WaitForPod has claims wait until the scheduler has chosen a node for a pod that uses them
	// (WaitForFirstConsumer). Default: they are provisioned at once.
	WaitForPod bool
	// Parameters for the driver, and the csi.storage.k8s.io/ keys for the provisioner.
	Parameters map[string]string
	// Change alters the class before it is made. Optional.
	Change func(*storagev1.StorageClass)
}

// MakeClass makes a StorageClass of the driver.
func (m Maker) MakeClass(ctx context.Context, c Class) (*storagev1.StorageClass, error) {
	policy, binding := c.Policy, storagev1.VolumeBindingImmediate
	if policy == "" {
		policy = v1.PersistentVolumeReclaimDelete
	}
	if c.WaitForPod {
		binding = storagev1.VolumeBindingWaitForFirstConsumer
	}
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: c.Name},
		Provisioner: m.Driver, Parameters: c.Parameters, ReclaimPolicy: &policy, VolumeBindingMode: &binding,
	}
	if c.Change != nil {
		c.Change(class)
	}
	stored, err := m.Client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make StorageClass %q: %w", c.Name, err)
	}
	return stored, nil
}

// MakeDriver creates the CSIDriver object of a driver whose volumes need no attaching. Without it, the attach-detach
// controller creates a VolumeAttachment for each volume of a scheduled pod, waits minutes for an attacher, and holds
// the volume as long. change alters the object before its creation; it may be nil.
func (m Maker) MakeDriver(ctx context.Context, change func(*storagev1.CSIDriver)) (*storagev1.CSIDriver, error) {
	attach := false
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: m.Driver},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &attach}}
	if change != nil {
		change(driver)
	}
	stored, err := m.Client.StorageV1().CSIDrivers().Create(ctx, driver, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make CSIDriver %q: %w", m.Driver, err)
	}
	return stored, nil
}
