//go:build unix

package provision

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestProvisionWithinResourceQuota fills the quota of a namespace with one claim: csi-reclaimer's own objects do not
// count.
func TestProvisionWithinResourceQuota(t *testing.T) {
	env := begin(t)
	env.StartSidecar(fixture.FastRetries()...)
	class := env.CreateStorageClass()
	users := env.inOtherNamespace()
	users.ResourceQuotas().Create(&v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"},
		Spec: v1.ResourceQuotaSpec{Hard: v1.ResourceList{
			v1.ResourcePersistentVolumeClaims: resource.MustParse("1"), v1.ResourceRequestsStorage: resource.MustParse("1Mi"),
		}}})
	// The admission of claims observes the quota with a watch of its own.
	admits := func(size string) bool {
		spec := objects.ClaimFor(class)
		spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse(size)
		_, err := users.Claims().DryRun(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: spec})
		return err == nil
	}
	env.Eventually("the quota is in force", func() bool { return !admits("2Mi") })
	for range 2 { // one after another
		claim := users.CreateClaim(class)
		if _, err := users.TryCreateClaim(class); !apierrors.IsForbidden(err) {
			t.Fatalf("a second claim: %v, want it refused by the quota", err)
		}
		vol := users.WaitBound(claim)
		users.MustDeleteClaim(claim)
		env.Must(vol.WaitGone(env.WithTimeout()))
		users.WaitClaim(claim, "gone", fixture.ClaimIsGone)
		users.ExpectNothingLeft(claim)
		env.Eventually("the quota is free", func() bool { return admits("1Mi") })
	}
	refused := env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool { return e.Code == 403 })
	if len(refused) > 0 {
		t.Errorf("refused: %+v", refused)
	}
}

// TestProvisionInTerminatingNamespace deletes a namespace during CreateVolume.
func TestProvisionInTerminatingNamespace(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	t.Run("nothing is left", func(t *testing.T) {
		env := begin(t)
		env.StartSidecar(fixture.FastRetries()...)
		users, class := env.inOtherNamespace(), env.CreateStorageClass()
		users.WaitBound(users.CreateClaim(class))
		env.SetFaults(fixture.BlockCreateVolume(true))
		var claims []*objects.Claim
		for range 8 {
			claims = append(claims, users.CreateClaim(class))
		}
		env.Eventually("some volumes are there, unseen", func() bool { return len(env.VolumesOnDisk()) > 2 })
		users.DeleteNamespace()
		users.WaitNamespaceGone()
		env.Must(env.MockDriver.ClearFaults(env.Ctx))
		for _, claim := range claims {
			users.waitVolumeGone(claim)
		}
		env.Eventually("all volumes are gone", func() bool { return len(env.VolumesOnDisk()) == 0 })
	})
	t.Run("a Secret deleted first delays the in-flight volume, not the namespace",
		func(t *testing.T) {
			fixture.Begin(t, suite.Variant)
			env := newForRole(t, "owner", mockdriver.Options{Args: []string{"--require-secret=password=hunter2"}})
			car := env.StartSidecar(fixture.FastRetries()...)
			users, vault := env.inOtherNamespace(), env.inOtherNamespace()
			vault.secret("credentials", map[string]string{"password": "hunter2"})
			class := env.CreateStorageClass(func(class *objects.Class) {
				class.Parameters = map[string]string{
					"csi.storage.k8s.io/provisioner-secret-name":      "credentials",
					"csi.storage.k8s.io/provisioner-secret-namespace": vault.Namespace,
				}
			})
			claim := users.claimWithLostAnswer(class)
			vault.Secrets().Delete("credentials")
			users.DeleteNamespace()
			users.WaitNamespaceGone()
			env.Must(env.MockDriver.ClearFaults(env.Ctx))
			// No Event can be made in a namespace that is gone. The log of the program shows the reason.
			env.Must(car.WaitLog(env.WithTimeout(), `reason="`+string(provisioningOutcomeUnknown)+`"`))
			if !env.IsInFlight(claim) || len(env.VolumesOnDisk()) != 1 {
				t.Fatal("the entry was closed while the volume is left, or the volume was deleted without its Secret")
			}
			vault.Secrets().Create(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "credentials"},
				StringData: map[string]string{"password": "hunter2"}})
			env.waitSettled(claim)
			env.waitVolumeGone(claim)
		})
}

// provisioningOutcomeUnknown is the reason while it is not known whether a volume was made.
const provisioningOutcomeUnknown = "ProvisioningOutcomeUnknown"

// secret makes a Secret that the sidecar may read wherever it lies, so that it is gone for no other reason than that it
// is gone.
func (env *environment) secret(name string, values map[string]string) {
	env.T.Helper()
	env.Secrets().Create(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: values})
	env.InNamespace(env.DriverNamespace).Grant("secrets-"+env.Namespace, "csi-reclaimer", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name}, Verbs: []string{"get"}})
}

// loseCreateAnswers has the driver create volumes and lose its answers.
func loseCreateAnswers() faults.Rule {
	return faults.Rule{Method: "CreateVolume", Action: faults.Fail, AfterWork: true, Code: "DeadlineExceeded"}
}

// TestWatchedClaimDeletionSkipsRead expects the deletion to read only the PV if the watch has shown the claim's end. A
// restored claim that names the PV still keeps its volume.
func TestWatchedClaimDeletionSkipsRead(t *testing.T) {
	env := begin(t, fixture.AboutRequests)
	env.StartSidecar(fixture.FastRetries()...)
	class := env.CreateStorageClass()
	for name, restored := range map[string]bool{"gone": false, "restored": true} {
		t.Run(name, func(t *testing.T) {
			env := env.forSubtest(t)
			vol := env.WaitBound(env.CreateClaim(class))
			env.Eventually("the audit log has the reads before the volume was created", func() bool {
				return slices.ContainsFunc(env.WritesTo(0, "persistentvolumes"), func(e controlplane.AuditEvent) bool {
					return e.Name == vol.Name
				})
			})
			provisioned := len(env.readClaimAndPV(vol))
			env.AnnotatePV(vol.Volume, volume.HoldAnnotation, "until the watch of claims has shown what follows")
			deleted := time.Now()
			env.MustDeleteClaim(vol.BoundClaim)
			env.WaitPV(vol.Volume, "released", fixture.IsReleased)
			if restored {
				env.Claims().Create(&v1.PersistentVolumeClaim{
					ObjectMeta: metav1.ObjectMeta{Name: vol.BoundClaim.Name},
					Spec: v1.PersistentVolumeClaimSpec{
						VolumeName: vol.Name, StorageClassName: &class, AccessModes: vol.BoundPV.Spec.AccessModes,
						Resources: v1.VolumeResourceRequirements{Requests: vol.BoundPV.Spec.Capacity},
					},
				})
			}
			env.WaitBound(env.CreateClaim(class)) // a later event of the same watch
			unheld := time.Now()
			env.AnnotatePV(vol.Volume, volume.HoldAnnotation, "")
			if restored {
				env.WaitPVEvent(vol.Volume, "ClaimNamesPV", "")
				if !env.OnDisk(vol.Handle) {
					t.Error("WRONG DELETE: the restored claim names the PV")
				}
				env.Claims().Delete(vol.BoundClaim.Name)
			}
			env.Must(vol.WaitGone(env.WithTimeout()))
			old := time.Since(deleted) >= session.LiveFor // an end that was watched so long ago is read again
			env.Eventually("the end of the PV is in the audit log", func() bool {
				return slices.ContainsFunc(env.WritesTo(0, "persistentvolumes"), func(e controlplane.AuditEvent) bool {
					return e.Name == vol.Name && !e.Received.Before(unheld)
				})
			})
			read := env.readClaimAndPV(vol)[provisioned:]
			if got := slices.Contains(read, "persistentvolumeclaims"); got != restored && (!got || !old) ||
				!slices.Contains(read, "persistentvolumes") {
				t.Errorf("read %q to delete the volume; want the claim read: %v", read, restored)
			}
		})
	}
}

// readClaimAndPV returns which of a volume's claim and PV the sidecar has read, by their resources.
func (env *environment) readClaimAndPV(vol *fixture.Provisioned) (resources []string) {
	env.T.Helper()
	env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
		if e.Verb == "get" && (e.Name == vol.Name || e.Name == vol.BoundClaim.Name) {
			resources = append(resources, e.Resource)
		}
		return false
	})
	return resources
}
