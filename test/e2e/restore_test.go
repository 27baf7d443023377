//go:build unix

package e2e

import (
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// restore creates the claim of a volume again, as a backup has it: with the same name and spec, and a new UID.
func (s *stage) restore(vol *storage.Volume, change func(*v1.PersistentVolumeClaim)) *storage.Claim {
	s.t.Helper()
	claim, err := s.MakeClaim(s.soon(), storage.ClaimSpec{Name: vol.ClaimName, Change: func(c *v1.PersistentVolumeClaim) {
		c.Spec.VolumeName = vol.Name
		if change != nil {
			change(c)
		}
	}})
	s.must(err)
	return claim
}

// unclaim deletes the claims of volumes while no sidecar runs, and waits until the PV controller has seen it.
func (s *stage) unclaim(vols ...*storage.Volume) {
	s.t.Helper()
	s.all(vols, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll(vols, "released", isReleased)
}

// finalized is a PV that carries the finalizer from the beginning.
func finalized(pv *v1.PersistentVolume) { pv.Finalizers = []string{volume.Finalizer} }

// boundBefore marks a claim as one that was bound when the backup was made.
func boundBefore(c *v1.PersistentVolumeClaim) {
	c.Annotations = map[string]string{
		"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
	}
}

func inPhase(phase v1.PersistentVolumeClaimPhase) func(*v1.PersistentVolumeClaim) bool {
	return func(c *v1.PersistentVolumeClaim) bool { return c != nil && c.Status.Phase == phase }
}

// mergeClaim patches a claim.
func (s *stage) mergeClaim(claim *storage.Claim, patch string) error {
	_, err := s.client.CoreV1().PersistentVolumeClaims(s.Namespace).Patch(
		s.ctx, claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// bindCommand is how people are told to bind a PV to its claim again.
var bindCommand = regexp.MustCompile(`kubectl patch pv (\S+) -p '(\{.*?\})'`)

// bindAsTold carries out the command that a text has for the PV.
func (s *stage) bindAsTold(vol *storage.Volume, text string) {
	s.t.Helper()
	command := bindCommand.FindStringSubmatch(text)
	if command == nil || command[1] != vol.Name {
		s.t.Fatalf("no command to bind PV %s is in: %s", vol.Name, text)
	}
	_, err := s.client.CoreV1().PersistentVolumes().Patch(
		s.ctx, vol.Name, types.StrategicMergePatchType, []byte(command[2]), metav1.PatchOptions{})
	s.must(err)
}

// TestARestoredClaimKeepsTheVolume has claims that a backup brought back: with a new UID, naming a PV whose
// claimRef has the old one. The PV controller calls such a PV Released.
func TestARestoredClaimKeepsTheVolume(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cases := map[string]struct {
		dynamic, pvFirst bool
		claim            func(*v1.PersistentVolumeClaim)
		phase            v1.PersistentVolumeClaimPhase
	}{
		"as it was in the backup":                             {true, false, boundBefore, v1.ClaimLost},
		"as it was in the backup, of a static PV":             {false, false, boundBefore, v1.ClaimLost},
		"as it was in the backup, while the PV terminates":    {true, true, boundBefore, v1.ClaimLost},
		"without annotations":                                 {true, false, nil, v1.ClaimPending},
		"without annotations, of a static PV that terminates": {false, true, nil, v1.ClaimPending},
	}
	vols, claims := map[string]*storage.Volume{}, map[string]*storage.Claim{}
	for name, c := range cases {
		vols[name] = s.make(storage.Spec{Dynamic: c.dynamic, Change: finalized})
		s.unclaim(vols[name])
		claims[name] = s.restore(vols[name], c.claim)
		if c.pvFirst {
			s.must(vols[name].DeletePV(s.ctx))
		}
	}
	car := s.sidecar(eager()...)
	s.metric(car, `csi_reclaimer_waiting_pvs{driver_name="`+s.Driver+`",reason="ClaimNamesPV"}`, "5")
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			vol, claim := vols[name], claims[name]
			s.must(claim.Wait(s.soon(), string(c.phase), inPhase(c.phase)))
			s.waitEvent(vol, "ClaimNamesPV", string(claim.UID))
			s.expectKept(vol)
			s.bindAsTold(vol, s.events(vol, "ClaimNamesPV")[0].Message)
			s.waitPV(vol, "bound", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeBound })
			bound, err := claim.WaitBound(s.soon())
			s.must(err)
			if bound.Name != vol.Name {
				t.Errorf("the claim is bound to PV %s, want %s", bound.Name, vol.Name)
			}
			s.fence()
			s.expectKept(vol)
			// From now on it is the claim of the PV, and takes the volume along.
			s.must(claim.Delete(s.ctx))
			s.must(vol.WaitGone(s.soon()))
			s.expectDeleted(vol, 1)
		})
	}
}

// TestRemovingTheUIDDoesNotBindEveryRestoredClaim is why the advice is to write the UID.
func TestRemovingTheUIDDoesNotBindEveryRestoredClaim(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	lost, pending := s.make(storage.Spec{}), s.make(storage.Spec{})
	s.unclaim(lost, pending)
	before, after := s.restore(lost, boundBefore), s.restore(pending, nil)
	s.must(before.Wait(s.soon(), "lost", inPhase(v1.ClaimLost)))
	for _, vol := range []*storage.Volume{lost, pending} {
		_, err := s.client.CoreV1().PersistentVolumes().Patch(s.ctx, vol.Name, types.StrategicMergePatchType,
			[]byte(`{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`), metav1.PatchOptions{})
		s.must(err)
	}
	_, err := after.WaitBound(s.soon())
	s.must(err)
	s.waitPV(lost, "available", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeAvailable })
	// The PV controller looks at the claim once more.
	s.must(s.mergeClaim(before, `{"metadata":{"labels":{"look":"again"}}}`))
	s.make(storage.Spec{})
	claim, err := before.Get(s.ctx)
	s.must(err)
	if claim == nil || claim.Status.Phase != v1.ClaimLost {
		t.Errorf("the claim is %s: to remove the UID is enough", storage.DescribeClaim(claim))
	}
}

// TestARestoredClaimThatGoesTakesTheVolumeAlong also has a claim that is being deleted and still lives.
func TestARestoredClaimThatGoesTakesTheVolumeAlong(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	vol, another := s.make(storage.Spec{Dynamic: true}), s.make(storage.Spec{Dynamic: true})
	s.unclaim(vol, another)
	claim := s.restore(vol, func(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{"example.com/keep"} })
	// A claim that only has the name keeps nothing.
	_, err := s.MakeClaim(s.ctx, storage.ClaimSpec{Name: another.ClaimName, Class: "none-of-this-name"})
	s.must(err)
	s.sidecar(eager()...)
	s.must(another.WaitGone(s.soon()))
	s.expectDeleted(another, 1)
	s.waitEvent(vol, "ClaimNamesPV", string(claim.UID))
	said := s.told("explain", "pv/"+vol.Name)
	s.expectTold(said, "waits (ClaimNamesPV)", "kubectl delete pvc "+vol.ClaimName)
	if command := bindCommand.FindString(said); !strings.Contains(command, string(claim.UID)) {
		t.Errorf("the command to bind the PV is not told:\n%s", said)
	}
	if s.mergeClaim(claim, `{"spec":{"volumeName":"elsewhere"}}`) == nil {
		t.Error("the API server changes spec.volumeName of a claim: that would be a way out to tell of")
	}
	s.must(claim.Delete(s.ctx))
	s.expectTold(s.told("explain", "pv/"+vol.Name), "The claim is being deleted and waits as well")
	s.fence()
	s.expectKept(vol)
	s.must(s.mergeClaim(claim, `{"metadata":{"finalizers":null}}`))
	s.must(vol.WaitGone(s.soon()))
	s.expectDeleted(vol, 1)
}

// TestARestoredClaimKeepsTheVolumeOfAnotherPV has two PVs of one volume, of which one is to be deleted and the other
// one's claim was restored. Both are Released.
func TestARestoredClaimKeepsTheVolumeOfAnotherPV(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	vol := s.make(storage.Spec{})
	another := s.make(storage.Spec{Handle: vol.Handle})
	s.unclaim(vol, another)
	claim := s.restore(another, nil)
	s.sidecar(eager()...)
	s.waitEvent(another, "ClaimNamesPV", string(claim.UID))
	s.waitEvent(vol, "SharedHandle", another.Name)
	s.expectTold(s.told("explain", "pv/"+vol.Name), "waits (SharedHandle)", another.Name)
	s.fence()
	s.expectKept(vol)
	s.must(claim.Delete(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	s.must(another.WaitGone(s.soon()))
	if s.onDisk(vol.Handle) {
		t.Errorf("LEAK: volume %s is still on the driver's disk", vol.Handle)
	}
}

// TestARestoredClaimKeepsTheVolumeOfAPVThatVanishes turns policies and deletes the PVs at once, so that some go
// before they can be protected.
func TestARestoredClaimKeepsTheVolumeOfAPVThatVanishes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	vols := s.makeMany(20, func(int) storage.Spec { return storage.Spec{Policy: v1.PersistentVolumeReclaimRetain} })
	s.unclaim(vols...)
	for _, vol := range vols {
		s.restore(vol, nil)
		s.must(vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimDelete))
		s.must(s.deletePV(vol))
	}
	gone := 0
	for _, vol := range vols {
		s.waitEvent(vol, "ClaimNamesPV", "delete the claim")
		if pv, err := vol.PV(s.ctx); err == nil && pv == nil {
			gone++
		}
		s.expectKept(vol)
	}
	t.Logf("%d of %d PVs were gone before they could be protected", gone, len(vols))
	s.all(vols, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.eventually("no volume is left", func() bool {
		disk := s.onDiskAll()
		for _, vol := range vols {
			if disk[vol.Handle] {
				return false
			}
		}
		return true
	})
}
