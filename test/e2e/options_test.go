//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

func TestADryRunReportsAndChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	due, fresh, kept := s.make(storage.Spec{}), s.make(storage.Spec{}), s.make(storage.Spec{Policy: v1.PersistentVolumeReclaimRetain})
	s.all([]*storage.Volume{due, kept}, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll([]*storage.Volume{due, kept}, "released", isReleased)
	car := s.sidecar("--dry-run", "--leader-election", "--brake-deletions=1", "--leader-election-namespace="+s.Namespace)
	s.must(car.WaitLog(s.soon(), "Would do AddFinalizer"))
	s.metric(car, `csi_reclaimer_waiting_pvs{driver_name="`+s.Driver+`",reason="DryRun"}`, "2")
	s.expectKept(due)
	s.must(fresh.DeleteClaim(s.ctx))
	s.must(fresh.DeletePV(s.ctx))
	s.must(fresh.WaitGone(s.soon()))
	events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.APIGroup != "authorization.k8s.io" && !slices.Contains([]string{"get", "list", "watch"}, e.Verb)
	})
	s.must(err)
	if len(events) > 0 {
		t.Errorf("a dry run wrote: %+v", events)
	}
	for _, vol := range []*storage.Volume{due, fresh, kept} {
		s.expectKept(vol)
	}
}

func TestStaticPVsAreLeftAloneWhereToldSo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(eager()...)
	static, dynamic := s.make(storage.Spec{}), s.make(storage.Spec{Dynamic: true})
	twin := s.make(storage.Spec{Handle: dynamic.Handle})
	all := []*storage.Volume{static, dynamic, twin}
	s.waitAll(all, "protected", isProtected)
	s.must(car.Terminate())
	s.must(car.Restart("--static-pvs=ignore"))
	s.must(car.WaitReady(s.soon()))
	s.waitAll([]*storage.Volume{static, twin}, "without our finalizer", func(pv *v1.PersistentVolume) bool { return pv != nil && !protected(pv) })
	s.all([]*storage.Volume{static, dynamic}, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll([]*storage.Volume{static, dynamic}, "released", isReleased)
	s.waitEvent(dynamic, "SharedHandle", twin.Name) // an ignored PV still needs its volume
	s.must(static.DeletePV(s.ctx))
	s.must(static.WaitGone(s.soon()))
	s.must(twin.DeleteClaim(s.ctx))
	s.must(dynamic.WaitGone(s.soon()))
	s.expectDeleted(dynamic, 1)
	s.expectKept(static)
}

// TestTheStorageClassTellsTheSecret has PVs without the annotations, as provisioners before
// external-provisioner 3.x left them.
func TestTheStorageClassTellsTheSecret(t *testing.T) {
	t.Parallel()
	s := newStageAs(t, "owner", mockdriver.Options{})
	s.sidecar(eager()...)
	s.grantSecrets()
	class := "class-" + rand.String(8)
	_, err := s.client.StorageV1().StorageClasses().Create(s.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: s.Driver,
		Parameters: map[string]string{
			"csi.storage.k8s.io/provisioner-secret-name":      "of-${pv.name}",
			"csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
		},
	}, metav1.CreateOptions{})
	s.must(err)
	t.Cleanup(func() { _ = s.client.StorageV1().StorageClasses().Delete(s.clean(), class, metav1.DeleteOptions{}) })
	vol := s.make(storage.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": s.Driver, v1.BetaStorageClassAnnotation: class}
	}})
	_, err = s.client.CoreV1().Secrets(s.Namespace).Create(s.ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "of-" + vol.Name}, StringData: map[string]string{"key": "value"},
	}, metav1.CreateOptions{})
	s.must(err)
	s.waitProtected(vol)
	s.must(vol.DeleteClaim(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	s.expectDeleted(vol, 1)
	if keys := s.deletions(vol.Handle)[0].SecretKeys; !slices.Equal(keys, []string{"key"}) {
		t.Errorf("the driver got the secrets %v, want the one that the class names", keys)
	}
}

// TestAMigratedVolume has PVs of the in-tree plugin kubernetes.io/aws-ebs, which the PV
// controller hands to the driver by annotations.
func TestAMigratedVolume(t *testing.T) {
	const driver = "ebs.csi.aws.com"
	s := newStageAs(t, "owner", mockdriver.Options{Name: driver, Args: []string{
		"--static-volume=vol-0123456789abcdef0", "--static-volume=vol-0123456789abcdef1", "--static-volume=vol-0123456789abcdef2",
	}})
	car := s.sidecar(eager()...)
	inTree := func(handle string, annotations map[string]string) storage.Spec {
		return storage.Spec{Handle: handle, Change: func(pv *v1.PersistentVolume) {
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
	vols := map[string]*storage.Volume{
		"dynamic, PV first":   s.make(inTree("vol-0123456789abcdef0", migrated("kubernetes.io/aws-ebs"))),
		"static, claim first": s.make(inTree("vol-0123456789abcdef1", migrated(""))),
		"provisioner unknown": s.make(inTree("vol-0123456789abcdef2", map[string]string{"pv.kubernetes.io/provisioned-by": "example.com/unknown"})),
	}
	for name, vol := range vols {
		if name == "provisioner unknown" {
			s.must(vol.DeleteClaim(s.ctx))
			continue
		}
		s.waitProtected(vol)
		if strings.HasSuffix(name, "PV first") {
			s.must(vol.DeletePV(s.ctx))
		}
		s.must(vol.DeleteClaim(s.ctx))
		s.must(vol.WaitGone(s.soon()))
		s.expectDeleted(vol, 1)
	}
	s.expectKept(vols["provisioner unknown"])
	own := s.make(storage.Spec{})
	s.must(own.DeleteClaim(s.ctx))
	s.must(own.WaitGone(s.soon()))
	const calls = `csi_sidecar_operations_seconds_count{driver_name="` + driver + `",grpc_status_code="OK",method_name="/csi.v1.Controller/DeleteVolume",migrated=`
	s.metric(car, calls+`"true"}`, "2")
	s.metric(car, calls+`"false"}`, "1")
}

// TestAMigratedVolumeIsDeletedWithTheSecretOfItsClass has PVs of the in-tree plugin kubernetes.io/portworx-volume
// without the annotations for the Secret. Their class names it by the plugin's parameters, which mean nothing
// until they are translated to those of CSI.
func TestAMigratedVolumeIsDeletedWithTheSecretOfItsClass(t *testing.T) {
	t.Parallel()
	const driver, plugin = "pxd.portworx.com", "kubernetes.io/portworx-volume"
	orders := []string{"PV first", "claim first"}
	args := []string{"--require-secret=auth-token=xyz"}
	for i := range orders {
		args = append(args, fmt.Sprintf("--static-volume=px-%d", i))
	}
	s := newStageAs(t, "owner", mockdriver.Options{Name: driver, Args: args})
	s.sidecar(eager()...)
	s.grantSecrets()
	class := s.class(func(c *storage.Class) {
		c.Change = func(class *storagev1.StorageClass) {
			class.Provisioner = plugin
			class.Parameters = map[string]string{
				"repl": "1", "openstorage.io/auth-secret-name": "of-${pvc.name}", "openstorage.io/auth-secret-namespace": "${pvc.namespace}",
			}
		}
	})
	for i, order := range orders {
		t.Run(order, func(t *testing.T) {
			s := s.in(t)
			vol := s.make(storage.Spec{Handle: fmt.Sprintf("px-%d", i), Change: func(pv *v1.PersistentVolume) {
				pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: fmt.Sprintf("px-%d", i)}}
				pv.Annotations = map[string]string{
					"pv.kubernetes.io/provisioned-by": plugin, "pv.kubernetes.io/migrated-to": driver, v1.BetaStorageClassAnnotation: class,
				}
			}})
			_, err := s.client.CoreV1().Secrets(s.Namespace).Create(s.ctx, &v1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "of-" + vol.ClaimName}, StringData: map[string]string{"auth-token": "xyz"},
			}, metav1.CreateOptions{})
			s.must(err)
			s.waitProtected(vol)
			if order == "PV first" {
				s.must(vol.DeletePV(s.ctx))
			}
			s.must(vol.DeleteClaim(s.ctx))
			s.must(vol.WaitGone(s.soon()))
			s.expectDeleted(vol, 1)
			if keys := s.deletions(vol.Handle)[0].SecretKeys; !slices.Equal(keys, []string{"auth-token"}) {
				t.Errorf("the driver got the secrets %v, want those of the Secret that the class names", keys)
			}
		})
	}
}

// TestANameUsedAgain has a PV made anew under the name of one that is being reclaimed.
func TestANameUsedAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	first := s.make(storage.Spec{})
	s.waitProtected(first)
	s.must(first.DeletePV(s.ctx))
	s.must(first.DeleteClaim(s.ctx))
	s.must(first.WaitGone(s.soon()))
	second := s.make(storage.Spec{Name: first.Name})
	if second.PVUID == first.PVUID || second.Handle == first.Handle {
		t.Fatalf("not another PV: %+v %+v", first, second)
	}
	s.waitProtected(second)
	s.fence()
	s.expectDeleted(first, 1)
	s.expectKept(second)
	s.must(second.DeleteClaim(s.ctx))
	s.must(second.WaitGone(s.soon()))
	s.expectDeleted(second, 1)
}

// TestAnyPolicyIsProtected closes the race of a policy that is turned right before the deletion.
func TestAnyPolicyIsProtected(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(append(eager(), "--finalizer-scope=bound-any")...)
	vols := s.makeMany(10, func(int) storage.Spec { return storage.Spec{Policy: v1.PersistentVolumeReclaimRetain} })
	s.waitAll(vols, "protected", isProtected)
	turned, kept := vols[:5], vols[5:]
	s.all(turned, func(vol *storage.Volume) error { return vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimDelete) })
	s.all(vols, func(vol *storage.Volume) error { return vol.DeletePV(s.ctx) })
	s.all(vols, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll(vols, "gone", isGone)
	for _, vol := range turned {
		s.expectDeleted(vol, 1)
		if told := s.events(vol, string(reclaim.ReasonUnprotectedReclaim)); len(told) > 0 {
			t.Errorf("PV %s was not protected in time", vol.Name)
		}
	}
	for _, vol := range kept {
		s.expectKept(vol)
	}
}
