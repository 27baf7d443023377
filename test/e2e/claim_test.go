//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// class makes a StorageClass of the stage's driver, which goes with the test.
func (s *stage) class(changes ...func(*storage.Class)) string {
	s.t.Helper()
	class := storage.Class{Name: "class-" + rand.String(8)}
	for _, change := range changes {
		change(&class)
	}
	_, err := s.MakeClass(s.ctx, class)
	s.must(err)
	s.t.Cleanup(func() {
		_ = s.client.StorageV1().StorageClasses().Delete(s.clean(), class.Name, metav1.DeleteOptions{})
	})
	return class.Name
}

func parameter(key, value string) func(*storage.Class) {
	return func(class *storage.Class) { class.Parameters = map[string]string{key: value} }
}

func keep(class *storage.Class) { class.Policy = v1.PersistentVolumeReclaimRetain }

func lateBinding(class *storage.Class) { class.WaitForPod = true }

// claim makes a claim that asks for a volume of the class.
func (s *stage) claim(class string, changes ...func(*storage.ClaimSpec)) *storage.Claim {
	s.t.Helper()
	claim, err := s.tryClaim(class, changes...)
	s.must(err)
	return claim
}

func (s *stage) tryClaim(class string, changes ...func(*storage.ClaimSpec)) (*storage.Claim, error) {
	spec := storage.ClaimSpec{Name: "claim-" + rand.String(8), Class: class}
	for _, change := range changes {
		change(&spec)
	}
	return s.MakeClaim(s.ctx, spec)
}

func cloneOf(source *storage.Claim) func(*storage.ClaimSpec) {
	return func(spec *storage.ClaimSpec) { spec.From = storage.FromClaim(source.Name) }
}

func ofSize(size string) func(*storage.ClaimSpec) {
	return func(spec *storage.ClaimSpec) { spec.Size = size }
}

func block(spec *storage.ClaimSpec) { spec.Block = true }

// volumeName is the name of a claim's PV and volume.
func volumeName(claim *storage.Claim) string { return "pvc-" + string(claim.UID) }

// waitClaim waits until a claim is as wanted; want gets nil for one that is gone.
func (s *stage) waitClaim(claim *storage.Claim, what string, want func(*v1.PersistentVolumeClaim) bool) {
	s.t.Helper()
	if err := claim.Wait(s.soon(), what, want); err != nil {
		s.t.Fatalf("%v; its Events: %q", err, s.toldOf(claim, ""))
	}
}

// expectUntouched checks that nothing was written to a claim and nothing was asked of the driver for it.
func (s *stage) expectUntouched(claim *storage.Claim) {
	s.t.Helper()
	if now, err := claim.Get(s.ctx); err != nil || now == nil || hasFinalizer(now) || s.inFlight(claim) || len(s.creations(claim)) > 0 {
		s.t.Errorf("%v: claim %s has a finalizer or is in flight, or the driver was asked: %s", err, claim.Name, storage.DescribeClaim(now))
	}
}

// hasFinalizer says whether a finalizer of earlier versions is on a claim.
func hasFinalizer(claim *v1.PersistentVolumeClaim) bool {
	return claim != nil && slices.ContainsFunc(claim.Finalizers, provision.IsLegacyFinalizer)
}

// inFlightAll returns the entries of the in-flight log.
func (s *stage) inFlightAll() map[string]inflight.Located {
	s.t.Helper()
	entries, err := storage.InFlight(s.ctx, s.client, s.home, s.Driver)
	s.must(err)
	return entries
}

// inFlight says whether the in-flight log has an entry for a claim.
func (s *stage) inFlight(claim *storage.Claim) bool {
	s.t.Helper()
	for _, e := range s.inFlightAll() {
		if e.Claim.UID == claim.UID {
			return true
		}
	}
	return false
}

// settled waits until the in-flight log has no entry for a claim.
func (s *stage) settled(claim *storage.Claim) {
	s.t.Helper()
	s.eventually("the entry of claim "+claim.Name+" is settled", func() bool { return !s.inFlight(claim) })
}

// allSettled waits until the in-flight log has no entry.
func (s *stage) allSettled() {
	s.t.Helper()
	s.eventually("the in-flight log is empty", func() bool { return len(s.inFlightAll()) == 0 })
}

func noClaim(claim *v1.PersistentVolumeClaim) bool { return claim == nil }

// provisioned is the volume that was made for a claim, with its PV as it is when the claim is bound.
type provisioned struct {
	*storage.Volume
	claim *storage.Claim
	pv    *v1.PersistentVolume
}

// bound waits until a claim is bound, without a finalizer of earlier versions, and returns its volume.
func (s *stage) bound(claim *storage.Claim) *provisioned {
	s.t.Helper()
	s.waitClaim(claim, "bound", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.Status.Phase == v1.ClaimBound && !hasFinalizer(now)
	})
	vol, err := claim.WaitBound(s.soon())
	s.must(err)
	pv, err := vol.PV(s.ctx)
	s.must(err)
	return &provisioned{vol, claim, pv}
}

func (s *stage) deleteClaim(claim *storage.Claim) {
	s.t.Helper()
	s.must(claim.Delete(s.ctx))
}

// volumeOf returns a volume as the driver's disk has it, empty if it is not there.
func (s *stage) volumeOf(vol *provisioned) backend.Volume {
	s.t.Helper()
	volumes, err := s.driver.Volumes()
	s.must(err)
	for _, v := range volumes {
		if v.ID == vol.Handle {
			return v
		}
	}
	return backend.Volume{}
}

// creations returns the CreateVolume calls for a claim.
func (s *stage) creations(claim *storage.Claim) []ledger.Call {
	s.t.Helper()
	calls, err := s.driver.Calls("CreateVolume")
	s.must(err)
	return slices.DeleteFunc(calls, func(c ledger.Call) bool { return c.Name != volumeName(claim) })
}

// asked waits until the driver was asked for a claim's volume.
func (s *stage) asked(claim *storage.Claim) {
	s.t.Helper()
	s.eventually("the driver is asked for the volume", func() bool { return len(s.creations(claim)) > 0 })
}

// nothingLeft checks that neither a PV nor a volume is left of a claim.
func (s *stage) nothingLeft(claim *storage.Claim) {
	s.t.Helper()
	if pv, err := s.client.CoreV1().PersistentVolumes().Get(s.ctx, volumeName(claim), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		s.t.Errorf("PV %s is there (%v): %s", volumeName(claim), err, storage.Describe(pv))
	}
	volumes, err := s.driver.Volumes()
	s.must(err)
	for _, v := range volumes {
		if v.Name == volumeName(claim) {
			s.t.Errorf("LEAK: volume %s of claim %s is on the driver's disk", v.ID, claim.Name)
		}
	}
}

// gone waits until neither a PV nor a volume is left of a claim.
func (s *stage) gone(claim *storage.Claim) {
	s.t.Helper()
	s.eventually("the volume and the PV of claim "+claim.Name+" are gone", func() bool {
		_, err := s.client.CoreV1().PersistentVolumes().Get(s.ctx, volumeName(claim), metav1.GetOptions{})
		volumes, listErr := s.driver.Volumes()
		s.must(listErr)
		return apierrors.IsNotFound(err) && !slices.ContainsFunc(volumes, func(v backend.Volume) bool { return v.Name == volumeName(claim) })
	})
}

// toldOf returns the Events about a claim, those with a reason or all.
func (s *stage) toldOf(claim *storage.Claim, reason string) []string {
	s.t.Helper()
	list, err := s.client.CoreV1().Events(s.Namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(claim.UID)})
	if err != nil {
		return []string{err.Error()}
	}
	var told []string
	for _, e := range list.Items {
		if reason == "" || e.Reason == reason {
			told = append(told, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
		}
	}
	return told
}

func (s *stage) waitTold(claim *storage.Claim, reason, text string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("claim %s has an Event %s with %q", claim.Name, reason, text), func() bool {
		return slices.ContainsFunc(s.toldOf(claim, reason), func(message string) bool { return strings.Contains(message, text) })
	})
}
