//go:build controlplane

package provision

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// TestRealAPIServer covers behaviour that only a real API server has: patches of finalizers, the node's annotation, an
// existing PV, and final answers to a CREATE.
func TestRealAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cp := controlplane.ForTest(t, controlplane.Newest, controlplane.Options{NoControllerManager: true})
	client := must.Get(kubernetes.NewForConfig(cp.Admin()))(t)
	namespace := must.Get(cp.CreateNamespace(ctx, "provision-"))(t)
	at := apiServer{core: client.CoreV1()}
	claims := client.CoreV1().PersistentVolumeClaims(namespace)
	create := func(t *testing.T, name string) *v1.PersistentVolumeClaim {
		t.Helper()
		claim, err := claims.Create(ctx, &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name,
				Annotations: map[string]string{volume.AnnSelectedNode: "n1", "example.com/theirs": "kept"}},
			Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				Resources: v1.VolumeResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
				}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return claim
	}

	t.Run("a node is deselected, only as the claim was read", func(t *testing.T) {
		claim := create(t, "node")
		must.OK(t, at.selectNode(ctx, claim, ""))
		now, err := at.readClaim(ctx, namespace, "node")
		if _, selected := now.Annotations[volume.AnnSelectedNode]; err != nil || selected ||
			now.Annotations["example.com/theirs"] != "kept" {
			t.Errorf("%v, annotations %v", err, now.Annotations)
		}
		if err := at.selectNode(ctx, claim, "n2"); !errors.Is(err, kube.ErrChanged) {
			t.Errorf("from an old read: %v", err)
		}
	})
	t.Run("a claim that does not exist is no error", func(t *testing.T) {
		if claim, err := at.readClaim(ctx, namespace, "nobody"); claim != nil || err != nil {
			t.Errorf("%v, %v", claim, err)
		}
	})

	pv := func(name string, uid types.UID) *v1.PersistentVolume {
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
			Capacity:    v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			ClaimRef:    &v1.ObjectReference{Namespace: namespace, Name: "c", UID: uid},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName,
				VolumeHandle: "vol"}},
		}}
	}
	t.Run("a PV that exists is returned", func(t *testing.T) {
		first, exists, err := createPV(ctx, at, pv("stored", "u1"))
		if err != nil || exists {
			t.Fatalf("exists %v, %v", exists, err)
		}
		again, exists, err := createPV(ctx, at, pv("stored", "u2"))
		if err != nil || !exists || again.UID != first.UID {
			t.Errorf("stored again: exists %v, %v", exists, err)
		}
		if there, err := at.readPV(ctx, "nobody"); there != nil || err != nil {
			t.Errorf("read a PV that does not exist: %v, %v", there, err)
		}
	})
	t.Run("a refused write does not arrive later", func(t *testing.T) {
		invalid := pv("Not_A_Name", "u1")
		if _, _, err := createPV(ctx, at, invalid); classOfWrite(err) != errclass.Refused {
			t.Errorf("%v is %v", err, classOfWrite(err))
		}
		cut, cancel := context.WithCancel(ctx)
		cancel()
		if _, _, err := createPV(cut, at, pv("cut", "u1")); classOfWrite(err) != errclass.Uncertain {
			t.Errorf("%v is %v", err, classOfWrite(err))
		}
	})
}
