//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestProvisionClaimsWholeLife is what a claim is for: a volume that is made once, and deleted once
// whichever of PV and claim goes first, or kept.
func TestProvisionClaimsWholeLife(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	class, keeping := s.class(), s.class(keep)
	for _, order := range []string{"claim first", "PV first"} {
		t.Run("Delete, "+order, func(t *testing.T) {
			s := s.in(t)
			vol := s.bound(s.claim(class))
			if !protected(vol.pv) {
				t.Errorf("the PV was born without the finalizer: %v", vol.pv.Finalizers)
			}
			if order == "PV first" {
				s.must(vol.DeletePV(s.ctx))
				s.waitPV(vol.Volume, "terminating", func(pv *v1.PersistentVolume) bool { return pv.DeletionTimestamp != nil })
				if !s.onDisk(vol.Handle) {
					t.Error("WRONG DELETE: the claim still uses the volume")
				}
			}
			s.deleteClaim(vol.claim)
			s.must(vol.WaitGone(s.soon()))
			s.nothingLeft(vol.claim)
			if made, deleted := s.creations(vol.claim), s.deletions(vol.Handle); len(made) != 1 || len(deleted) != 1 {
				t.Errorf("%d CreateVolume and %d DeleteVolume calls, want one each", len(made), len(deleted))
			}
		})
		t.Run("Retain, "+order, func(t *testing.T) {
			s := s.in(t)
			vol := s.bound(s.claim(keeping))
			if order == "PV first" {
				s.must(vol.DeletePV(s.ctx))
			}
			s.deleteClaim(vol.claim)
			if order == "PV first" {
				s.must(vol.WaitGone(s.soon()))
			} else {
				s.waitPV(vol.Volume, "released", isReleased)
			}
			s.fence()
			s.expectKept(vol.Volume)
			t.Cleanup(func() { s.sweep(vol.Volume) })
		})
	}
}

// TestProvisionManyClaimsAtOnce counts what claims cost: the writes of the stock provisioner's library, and those of the
// in-flight log, which are two for one claim alone and fewer for each of many at once. Nothing is written to claims.
func TestProvisionManyClaimsAtOnce(t *testing.T) {
	t.Parallel()
	stock := newStageAs(t, "", mockdriver.Options{})
	stock.user = stock.peer(true, "--provision")
	const few = 10
	theirs := stock.provisionMany(few)

	s := newStage(t)
	s.sidecar()
	n := size(500, 60)
	ours := s.provisionMany(n)
	for handle, calls := range s.deletionsAll() {
		if calls != 1 {
			t.Errorf("%d DeleteVolume calls for %s", calls, handle)
		}
	}
	if most := n * (sum(theirs)/few + 2); sum(ours) > most || ours["create persistentvolumes 201"] != n || writesOf(ours, "persistentvolumeclaims") != 0 ||
		writesOf(ours, "leases") >= 2*n {
		t.Errorf("%d claims cost %v, want %d writes at most; the library's own for %d: %v", n, ours, most, few, theirs)
	}
}

// writesOf counts the writes to a resource.
func writesOf(written map[string]int, resource string) (n int) {
	for what, count := range written {
		if strings.Fields(what)[1] == resource {
			n += count
		}
	}
	return n
}

// TestProvisionOneClaimAtATime counts what one claim costs alone: its PV, the Events, and two writes of the in-flight log.
func TestProvisionOneClaimAtATime(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar()
	class := s.class()
	s.bound(s.claim(class)) // creates the log's Leases that it needs
	s.allSettled()
	before := len(s.settledWritesTo(1, "leases"))
	const n = 5
	for range n {
		s.bound(s.claim(class))
		s.allSettled()
	}
	created := 0 // a shard of the log that is needed for the first time is created, too
	written := s.settledWritesTo(before+2*n, "leases")[before:]
	for _, e := range written {
		if e.Verb == "create" {
			created++
		}
	}
	t.Logf("%d claims, one after another, cost %d writes of the in-flight log, of which %d create a shard", n, len(written), created)
	if most := 2*n + 2*created; len(written) > most {
		t.Errorf("%d writes of the in-flight log for %d claims, want %d at most", len(written), n, most)
	}
	if n := len(s.settledWritesTo(0, "persistentvolumeclaims")); n != 0 {
		t.Errorf("%d writes to claims, want none", n)
	}
}

// provisionMany makes claims, sees each bound after one CreateVolume, and has them go again. It returns how often
// what was written meanwhile.
func (s *stage) provisionMany(n int) map[string]int {
	s.t.Helper()
	class := s.class()
	var mu sync.Mutex
	var claims []*storage.Claim
	var users errgroup.Group
	users.SetLimit(atOnce)
	began := time.Now()
	for range n {
		users.Go(func() error {
			claim, err := s.tryClaim(class)
			mu.Lock()
			defer mu.Unlock()
			claims = append(claims, claim)
			return err
		})
	}
	s.must(users.Wait())
	for _, claim := range claims {
		s.bound(claim)
	}
	took := time.Since(began).Round(time.Millisecond)
	written := map[string]int{}
	s.allSettled()
	for _, e := range s.settledWritesTo(n, "persistentvolumes", "persistentvolumeclaims", "events", "leases") {
		written[fmt.Sprintf("%s %s %d", e.Verb, e.Resource, e.Code)]++
	}
	s.t.Logf("%d claims were bound after %v, by %v", n, took, written)
	calls, err := s.driver.Calls("CreateVolume")
	s.must(err)
	count := map[string]int{}
	for _, call := range calls {
		count[call.Name]++
	}
	for _, claim := range claims {
		if count[volumeName(claim)] != 1 {
			s.t.Errorf("%d CreateVolume calls for claim %s", count[volumeName(claim)], claim.Name)
		}
	}
	s.must(s.client.CoreV1().PersistentVolumeClaims(s.Namespace).DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.eventually("all volumes are gone", func() bool { return len(s.onDiskAll()) == 0 })
	return written
}

func slowly(afterWork bool, delay time.Duration) faults.Plan {
	return faults.Plan{Rules: []faults.Rule{{Method: "CreateVolume", Action: faults.Delay, AfterWork: afterWork, Delay: faults.Duration(delay)}}}
}

func TestProvisionAClaimThatIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, afterWork := range map[string]bool{"before the volume is there": false, "when the volume is there": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.sidecar(eager()...)
			s.must(s.driver.SetFaults(s.ctx, slowly(afterWork, 2*time.Second)))
			claim := s.claim(s.class())
			s.asked(claim)
			if !s.inFlight(claim) {
				t.Error("the driver was asked, and the in-flight log has no entry")
			}
			s.deleteClaim(claim)
			s.waitClaim(claim, "gone", noClaim) // nothing keeps it
			s.settled(claim)
			s.gone(claim)
		})
	}
}

// TestProvisionKilledBeforeThePV kills the sidecar when the volume is there and its PV is not.
func TestProvisionKilledBeforeThePV(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"the claim is deleted: nothing is left": true, "the claim stays: it gets that volume": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			car := s.sidecar(eager()...)
			s.must(s.driver.SetFaults(s.ctx, slowly(true, 30*time.Second)))
			claim := s.claim(s.class())
			s.eventually("the volume is on the disk", func() bool { return len(s.onDiskAll()) == 1 })
			car.Kill()
			if deleted {
				s.deleteClaim(claim)
			}
			s.must(s.driver.ClearFaults(s.ctx))
			s.must(car.Restart())
			if deleted {
				s.waitClaim(claim, "gone", noClaim)
				s.gone(claim)
				return
			}
			s.bound(claim)
			if there := s.onDiskAll(); len(there) != 1 {
				t.Errorf("there are %d volumes: %v", len(there), there)
			}
		})
	}
}

// TestProvisionAClassThatIsGone has the class go while its volume is there unseen.
func TestProvisionAClassThatIsGone(t *testing.T) {
	t.Parallel()
	t.Run("what was begun is finished from memory", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		s.sidecar(eager()...)
		s.must(s.driver.SetFaults(s.ctx, lostAnswers()))
		class := s.class()
		claim := s.claim(class)
		s.eventually("the volume is on the disk", func() bool { return len(s.onDiskAll()) == 1 })
		s.must(s.client.StorageV1().StorageClasses().Delete(s.ctx, class, metav1.DeleteOptions{}))
		s.must(s.driver.ClearFaults(s.ctx))
		vol := s.bound(claim)
		s.deleteClaim(claim)
		s.must(vol.WaitGone(s.soon()))
		s.nothingLeft(claim)
	})
	t.Run("what was begun is finished after a restart, too", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		car := s.sidecar(eager()...)
		s.must(s.driver.SetFaults(s.ctx, lostAnswers()))
		class := s.class()
		claim := s.claim(class)
		s.eventually("the volume is on the disk", func() bool { return len(s.onDiskAll()) == 1 })
		car.Kill()
		s.must(s.client.StorageV1().StorageClasses().Delete(s.ctx, class, metav1.DeleteOptions{}))
		s.deleteClaim(claim)
		s.waitClaim(claim, "gone", noClaim)
		s.must(s.driver.ClearFaults(s.ctx))
		s.must(car.Restart())
		s.settled(claim)
		s.gone(claim)
	})
	t.Run("a claim that nobody began waits, and is free", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		claim := s.claim("class-that-never-was-" + s.Namespace)
		s.sidecar(eager()...)
		s.bound(s.claim(s.class()))
		s.expectUntouched(claim)
		s.deleteClaim(claim)
		s.waitClaim(claim, "gone", noClaim)
	})
}

func TestProvisionWhatIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("a parameter that nobody knows", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		s.sidecar(eager()...)
		claim := s.claim(s.class(parameter("csi.storage.k8s.io/fstpye", "xfs")))
		s.waitTold(claim, "ProvisioningFailed", `parameter "csi.storage.k8s.io/fstpye" is not known`)
		s.expectUntouched(claim)
		s.deleteClaim(claim)
		s.waitClaim(claim, "gone", noClaim)
	})
	t.Run("by the driver", func(t *testing.T) {
		t.Parallel()
		s := newStageAs(t, "owner", mockdriver.Options{Args: []string{"--parameters=tier"}})
		s.sidecar(eager()...)
		class := s.class(parameter("teir", "gold"))
		claim := s.claim(class)
		s.waitTold(claim, "ProvisioningFailed", `"teir"`)
		s.settled(claim)
		// The parameters of a class cannot be changed: it is mended by a new one of its name.
		s.must(s.client.StorageV1().StorageClasses().Delete(s.ctx, class, metav1.DeleteOptions{}))
		_, err := s.MakeClass(s.ctx, storage.Class{Name: class, Parameters: map[string]string{"tier": "gold"}})
		s.must(err)
		if there := s.volumeOf(s.bound(claim)); there.Parameters["tier"] != "gold" {
			t.Errorf("volume %+v", there)
		}
	})
	t.Run("by its quota", func(t *testing.T) {
		t.Parallel()
		s := newStageAs(t, "owner", mockdriver.Options{Args: []string{"--max-volumes=1"}})
		const start, most = 50 * time.Millisecond, 800 * time.Millisecond
		s.sidecar("--retry-interval-start="+start.String(), "--retry-interval-max="+most.String())
		class := s.class()
		first := s.bound(s.claim(class))
		second := s.claim(class)
		s.eventually("it was tried often enough", func() bool { return len(s.creations(second)) > 3 })
		calls := s.creations(second)
		s.waitTold(second, "ProvisioningFailed", "ResourceExhausted")
		for i, wait := range []time.Duration{10 * start, most, most} {
			if gap := calls[i+1].Received.Sub(calls[i].Received); gap < wait {
				t.Errorf("call %d came %v after the one before, want at least %v", i+2, gap, wait)
			}
		}
		s.deleteClaim(first.claim)
		s.bound(second)
	})
}

func TestProvisionABlockVolume(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	vol := s.bound(s.claim(s.class(), block))
	there := s.volumeOf(vol)
	if !slices.ContainsFunc(there.Access, func(a backend.Access) bool { return a.Block }) || *vol.pv.Spec.VolumeMode != v1.PersistentVolumeBlock || vol.pv.Spec.CSI.FSType != "" {
		t.Errorf("volume %+v, PV %+v", there, vol.pv.Spec)
	}
}

// TestProvisionAClone deletes the source while it is cloned.
func TestProvisionAClone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	class := s.class()
	source := s.bound(s.claim(class))
	s.must(s.driver.SetFaults(s.ctx, slowly(false, 2*time.Second)))
	clone := s.claim(class, cloneOf(source.claim))
	s.asked(clone)
	s.deleteClaim(source.claim)
	s.waitClaim(source.claim, "terminating and kept", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.DeletionTimestamp != nil && slices.Contains(now.Finalizers, provision.CloningFinalizer)
	})
	copied := s.bound(clone)
	if there := s.volumeOf(copied); there.Source.VolumeID != source.Handle {
		t.Errorf("the clone is %+v, want one of %s", there, source.Handle)
	}
	s.waitClaim(source.claim, "gone", noClaim)
	s.must(source.WaitGone(s.soon()))
	s.nothingLeft(source.claim)
	if n := len(s.creations(clone)); n != 1 {
		t.Errorf("%d CreateVolume calls", n)
	}
}

func TestProvisionUnderAnotherName(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(append(eager(), "--volume-name-prefix=disk", "--volume-name-uuid-length=12", "--extra-create-metadata", "--default-fstype=xfs")...)
	claim := s.claim(s.class())
	vol := s.bound(claim)
	name := "disk-" + strings.ReplaceAll(string(claim.UID), "-", "")[:12]
	if there := s.volumeOf(vol); vol.Name != name || there.Name != name || there.Parameters["csi.storage.k8s.io/pvc/name"] != claim.Name || vol.pv.Spec.CSI.FSType != "xfs" {
		t.Errorf("volume %+v, PV %s %+v", there, vol.Name, vol.pv.Spec)
	}
	calls, err := s.driver.Calls("CreateVolume")
	s.must(err)
	if len(calls) != 1 {
		t.Errorf("%d CreateVolume calls", len(calls))
	}
	s.deleteClaim(claim)
	s.must(vol.WaitGone(s.soon()))
}

// TestProvisionIsLeftToOthers where it is switched off.
func TestProvisionIsLeftToOthers(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(append(eager(), "--provision=false")...)
	claim := s.claim(s.class())
	s.fence()
	s.expectUntouched(claim)
}
