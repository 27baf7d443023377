package provision_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// newClientset returns a fake clientset that gives new objects a UID, and each write a
// resourceVersion, as an API
// server does. The in-flight log and live reads depend on both.
func newClientset(objects ...runtime.Object) *fake.Clientset {
	version := 0
	stamp := func(written runtime.Object) {
		if object, err := meta.Accessor(written); err == nil {
			version++
			object.SetResourceVersion(strconv.Itoa(version))
			if object.GetUID() == "" {
				object.SetUID(types.UID("uid-of-" + object.GetName()))
			}
		}
	}
	for _, object := range objects {
		stamp(object)
	}
	client := fake.NewClientset(objects...)
	client.PrependReactor("*", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if write, ok := action.(interface{ GetObject() runtime.Object }); ok {
			stamp(write.GetObject())
		}
		return false, nil, nil
	})
	return client
}

// A unit test of a driver needs no cluster: the libraries work on a fake clientset.
func ExampleNewForClient() {
	volumes, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(volumes) }()
	client := newClientset(
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"},
			Provisioner:   "folders.example.com",
			ReclaimPolicy: ptr.To(v1.PersistentVolumeReclaimDelete)},
		&v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "1234",
				Annotations: map[string]string{
					"volume.kubernetes.io/storage-provisioner": "folders.example.com"}},
			Spec: v1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To("fast"),
				AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				Resources: v1.VolumeResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
			}})
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = runFolders(ctx, client, folders(volumes), "default") }()
	defer func() { stop(); <-ended }()
	pvs := client.CoreV1().PersistentVolumes()
	until := func(reached func(pv *v1.PersistentVolume, err error) bool) (pv *v1.PersistentVolume) {
		is := func(ctx context.Context) (bool, error) {
			var err error
			pv, err = pvs.Get(ctx, "pvc-1234", metav1.GetOptions{})
			return reached(pv, err), nil
		}
		if err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, is); err != nil {
			fmt.Println(err)
		}
		return pv
	}
	names := func() (names []string) {
		all, _ := os.ReadDir(volumes)
		for _, one := range all {
			names = append(names, one.Name())
		}
		return names
	}

	pv := until(func(_ *v1.PersistentVolume, err error) bool { return err == nil })
	fmt.Println("created:", names(), pv.Spec.CSI.VolumeHandle, pv.Spec.Capacity.Storage())

	// The PV controller would set the phase.
	_ = client.CoreV1().PersistentVolumeClaims("default").Delete(ctx, "data", metav1.DeleteOptions{})
	pv.Status.Phase = v1.VolumeReleased
	_, _ = pvs.UpdateStatus(ctx, pv, metav1.UpdateOptions{})
	until(func(_ *v1.PersistentVolume, err error) bool { return apierrors.IsNotFound(err) })
	fmt.Println("deleted:", names())

	// Output:
	// created: [pvc-1234] pvc-1234 1Gi
	// deleted: []
}
