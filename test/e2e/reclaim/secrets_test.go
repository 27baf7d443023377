//go:build unix

package reclaim

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

func TestDeletionUsesProvisionerSecret(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(fixture.FastRetries()...)
	named := func(secret string) objects.Spec {
		return objects.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) {
			pv.Annotations["volume.kubernetes.io/provisioner-deletion-secret-name"] = secret
			pv.Annotations["volume.kubernetes.io/provisioner-deletion-secret-namespace"] = env.Namespace
		}}
	}
	_, err := env.Client.CoreV1().Secrets(env.Namespace).Create(env.Ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "array"}, StringData: map[string]string{"password": "x"},
	}, metav1.CreateOptions{})
	env.Must(err)

	vol := env.MakeVolume(named("array"))
	env.WaitProtected(vol)
	env.Must(vol.DeleteClaim(env.Ctx))
	// The shipped rules do not grant secrets: not readable is not absent.
	env.WaitPVEvent(vol, "APIReadFailed", "forbidden")
	env.ExpectKept(vol)

	env.GrantSecrets()
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(vol, 1)
	if keys := env.DeleteCalls(vol.Handle)[0].SecretKeys; !slices.Equal(keys, []string{"password"}) {
		t.Errorf("the driver got the secrets %v, want the password", keys)
	}

	without := env.MakeVolume(named("gone"))
	env.WaitProtected(without)
	env.Must(without.DeleteClaim(env.Ctx))
	env.Must(without.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(without, 1)
	env.WaitPVEvent(without, "SecretNotFound", "gone")

	// The API server answers 404 for this name, too; but it never was a Secret's.
	never := env.MakeVolume(named("Not_A_Name"))
	env.WaitProtected(never)
	env.Must(never.DeleteClaim(env.Ctx))
	env.WaitPVEvent(never, "SecretUnclear", "cannot be the name of a Secret")
	if _, err := env.Client.CoreV1().Secrets(env.Namespace).Get(env.Ctx, "Not_A_Name",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the API server answers %v, not 404", err)
	}
	env.ExpectKept(never)
}

// TestDeletionSecretFromStorageClass has PVs without annotations, as external-provisioner before 3.0 left them.
func TestDeletionSecretFromStorageClass(t *testing.T) {
	suite.Deep(t, suite.Variant)
	fixture.NewestOnly(t, fixture.AboutDriver)
	t.Parallel()
	env := newForRole(t, "owner", mockdriver.Options{})
	env.StartSidecar(fixture.FastRetries()...)
	env.GrantSecrets()
	class := "class-" + rand.String(8)
	_, err := env.Client.StorageV1().StorageClasses().Create(env.Ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: env.Driver,
		Parameters: map[string]string{
			"csi.storage.k8s.io/provisioner-secret-name":      "of-${pv.name}",
			"csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
		},
	}, metav1.CreateOptions{})
	env.Must(err)
	t.Cleanup(func() {
		_ = env.Client.StorageV1().StorageClasses().Delete(env.CleanupContext(), class, metav1.DeleteOptions{})
	})
	vol := env.MakeVolume(objects.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": env.Driver,
			v1.BetaStorageClassAnnotation: class}
	}})
	_, err = env.Client.CoreV1().Secrets(env.Namespace).Create(env.Ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "of-" + vol.Name}, StringData: map[string]string{"key": "value"},
	}, metav1.CreateOptions{})
	env.Must(err)
	env.WaitProtected(vol)
	env.Must(vol.DeleteClaim(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(vol, 1)
	if keys := env.DeleteCalls(vol.Handle)[0].SecretKeys; !slices.Equal(keys, []string{"key"}) {
		t.Errorf("the driver got the secrets %v, want the one that the class names", keys)
	}
}
