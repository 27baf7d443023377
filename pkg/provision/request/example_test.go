package request_test

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
)

func Example() {
	class := "fast"
	facts := request.Facts{
		Claim: &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "data", UID: "7f0c",
				Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": "disk.csi.example.com"},
			},
			Spec: v1.PersistentVolumeClaimSpec{
				StorageClassName: &class,
				AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				Resources: v1.VolumeResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
				},
			},
		},
		Class: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "disk.csi.example.com"},
		Driver: request.Driver{
			Name:   "disk.csi.example.com",
			Plugin: map[csi.PluginCapability_Service_Type]bool{csi.PluginCapability_Service_CONTROLLER_SERVICE: true},
			Controller: map[csi.ControllerServiceCapability_RPC_Type]bool{
				csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME: true,
			},
		},
	}
	o, err := request.NewPlan(facts)
	if err != nil {
		fmt.Println(request.ReasonOf(err), err)
		return
	}
	fmt.Println("ask for", o.Request.Name, "with", o.Request.CapacityRange.RequiredBytes, "bytes")

	pv, err := o.PV(&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "vol-1", CapacityBytes: 1 << 30}})
	fmt.Println("create", pv.Name, "for", pv.Spec.CSI.VolumeHandle, err)

	_, err = o.PV(&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "vol-2", CapacityBytes: 1}})
	fmt.Println(request.ReasonOf(err), request.ReasonOf(err).Remediation())
	// Output:
	// ask for pvc-7f0c with 1073741824 bytes
	// create pvc-7f0c for vol-1 <nil>
	// AnswerTooSmall Discard
}
