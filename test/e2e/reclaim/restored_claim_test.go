//go:build unix

package reclaim

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// recreateClaim creates the claim of a volume again, as a backup has it: with the same name and spec, and a new UID.
func (env *environment) recreateClaim(vol *objects.Volume, change func(*v1.PersistentVolumeClaim)) *objects.Claim {
	env.T.Helper()
	claim, err := env.MakeClaim(env.WithTimeout(),
		objects.ClaimSpec{Name: vol.ClaimName, Change: func(c *v1.PersistentVolumeClaim) {
			c.Spec.VolumeName = vol.Name
			if change != nil {
				change(c)
			}
		}})
	env.Must(err)
	return claim
}

// deleteClaims deletes the claims of volumes while no sidecar runs, and waits until the PV controller has seen it.
func (env *environment) deleteClaims(vols ...*objects.Volume) {
	env.T.Helper()
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(vols, "released", fixture.IsReleased)
}

// withFinalizer is a PV that carries the finalizer from the beginning.
func withFinalizer(pv *v1.PersistentVolume) { pv.Finalizers = []string{volume.Finalizer} }

// withBoundAnnotations marks a claim as bound at the time of the backup.
func withBoundAnnotations(c *v1.PersistentVolumeClaim) {
	c.Annotations = map[string]string{
		"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
	}
}

func inPhase(phase v1.PersistentVolumeClaimPhase) func(*v1.PersistentVolumeClaim) bool {
	return func(c *v1.PersistentVolumeClaim) bool { return c != nil && c.Status.Phase == phase }
}

// TestRestoredClaimKeepsVolume restores claims from a backup: with a new UID, naming a PV whose claimRef has the old
// UID. The PV controller sets such a PV to Released.
func TestRestoredClaimKeepsVolume(t *testing.T) {
	env := begin(t)
	cases := map[string]struct {
		dynamic, pvFirst bool
		claim            func(*v1.PersistentVolumeClaim)
		phase            v1.PersistentVolumeClaimPhase
	}{
		"as it was in the backup":                             {true, false, withBoundAnnotations, v1.ClaimLost},
		"as it was in the backup, of a static PV":             {false, false, withBoundAnnotations, v1.ClaimLost},
		"as it was in the backup, while the PV terminates":    {true, true, withBoundAnnotations, v1.ClaimLost},
		"without annotations":                                 {true, false, nil, v1.ClaimPending},
		"without annotations, of a static PV that terminates": {false, true, nil, v1.ClaimPending},
	}
	vols, claims := map[string]*objects.Volume{}, map[string]*objects.Claim{}
	for name, c := range cases {
		vols[name] = env.MakeVolume(objects.Spec{Dynamic: c.dynamic, Change: withFinalizer})
		env.deleteClaims(vols[name])
		claims[name] = env.recreateClaim(vols[name], c.claim)
		if c.pvFirst {
			env.Must(vols[name].DeletePV(env.Ctx))
		}
	}
	car := env.StartSidecar(fixture.FastRetries()...)
	env.WaitMetric(car, `csi_reclaimer_waiting_pvs{driver_name="`+env.Driver+`",reason="ClaimNamesPV"}`, "5")
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			env := env.forSubtest(t)
			vol, claim := vols[name], claims[name]
			env.Must(claim.Wait(env.WithTimeout(), string(c.phase), inPhase(c.phase)))
			env.WaitPVEvent(vol, "ClaimNamesPV", string(claim.UID))
			env.ExpectKept(vol)
			env.RunBindCommand(vol, env.PVEvents(vol, "ClaimNamesPV")[0].Message)
			env.WaitPV(vol, "bound", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeBound })
			bound, err := claim.WaitBound(env.WithTimeout())
			env.Must(err)
			if bound.Name != vol.Name {
				t.Errorf("the claim is bound to PV %s, want %s", bound.Name, vol.Name)
			}
			env.Barrier()
			env.ExpectKept(vol)
			// From now on it is the claim of the PV, and takes the volume along.
			env.Must(claim.Delete(env.Ctx))
			env.ExpectReclaimed(vol, 1)
		})
	}
}

// A claim that is already Lost stays so if the UID is only cleared. This is why the Event advises to write the new UID.
func TestClearingClaimRefUIDDoesNotBindEveryRestoredClaim(t *testing.T) {
	env := begin(t)
	lost, pending := env.MakeVolume(objects.Spec{}), env.MakeVolume(objects.Spec{})
	env.deleteClaims(lost, pending)
	before, after := env.recreateClaim(lost, withBoundAnnotations), env.recreateClaim(pending, nil)
	env.Must(before.Wait(env.WithTimeout(), "lost", inPhase(v1.ClaimLost)))
	for _, vol := range []*objects.Volume{lost, pending} {
		env.PVs().Patch(vol.Name, `{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
	}
	_, err := after.WaitBound(env.WithTimeout())
	env.Must(err)
	env.WaitPV(lost, "available", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeAvailable })
	// The PV controller reconciles the claim once more.
	env.Claims().Label(before.Name, map[string]string{"look": "again"})
	env.MakeVolume(objects.Spec{})
	claim, err := before.Get(env.Ctx)
	env.Must(err)
	if claim == nil || claim.Status.Phase != v1.ClaimLost {
		t.Errorf("the claim is %s: to remove the UID is enough", objects.DescribeClaim(claim))
	}
}

// TestDeletedRestoredClaimDeletesVolume includes a claim that is terminating and not yet gone.
func TestDeletedRestoredClaimDeletesVolume(t *testing.T) {
	env := begin(t)
	vol, another := env.MakeVolume(objects.Spec{Dynamic: true}), env.MakeVolume(objects.Spec{Dynamic: true})
	env.deleteClaims(vol, another)
	claim := env.recreateClaim(vol, func(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{"example.com/keep"} })
	// A claim that only has the name keeps nothing.
	_, err := env.MakeClaim(env.Ctx, objects.ClaimSpec{Name: another.ClaimName, Class: "none-of-this-name"})
	env.Must(err)
	env.StartSidecar(fixture.FastRetries()...)
	env.ExpectReclaimed(another, 1)
	env.WaitPVEvent(vol, "ClaimNamesPV", string(claim.UID))
	output := env.RunPlugin("explain", "pv/"+vol.Name)
	env.ExpectOutput(output, "waits (ClaimNamesPV)", "kubectl delete pvc "+vol.ClaimName)
	if command := fixture.BindCommand.FindString(output); !strings.Contains(command, string(claim.UID)) {
		t.Errorf("there is no command to bind the PV:\n%s", output)
	}
	if _, err := env.Claims().TryMerge(claim.Name, `{"spec":{"volumeName":"elsewhere"}}`); err == nil {
		t.Error("the API server changes spec.volumeName of a claim: that would be another way to bind the PV")
	}
	env.Must(claim.Delete(env.Ctx))
	env.ExpectOutput(env.RunPlugin("explain", "pv/"+vol.Name), "The claim is terminating and waits, too")
	env.Barrier()
	env.ExpectKept(vol)
	env.Claims().SetFinalizers(claim.Name)
	env.ExpectReclaimed(vol, 1)
}

// TestRestoredClaimKeepsVolumeSharedWithAnotherPV has two Released PVs of one volume. One PV is deleted; the claim of
// the other was restored.
func TestRestoredClaimKeepsVolumeSharedWithAnotherPV(t *testing.T) {
	env := begin(t)
	vol := env.MakeVolume(objects.Spec{})
	another := env.MakeVolume(objects.Spec{Handle: vol.Handle})
	env.deleteClaims(vol, another)
	claim := env.recreateClaim(another, nil)
	env.StartSidecar(fixture.FastRetries()...)
	env.WaitPVEvent(another, "ClaimNamesPV", string(claim.UID))
	env.WaitPVEvent(vol, "SharedHandle", another.Name)
	env.ExpectOutput(env.RunPlugin("explain", "pv/"+vol.Name), "waits (SharedHandle)", another.Name)
	env.Barrier()
	env.ExpectKept(vol)
	env.Must(claim.Delete(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.Must(another.WaitGone(env.WithTimeout()))
	if env.OnDisk(vol.Handle) {
		t.Errorf("LEAK: volume %s is still on the driver's disk", vol.Handle)
	}
}

// TestRestoredClaimKeepsVolumeOfPVDeletedBeforeProtection changes policies and deletes the PVs at once, so that some
// are removed before the sidecar protects them.
func TestRestoredClaimKeepsVolumeOfPVDeletedBeforeProtection(t *testing.T) {
	env := begin(t, suite.Variant)
	env.StartSidecar(fixture.FastRetries()...)
	vols := env.MakeVolumes(20, func(int) objects.Spec { return objects.Spec{Policy: v1.PersistentVolumeReclaimRetain} })
	env.deleteClaims(vols...)
	for _, vol := range vols {
		env.recreateClaim(vol, nil)
		env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete))
		env.Must(env.DeletePVIfPresent(vol))
	}
	gone := 0
	for _, vol := range vols {
		env.WaitPVEvent(vol, "ClaimNamesPV", "delete the claim")
		if pv, err := vol.PV(env.Ctx); err == nil && pv == nil {
			gone++
		}
		env.ExpectKept(vol)
	}
	t.Logf("%d of %d PVs were gone before they could be protected", gone, len(vols))
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.waitNoVolumes(vols)
}
