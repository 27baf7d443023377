//go:build unix

package reclaim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

func TestDriverErrorsAreRetried(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	cases := map[string]struct {
		rule  faults.Rule
		calls int
		event string
	}{
		"Internal twice: tried again until it succeeds": {
			faults.Rule{First: 2, Action: faults.Fail, Code: "Internal", Message: "the array is rebooting"}, 3,
			"the array is rebooting"},
		"Aborted twice: tried again, not worth an event": {
			faults.Rule{First: 2, Action: faults.Fail, Code: "Aborted", Message: "in progress"}, 3, ""},
		"deleted, but the answer says Unavailable: asked once more": {
			faults.Rule{First: 1, Action: faults.Fail, AfterWork: true, Code: "Unavailable", Message: "connection lost"}, 2,
			"connection lost"},
		"hangs past the deadline: asked once more": {
			faults.Rule{First: 1, Action: faults.Hang}, 2, "DeadlineExceeded"},
		"FailedPrecondition once: tried again, slowly": {
			faults.Rule{First: 1, Action: faults.Fail, Code: "FailedPrecondition", Message: "the volume has snapshots"}, 2,
			"the volume has snapshots"},
		"NotFound is an error, as the specification has it": {
			faults.Rule{First: 1, Action: faults.Fail, Code: "NotFound", Message: "never heard of it"}, 2, "never heard of it"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			flags := fixture.FastRetries()
			if c.rule.Action == faults.Hang {
				suite.Deep(t, suite.WaitsForClock)
				flags = append(flags, "--timeout=20s") // a second call must not exceed it, also on a busy machine
			}
			env := begin(t)
			env.StartSidecar(flags...)
			vol := env.MakeProtected(objects.Spec{})
			c.rule.Method = "DeleteVolume"
			env.SetFaults(c.rule)
			env.Must(vol.DeleteClaim(env.Ctx))
			env.ExpectReclaimed(vol, c.calls)
			if c.event != "" {
				env.WaitPVEvent(vol, "VolumeFailedDelete", c.event)
			} else if events := env.PVEvents(vol, "VolumeFailedDelete"); len(events) != 0 {
				t.Errorf("events about what ends by itself: %+v", events)
			}
		})
	}
}

func TestUndeletableVolumeKeepsPVAndCanBeRescued(t *testing.T) {
	env := begin(t)
	car := env.StartSidecar(fixture.FastRetries()...)
	vol := env.MakeProtected(objects.Spec{})
	env.SetFaults(faults.Rule{Method: "DeleteVolume", Volume: vol.Handle, Action: faults.Fail, Code: "Internal"})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitDeleteCalls(vol, 3)
	env.WaitPV(vol, "protected and not terminating",
		func(pv *v1.PersistentVolume) bool { return fixture.HasFinalizer(pv) && pv.DeletionTimestamp == nil })
	env.Barrier() // the others go on

	env.WaitMetric(car, `controller_persistentvolume_delete_total{class=""}`, "1")
	env.WaitMetric(car, `csi_reclaimer_waiting_pvs{driver_name="`+env.Driver+`",reason="VolumeFailedDelete"}`, "1")
	metrics, err := car.Get(env.Ctx, "/metrics")
	env.Must(err)
	for _, want := range []string{
		`controller_persistentvolume_delete_failed_total{class=""}`,
		`csi_sidecar_operations_seconds_count{driver_name="` + env.Driver +
			`",grpc_status_code="Internal",method_name="/csi.v1.Controller/DeleteVolume"}`,
		`workqueue_depth{name="reclaim"}`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no line with %s", want)
		}
	}

	env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimRetain))
	env.WaitPV(vol, "without our finalizer", func(pv *v1.PersistentVolume) bool { return !fixture.HasFinalizer(pv) })
	env.Must(env.MockDriver.ClearFaults(env.Ctx))
	env.Barrier()
	if !env.OnDisk(vol.Handle) {
		t.Error("WRONG DELETE: the volume was deleted after it was turned to Retain")
	}
}

func TestDriverOutageDelaysDeletion(t *testing.T) {
	env := begin(t, fixture.AboutDriver)
	car := env.StartSidecar(fixture.FastRetries()...)
	before := car.PID()
	vol := env.MakeProtected(objects.Spec{})
	env.MockDriver.Kill()
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPVEvent(vol, "VolumeFailedDelete", "")
	env.Must(env.MockDriver.Restart(env.Ctx))
	env.ExpectReclaimed(vol, 1)
	if car.PID() != before || car.Err() != nil {
		t.Errorf("the sidecar did not stay: pid %d, then %d (%v)", before, car.PID(), car.Err())
	}
}

func TestSidecarWaitsForDriverAtStart(t *testing.T) {
	env := begin(t, fixture.AboutDriver)
	vol := env.MakeVolume(objects.Spec{})
	env.MockDriver.Kill()
	car := env.LaunchSidecar()
	env.Must(car.WaitLog(env.WithTimeout(), "Waiting for the CSI driver's socket"))
	if _, err := car.Get(env.Ctx, "/healthz"); err != nil {
		t.Errorf("a sidecar that waits is alive: %v", err)
	}
	if _, err := car.Get(env.Ctx, "/readyz"); err == nil || !strings.Contains(err.Error(), "waiting for the CSI driver") {
		t.Errorf("a sidecar that waits is not ready, and says why: %v", err)
	}
	env.Must(env.MockDriver.Restart(env.Ctx, "--ready-after=1s"))
	env.Must(car.WaitReady(env.WithTimeout()))
	env.WaitProtected(vol)
	env.DeletePVFirst(vol)
	env.ExpectReclaimed(vol, 1)
}

func TestAttachedVolumeIsDeletedAfterDetach(t *testing.T) {
	env := begin(t)
	env.StartSidecar()
	vol := env.MakeProtected(objects.Spec{Change: func(pv *v1.PersistentVolume) {
		// external-attacher leaves this until the PV is terminating.
		pv.Finalizers = append(pv.Finalizers, "external-attacher/"+env.LeaseName())
	}})
	attachment := env.Attach(vol)
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPV(vol, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	before, _ := env.apiRequests(vol.Name)
	env.Barrier()
	env.ExpectKept(vol)
	if after, _ := env.apiRequests(vol.Name); len(after) != len(before) {
		t.Errorf("writes while attached: %v", after[len(before):])
	}

	// No timer ends the wait: see TestWatchEventsEnqueueWaitingPVs of pkg/reclaim.
	env.Detach(attachment)
	env.WaitPV(vol, "terminating", func(pv *v1.PersistentVolume) bool { return pv.DeletionTimestamp != nil })
	env.ExpectDeleted(vol, 1)
	// Our finalizer is removed; this removes the attacher's, as the attacher would.
	env.WaitPV(vol, "held by the attacher alone", func(pv *v1.PersistentVolume) bool { return !fixture.HasFinalizer(pv) })
}

func TestManyAttachedVolumesAreDeletedAfterDetach(t *testing.T) {
	env := begin(t, suite.Load)
	env.StartSidecar()
	vols := env.MakeVolumes(20, func(int) objects.Spec { return objects.Spec{Dynamic: true} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	attachments := map[string]*storagev1.VolumeAttachment{}
	for _, vol := range vols {
		attachments[vol.Name] = env.Attach(vol)
	}
	env.ForEachVolume(vols[:10], func(vol *objects.Volume) error { return vol.DeletePV(env.Ctx) })
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(vols, "released", fixture.IsReleased)
	before := env.WritesToPVs(env.User, vols)
	env.Barrier()
	if after := env.WritesToPVs(env.User, vols); !maps.Equal(after, before) || after["delete"] != 0 ||
		env.reads(vols) != 0 {
		t.Errorf("calls while attached: %v after %v, %d GETs", after, before, env.reads(vols))
	}
	env.ExpectKept(vols...)
	detached := map[string]time.Time{}
	for _, vol := range vols {
		env.Detach(attachments[vol.Name])
		detached[vol.Handle] = time.Now()
	}
	env.WaitAllPVs(vols, "gone", fixture.IsGone)
	var longest time.Duration
	for _, vol := range vols {
		calls := env.DeleteCalls(vol.Handle)
		if len(calls) != 1 {
			t.Fatalf("the driver received %d DeleteVolume calls for PV %s, want 1", len(calls), vol.Name)
		}
		longest = max(longest, calls[0].Received.Sub(detached[vol.Handle]))
	}
	t.Logf("the driver was called at most %v after the attachment's end", longest)
}

func TestDeletionUsesProvisionerSecret(t *testing.T) {
	env := begin(t, fixture.AboutDriver)
	env.StartSidecar(fixture.FastRetries()...)
	named := func(secret string) objects.Spec {
		return objects.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) {
			pv.Annotations["volume.kubernetes.io/provisioner-deletion-secret-name"] = secret
			pv.Annotations["volume.kubernetes.io/provisioner-deletion-secret-namespace"] = env.Namespace
		}}
	}
	env.Secrets().Create(&v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "array"}, StringData: map[string]string{"password": "x"},
	})

	vol := env.MakeProtected(named("array"))
	env.Must(vol.DeleteClaim(env.Ctx))
	// The shipped rules do not grant secrets: not readable is not absent.
	env.WaitPVEvent(vol, "APIReadFailed", "forbidden")
	env.ExpectKept(vol)

	env.GrantSecrets()
	env.ExpectReclaimed(vol, 1)
	if keys := env.DeleteCalls(vol.Handle)[0].SecretKeys; !slices.Equal(keys, []string{"password"}) {
		t.Errorf("the driver got the secrets %v, want the password", keys)
	}

	without := env.MakeProtected(named("gone"))
	env.Must(without.DeleteClaim(env.Ctx))
	env.ExpectReclaimed(without, 1)
	env.WaitPVEvent(without, "SecretNotFound", "gone")

	// The API server answers 404 for this name, too; but it never was a Secret's.
	never := env.MakeProtected(named("Not_A_Name"))
	env.Must(never.DeleteClaim(env.Ctx))
	env.WaitPVEvent(never, "SecretUnclear", "cannot be the name of a Secret")
	if env.Secrets().Find("Not_A_Name") != nil {
		t.Error("the API server has a Secret of a name that none can have")
	}
	env.ExpectKept(never)
}

// TestDeletionSecretFromStorageClass has PVs without annotations, as external-provisioner before 3.0 left them.
func TestDeletionSecretFromStorageClass(t *testing.T) {
	fixture.Begin(t, suite.Variant, fixture.AboutDriver)
	env := newForRole(t, "owner", mockdriver.Options{})
	env.StartSidecar(fixture.FastRetries()...)
	env.GrantSecrets()
	class := env.CreateStorageClass(func(class *objects.Class) {
		class.Parameters = map[string]string{
			"csi.storage.k8s.io/provisioner-secret-name":      "of-${pv.name}",
			"csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
		}
	})
	vol := env.MakeVolume(objects.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": env.Driver,
			v1.BetaStorageClassAnnotation: class}
	}})
	env.Secrets().Create(&v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "of-" + vol.Name}, StringData: map[string]string{"key": "value"},
	})
	env.WaitProtected(vol)
	env.Must(vol.DeleteClaim(env.Ctx))
	env.ExpectReclaimed(vol, 1)
	if keys := env.DeleteCalls(vol.Handle)[0].SecretKeys; !slices.Equal(keys, []string{"key"}) {
		t.Errorf("the driver got the secrets %v, want the one that the class names", keys)
	}
}

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
		env.ExpectReclaimed(vol, 1)
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
			env.Secrets().Create(&v1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "of-" + vol.ClaimName}, StringData: map[string]string{"auth-token": "xyz"},
			})
			env.WaitProtected(vol)
			if order == "PV first" {
				env.Must(vol.DeletePV(env.Ctx))
			}
			env.Must(vol.DeleteClaim(env.Ctx))
			env.ExpectReclaimed(vol, 1)
			if keys := env.DeleteCalls(vol.Handle)[0].SecretKeys; !slices.Equal(keys, []string{"auth-token"}) {
				t.Errorf("the driver got the secrets %v, want those of the Secret that the class names", keys)
			}
		})
	}
}
