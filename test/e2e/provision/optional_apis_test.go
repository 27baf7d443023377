//go:build unix

package provision

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// naming has a claim name a VolumeAttributesClass.
func naming(attributes string) func(*objects.ClaimSpec) {
	return func(spec *objects.ClaimSpec) {
		spec.Change = func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &attributes }
	}
}

// TestProvisionWithoutVolumeAttributesClassGate expects a volume without a class, whose name the API server drops.
func TestProvisionWithoutVolumeAttributesClassGate(t *testing.T) {
	if !fixture.Version().Before(controlplane.V1_34) {
		t.Skip("VolumeAttributesClass is on by default from 1.34 on")
	}
	env := begin(t)
	env.StartSidecar(fixture.FastRetries()...)
	vol := env.WaitBound(env.CreateClaim(env.CreateStorageClass(), naming("gold")))
	if got := vol.BoundPV.Spec.VolumeAttributesClassName; got != nil {
		t.Errorf("the PV names class %q, want none", *got)
	}
	env.MustDeleteClaim(vol.BoundClaim)
	env.Must(vol.WaitGone(env.WithTimeout()))
}

// TestProvisionWithVolumeAttributesClass expects the driver to get the parameters of the claim's class, and the PV to
// name the class, too.
func TestProvisionWithVolumeAttributesClass(t *testing.T) {
	fixture.From(t, controlplane.V1_34, "VolumeAttributesClass")
	env := begin(t)
	env.StartSidecar(fixture.FastRetries()...)
	gold := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold-" + env.Namespace},
		DriverName: env.Driver, Parameters: map[string]string{"tier": "gold"}}
	env.VolumeAttributesClasses().CreateForTest(gold)

	vol := env.WaitBound(env.CreateClaim(env.CreateStorageClass(), naming(gold.Name)))
	if got := ptr.Deref(vol.BoundPV.Spec.VolumeAttributesClassName, ""); got != gold.Name {
		t.Errorf("the PV names class %q, want %q", got, gold.Name)
	}
	volumes, err := env.MockDriver.Volumes()
	env.Must(err)
	if len(volumes) != 1 || !maps.Equal(volumes[0].Mutable, gold.Parameters) {
		t.Errorf("the driver has volumes %+v, want one with %v", volumes, gold.Parameters)
	}
	env.MustDeleteClaim(vol.BoundClaim)
	env.Must(vol.WaitGone(env.WithTimeout()))
}

// withoutAttributesClasses is a control plane that does not serve v1 of VolumeAttributesClass, but stores which one a
// claim names. Before 1.34 that takes its gate, which is off by default.
func withoutAttributesClasses(v controlplane.Version) controlplane.Options {
	var options controlplane.Options
	if !v.Before(controlplane.V1_32) { // the first that protects classes in use
		options.Controllers = []string{"*", "-volumeattributesclass-protection-controller"}
	}
	if v.Before(controlplane.V1_34) {
		gate := []string{"--feature-gates=VolumeAttributesClass=true"}
		options.APIServerArgs, options.ControllerManagerArgs = gate, gate
	} else {
		options.APIServerArgs = []string{"--runtime-config=storage.k8s.io/v1/volumeattributesclasses=false"}
	}
	return options
}

// TestProvisionWithoutVolumeAttributesClassAPI expects a log line at the start, an Event on a claim that names a class,
// and volumes for all others.
func TestProvisionWithoutVolumeAttributesClassAPI(t *testing.T) {
	t.Parallel()
	env := &environment{fixture.NewWithControlPlane(t, fixture.Version(), withoutAttributesClasses(fixture.Version()))}
	env.UseDriver(mockdriver.Options{Name: "without-attributes.csi-reclaimer.io"})
	env.CreateServiceAccount("csi-reclaimer")
	env.GrantRole("owner")
	car := env.StartSidecar(fixture.FastRetries()...)
	env.Must(car.WaitLog(env.WithTimeout(), "VolumeAttributesClass is off"))
	class := env.CreateStorageClass()
	vol := env.WaitBound(env.CreateClaim(class))
	waits := env.CreateClaim(class, naming("gold"))
	env.WaitClaimEvent(waits, "ProvisioningFailed", "does not serve that API")
	env.MustDeleteClaim(waits)
	env.MustDeleteClaim(vol.BoundClaim)
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectNothingLeft(waits)
	env.ExpectNothingLeft(vol.BoundClaim)
}

// TestProvisionIgnoresClaimForVolumePopulator expects no volume, and an Event that names the program that creates it.
func TestProvisionIgnoresClaimForVolumePopulator(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	env.StartSidecar(fixture.FastRetries()...)
	group := "backup.example.com"
	claim := env.CreateClaim(env.CreateStorageClass(), func(spec *objects.ClaimSpec) {
		spec.Change = func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &v1.TypedObjectReference{APIGroup: &group, Kind: "Backup", Name: "monday"}
		}
	})
	env.WaitClaimEvent(claim, "LeftToPopulator", `Backup "monday"`)
	env.MustDeleteClaim(claim)
	env.ExpectNothingLeft(claim)
	if made := env.CreateCalls(claim); len(made) > 0 {
		t.Errorf("the driver was asked: %+v", made)
	}
}

// TestProvisionSetsSecretForControllerModifyVolume uses classes that name a Secret for ControllerModifyVolume.
// external-resizer reads it from the PV's annotations.
func TestProvisionSetsSecretForControllerModifyVolume(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	env.StartSidecar(fixture.FastRetries()...)
	const (
		annotation = "volume.kubernetes.io/controller-modify-secret-"
		parameter  = "csi.storage.k8s.io/controller-modify-secret-"
	)
	class := env.CreateStorageClass(func(c *objects.Class) {
		c.Parameters = map[string]string{parameter + "name": "of-${pvc.name}", parameter + "namespace": "${pvc.namespace}"}
	})
	vol := env.WaitBound(env.CreateClaim(class))
	if got := vol.BoundPV.Annotations; got[annotation+"name"] != "of-"+vol.BoundClaim.Name ||
		got[annotation+"namespace"] != env.Namespace {
		t.Errorf("annotations %v", got)
	}
	without := env.WaitBound(env.CreateClaim(env.CreateStorageClass()))
	if _, found := without.BoundPV.Annotations[annotation+"name"]; found {
		t.Errorf("annotations %v of a class that names no Secret", without.BoundPV.Annotations)
	}
}
