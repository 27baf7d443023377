//go:build unix

package provision

import (
	"os"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m)) }

// environment is the environment of a test, with the helpers of this suite.
type environment struct{ *fixture.Environment }

// begin returns the environment of a test that runs beside the others, if the conditions hold.
func begin(t *testing.T, conditions ...fixture.Condition) *environment {
	t.Helper()
	fixture.Begin(t, conditions...)
	return &environment{fixture.New(t)}
}

func newForRole(t *testing.T, role string, options mockdriver.Options) *environment {
	t.Helper()
	return &environment{fixture.NewForRole(t, role, options)}
}

func (env *environment) inOtherNamespace() *environment {
	return &environment{env.InOtherNamespace()}
}

func (env *environment) forSubtest(t *testing.T) *environment {
	return &environment{env.ForSubtest(t)}
}

func withParameter(key, value string) func(*objects.Class) {
	return func(class *objects.Class) { class.Parameters = map[string]string{key: value} }
}

func withRetainPolicy(class *objects.Class) { class.Policy = v1.PersistentVolumeReclaimRetain }

func withSize(size string) func(*objects.ClaimSpec) {
	return func(spec *objects.ClaimSpec) { spec.Size = size }
}

func withBlockMode(spec *objects.ClaimSpec) { spec.Block = true }

// waitSettled waits until the in-flight log has no entry for a claim.
func (env *environment) waitSettled(claim *objects.Claim) {
	env.T.Helper()
	env.Eventually("the entry of claim "+claim.Name+" is settled", func() bool { return !env.IsInFlight(claim) })
}

// claimWithLostAnswer creates a claim's volume and loses the driver's answer.
func (env *environment) claimWithLostAnswer(class string, changes ...func(*objects.ClaimSpec)) *objects.Claim {
	env.T.Helper()
	env.SetFaults(loseCreateAnswers())
	claim := env.CreateClaim(class, changes...)
	env.waitOneVolume()
	return claim
}

// waitOneVolume waits until the driver has made one volume.
func (env *environment) waitOneVolume() {
	env.T.Helper()
	env.Eventually("the volume is on the disk", func() bool { return len(env.VolumesOnDisk()) == 1 })
}

// expectDeletable deletes a claim, and waits until it is gone.
func (env *environment) expectDeletable(claim *objects.Claim) {
	env.T.Helper()
	env.MustDeleteClaim(claim)
	env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
}

// volumeOnDisk returns a volume as the driver's disk has it, empty if it is not there.
func (env *environment) volumeOnDisk(vol *fixture.Provisioned) backend.Volume {
	env.T.Helper()
	volumes, err := env.MockDriver.Volumes()
	env.Must(err)
	for _, v := range volumes {
		if v.ID == vol.Handle {
			return v
		}
	}
	return backend.Volume{}
}

// waitCreateCall waits until the driver was asked for a claim's volume.
func (env *environment) waitCreateCall(claim *objects.Claim) {
	env.T.Helper()
	env.Eventually("the driver is asked for the volume", func() bool { return len(env.CreateCalls(claim)) > 0 })
}

// waitVolumeGone waits until neither a PV nor a volume is left of a claim.
func (env *environment) waitVolumeGone(claim *objects.Claim) {
	env.T.Helper()
	env.Eventually("the volume and the PV of claim "+claim.Name+" are gone", func() bool {
		volumes, err := env.MockDriver.Volumes()
		env.Must(err)
		return env.PVs().Find(fixture.PVName(claim)) == nil && !slices.ContainsFunc(volumes,
			func(v backend.Volume) bool { return v.Name == fixture.PVName(claim) })
	})
}
