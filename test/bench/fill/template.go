package fill

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// prepare creates the template of all PVs through the API, and removes it again.
func (c *Cluster) prepare(ctx context.Context) error {
	if c.template != nil {
		return nil
	}
	pvs := c.client.CoreV1().PersistentVolumes()
	pv := ProvisionedPV("template", "template", c.driver)
	pv.Spec.StorageClassName = "fast"
	pv.Spec.ClaimRef = &v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claimNamespace, Name: "data-database-0",
		UID: "2f3c9d3a-0000-4000-8000-000000000000", ResourceVersion: "1234567",
	}
	pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "topology.kubernetes.io/zone", Operator: v1.NodeSelectorOpIn,
			Values: []string{"zone-a"}}},
	}}}}
	made, err := pvs.Create(ctx, pv, metav1.CreateOptions{FieldManager: "csi-provisioner"})
	if err != nil {
		return fmt.Errorf("make a PV to copy: %w", err)
	}
	made.Status.Phase = v1.VolumeBound
	if made, err = pvs.UpdateStatus(ctx, made, metav1.UpdateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		return fmt.Errorf("make a PV to copy: %w", err)
	}
	made.TypeMeta, made.ResourceVersion = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ""
	c.template = made
	return c.etcd.deleteRange(ctx, pvKey+"template", pvKey+"template\x00")
}

// claimTemplate returns a claim in the stored form of a provisioned claim. It goes through the API and is removed
// again.
func (c *Cluster) claimTemplate(ctx context.Context) (*v1.PersistentVolumeClaim, error) {
	claims, class := c.client.CoreV1().PersistentVolumeClaims(c.namespace), "fast"
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}
	claim, err := claims.Create(ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "template", Labels: map[string]string{"app.kubernetes.io/name": "database"},
			Finalizers: []string{"kubernetes.io/pvc-protection"},
			Annotations: map[string]string{
				"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
				"volume.kubernetes.io/storage-provisioner": c.driver, "volume.beta.kubernetes.io/storage-provisioner": c.driver,
			},
		},
		Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: "template",
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:   v1.VolumeResourceRequirements{Requests: size}},
	}, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	if err != nil {
		return nil, err
	}
	claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, AccessModes: claim.Spec.AccessModes,
		Capacity: size}
	if claim, err = claims.UpdateStatus(ctx, claim,
		metav1.UpdateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		return nil, err
	}
	claim.TypeMeta, claim.ResourceVersion = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ""
	// No controller protects claims here, so none removes that finalizer.
	key := "/registry/persistentvolumeclaims/" + c.namespace + "/template"
	return claim, c.etcd.deleteRange(ctx, key, key+"\x00")
}

// ProvisionedPV is a PV as the stock provisioner makes it, without a claim.
func ProvisionedPV(name, handle, driver string) *v1.PersistentVolume {
	return &v1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Annotations: map[string]string{
				"pv.kubernetes.io/provisioned-by":                            driver,
				"volume.kubernetes.io/provisioner-deletion-secret-name":      "",
				"volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
			},
			Finalizers: []string{volume.Finalizer},
		},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
			AccessModes:                   []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: handle, FSType: "ext4",
				VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1790000000000-1234-" + driver},
			}},
		},
	}
}
