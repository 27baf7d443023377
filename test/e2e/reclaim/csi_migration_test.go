//go:build unix

package reclaim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestCSIMigratedVolumeIsDeleted has PVs of the in-tree plugin kubernetes.io/aws-ebs, which the PV controller hands to
// the driver by annotations.
func TestCSIMigratedVolumeIsDeleted(t *testing.T) {
	t.Parallel()
	const driver = "ebs.csi.aws.com"
	env := newForRole(t, "owner", mockdriver.Options{Name: driver, Args: []string{
		"--static-volume=vol-0123456789abcdef0", "--static-volume=vol-0123456789abcdef1",
		"--static-volume=vol-0123456789abcdef2",
	}})
	car := env.StartSidecar(fixture.FastRetries()...)
	inTree := func(handle string, annotations map[string]string) objects.Spec {
		return objects.Spec{Handle: handle, Change: func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
				AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/" + handle},
			}
			pv.Annotations = annotations
		}}
	}
	migrated := func(provisioner string) map[string]string {
		a := map[string]string{"pv.kubernetes.io/migrated-to": driver}
		if provisioner != "" {
			a["pv.kubernetes.io/provisioned-by"] = provisioner
		}
		return a
	}
	vols := map[string]*objects.Volume{
		"dynamic, PV first":   env.MakeVolume(inTree("vol-0123456789abcdef0", migrated("kubernetes.io/aws-ebs"))),
		"static, claim first": env.MakeVolume(inTree("vol-0123456789abcdef1", migrated(""))),
		"provisioner unknown": env.MakeVolume(inTree("vol-0123456789abcdef2",
			map[string]string{"pv.kubernetes.io/provisioned-by": "example.com/unknown"})),
	}
	for name, vol := range vols {
		if name == "provisioner unknown" {
			env.Must(vol.DeleteClaim(env.Ctx))
			continue
		}
		env.WaitProtected(vol)
		if strings.HasSuffix(name, "PV first") {
			env.Must(vol.DeletePV(env.Ctx))
		}
		env.Must(vol.DeleteClaim(env.Ctx))
		env.Must(vol.WaitGone(env.WithTimeout()))
		env.ExpectDeleted(vol, 1)
	}
	env.ExpectKept(vols["provisioner unknown"])
	own := env.MakeVolume(objects.Spec{})
	env.Must(own.DeleteClaim(env.Ctx))
	env.Must(own.WaitGone(env.WithTimeout()))
	const calls = `csi_sidecar_operations_seconds_count{driver_name="` + driver +
		`",grpc_status_code="OK",method_name="/csi.v1.Controller/DeleteVolume",migrated=`
	env.WaitMetric(car, calls+`"true"}`, "2")
	env.WaitMetric(car, calls+`"false"}`, "1")
}

// TestCSIMigratedVolumeIsDeletedWithSecretOfClass has PVs of the in-tree plugin kubernetes.io/portworx-volume without
// annotations for the Secret. Their class names the Secret by the plugin's parameters, which the CSI translation turns
// into CSI's.
func TestCSIMigratedVolumeIsDeletedWithSecretOfClass(t *testing.T) {
	t.Parallel()
	const driver, plugin = "pxd.portworx.com", "kubernetes.io/portworx-volume"
	orders := []string{"PV first", "claim first"}
	args := []string{"--require-secret=auth-token=xyz"}
	for i := range orders {
		args = append(args, fmt.Sprintf("--static-volume=px-%d", i))
	}
	env := newForRole(t, "owner", mockdriver.Options{Name: driver, Args: args})
	env.StartSidecar(fixture.FastRetries()...)
	env.GrantSecrets()
	class := env.CreateStorageClass(func(c *objects.Class) {
		c.Change = func(class *storagev1.StorageClass) {
			class.Provisioner = plugin
			class.Parameters = map[string]string{
				"repl": "1", "openstorage.io/auth-secret-name": "of-${pvc.name}",
				"openstorage.io/auth-secret-namespace": "${pvc.namespace}",
			}
		}
	})
	for i, order := range orders {
		t.Run(order, func(t *testing.T) {
			env := env.forSubtest(t)
			vol := env.MakeVolume(objects.Spec{Handle: fmt.Sprintf("px-%d", i), Change: func(pv *v1.PersistentVolume) {
				pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{
					PortworxVolume: &v1.PortworxVolumeSource{VolumeID: fmt.Sprintf("px-%d", i)},
				}
				pv.Annotations = map[string]string{
					"pv.kubernetes.io/provisioned-by": plugin, "pv.kubernetes.io/migrated-to": driver,
					v1.BetaStorageClassAnnotation: class,
				}
			}})
			_, err := env.Client.CoreV1().Secrets(env.Namespace).Create(env.Ctx, &v1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "of-" + vol.ClaimName}, StringData: map[string]string{"auth-token": "xyz"},
			}, metav1.CreateOptions{})
			env.Must(err)
			env.WaitProtected(vol)
			if order == "PV first" {
				env.Must(vol.DeletePV(env.Ctx))
			}
			env.Must(vol.DeleteClaim(env.Ctx))
			env.Must(vol.WaitGone(env.WithTimeout()))
			env.ExpectDeleted(vol, 1)
			if keys := env.DeleteCalls(vol.Handle)[0].SecretKeys; !slices.Equal(keys, []string{"auth-token"}) {
				t.Errorf("the driver got the secrets %v, want those of the Secret that the class names", keys)
			}
		})
	}
}
