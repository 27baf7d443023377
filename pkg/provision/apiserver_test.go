//go:build controlplane

package provision

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
)

// TestAgainstARealAPIServer tries what only a real one can answer: the finalizer patches of claims,
// and a PV that is there already.
func TestAgainstARealAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cp, err := controlplane.Start(ctx, controlplane.V1_36, controlplane.Options{NoControllerManager: true, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	client, err := kubernetes.NewForConfig(cp.Admin())
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := cp.CreateNamespace(ctx, "provision-")
	if err != nil {
		t.Fatal(err)
	}
	at := apiServer{client.CoreV1(), nil, Finalizer}
	claims := client.CoreV1().PersistentVolumeClaims(namespace)
	make := func(t *testing.T, name string) (*v1.PersistentVolumeClaim, Claim) {
		t.Helper()
		claim, err := claims.Create(ctx, &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/theirs"}},
			Spec: v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return claim, Claim{Namespace: namespace, Name: name, UID: claim.UID, ResourceVersion: claim.ResourceVersion}
	}
	finalizers := func(t *testing.T, name string) []string {
		t.Helper()
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return claim.Finalizers
	}

	t.Run("a claim is protected once, and let go", func(t *testing.T) {
		_, c := make(t, "once")
		if err := at.protect(ctx, c); err != nil {
			t.Fatal(err)
		}
		if err := at.protect(ctx, c); !errors.Is(err, kube.ErrChanged) {
			t.Errorf("protected again: %v, want that it changed: it was somebody before", err)
		}
		if got := finalizers(t, "once"); !slices.Contains(got, Finalizer) || len(got) < 2 {
			t.Errorf("finalizers %v", got)
		}
		version, err := at.letGo(ctx, c)
		if err != nil || !kube.Newer(version, c.ResourceVersion) {
			t.Errorf("let go: version %q, %v", version, err)
		}
		if got := finalizers(t, "once"); slices.Contains(got, Finalizer) || len(got) < 1 {
			t.Errorf("finalizers %v", got)
		}
	})
	t.Run("a claim of another UID is not touched", func(t *testing.T) {
		_, c := make(t, "another")
		c.UID, c.ResourceVersion = "00000000-0000-0000-0000-000000000000", ""
		if err := at.protect(ctx, c); !errors.Is(err, kube.ErrGone) {
			t.Errorf("protect: %v", err)
		}
		if _, err := at.letGo(ctx, c); !errors.Is(err, kube.ErrGone) {
			t.Errorf("let go: %v", err)
		}
	})
	t.Run("a claim that is being deleted takes no finalizer", func(t *testing.T) {
		_, c := make(t, "terminating")
		if err := claims.Delete(ctx, "terminating", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.ResourceVersion = ""
		if err := at.protect(ctx, c); !errors.Is(err, kube.ErrChanged) {
			t.Errorf("protect: %v, want that it changed", err)
		}
	})

	pv := func(name string, uid types.UID) *v1.PersistentVolume {
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/theirs"}}, Spec: v1.PersistentVolumeSpec{
			Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			ClaimRef:               &v1.ObjectReference{Namespace: namespace, Name: "c", UID: uid},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "vol"}},
		}}
	}
	t.Run("a PV that is there already is judged", func(t *testing.T) {
		c := Claim{UID: "u1"}
		first, err := storePV(ctx, at, nil, c, pv("judged", "u1"))
		if err != nil {
			t.Fatal(err)
		}
		again, err := storePV(ctx, at, nil, c, pv("judged", "u1"))
		if err != nil || again.UID != first.UID {
			t.Errorf("stored again: %v, %v, want the same PV", again, err)
		}
		if _, err := storePV(ctx, at, nil, Claim{UID: "u2"}, pv("judged", "u2")); !errors.Is(err, errNameTaken) {
			t.Errorf("stored over another claim's: %v", err)
		}
		if err := client.CoreV1().PersistentVolumes().Delete(ctx, "judged", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := storePV(ctx, at, nil, c, pv("judged", "u1")); !errors.Is(err, errNameTaken) {
			t.Errorf("stored over one that is being deleted: %v", err)
		}
		if there, err := at.readPV(ctx, "nobody"); there != nil || err != nil {
			t.Errorf("read a PV that is not there: %v, %v", there, err)
		}
	})
}
