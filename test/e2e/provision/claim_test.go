//go:build unix

package provision

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
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestProvisionAndReclaim expects one creation of each volume, and one deletion in both orders, or none if the policy
// keeps it.
func TestProvisionAndReclaim(t *testing.T) {
	env := begin(t)
	env.StartSidecar(fixture.FastRetries()...)
	class, keeping := env.CreateStorageClass(), env.CreateStorageClass(withRetainPolicy)
	for _, order := range []string{"claim first", "PV first"} {
		t.Run("Delete, "+order, func(t *testing.T) {
			env := env.forSubtest(t)
			vol := env.WaitBound(env.CreateClaim(class))
			if !fixture.HasFinalizer(vol.BoundPV) {
				t.Errorf("the PV was born without the finalizer: %v", vol.BoundPV.Finalizers)
			}
			if order == "PV first" {
				env.Must(vol.DeletePV(env.Ctx))
				env.WaitPV(vol.Volume, "terminating", func(pv *v1.PersistentVolume) bool { return pv.DeletionTimestamp != nil })
				env.Barrier() // the sidecar has decided on the PV
				if !env.OnDisk(vol.Handle) {
					t.Error("WRONG DELETE: the claim still uses the volume")
				}
			}
			env.MustDeleteClaim(vol.BoundClaim)
			env.Must(vol.WaitGone(env.WithTimeout()))
			env.ExpectNothingLeft(vol.BoundClaim)
			if made, deleted := env.CreateCalls(vol.BoundClaim), env.DeleteCalls(vol.Handle); len(made) != 1 ||
				len(deleted) != 1 {
				t.Errorf("%d CreateVolume and %d DeleteVolume calls, want one each", len(made), len(deleted))
			}
		})
		t.Run("Retain, "+order, func(t *testing.T) {
			env := env.forSubtest(t)
			vol := env.WaitBound(env.CreateClaim(keeping))
			if order == "PV first" {
				env.Must(vol.DeletePV(env.Ctx))
			}
			env.MustDeleteClaim(vol.BoundClaim)
			if order == "PV first" {
				env.Must(vol.WaitGone(env.WithTimeout()))
			} else {
				env.WaitPV(vol.Volume, "released", fixture.IsReleased)
			}
			env.Barrier()
			env.ExpectKept(vol.Volume)
			t.Cleanup(func() { env.RemoveLeftovers(vol.Volume) })
		})
	}
}

// TestProvisionRequestCountOfManyClaims counts the writes of sig-storage-lib-external-provisioner and of the in-flight
// log. The log takes two writes for a single claim, and fewer for each of many at once. Claims are not written.
func TestProvisionRequestCountOfManyClaims(t *testing.T) {
	fixture.Begin(t, suite.Load, fixture.AboutRequests)
	stock := newForRole(t, "", mockdriver.Options{})
	const few = 10
	// A PV and two Events of each claim; the Events are written behind.
	theirs := stock.provisionMany(few, 3*few, func() { stock.User = stock.StartPeer(true, "--provision") })

	env := &environment{fixture.New(t)}
	n := fixture.Size(500, 60)
	ours := env.provisionMany(n, n, func() { env.StartSidecar() })
	for handle, calls := range env.DeleteCallCounts() {
		if calls != 1 {
			t.Errorf("%d DeleteVolume calls for %s", calls, handle)
		}
	}
	if most := n * (fixture.Sum(theirs)/few + 2); fixture.Sum(ours) > most || ours["create persistentvolumes 201"] != n ||
		writesOf(ours, "persistentvolumeclaims") != 0 ||
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

// TestProvisionRequestCountOfOneClaim counts the writes for a single claim: its PV, the Events, and two writes of the
// in-flight log.
func TestProvisionRequestCountOfOneClaim(t *testing.T) {
	env := begin(t, fixture.AboutRequests)
	env.StartSidecar()
	class := env.CreateStorageClass()
	env.WaitBound(env.CreateClaim(class)) // creates the log's Leases that it needs
	env.WaitAllSettled()
	began := time.Now()
	const n = 6
	for range n { // the last one shows that no writes for the others come behind
		env.WaitBound(env.CreateClaim(class))
		env.WaitAllSettled()
	}
	created := 0 // a shard of the log that is needed for the first time is created, too
	var written []controlplane.AuditEvent
	env.Eventually("the writes are in the audit log", func() bool {
		written = slices.DeleteFunc(env.WritesTo(0, "leases"),
			func(e controlplane.AuditEvent) bool { return e.Received.Before(began) })
		return len(written) >= 2*n
	})
	for _, e := range written {
		if e.Verb == "create" {
			created++
		}
	}
	t.Logf("%d claims, one after another, cost %d writes of the in-flight log, of which %d create a shard", n,
		len(written), created)
	if most := 2*n + 2*created; len(written) > most {
		t.Errorf("%d writes of the in-flight log for %d claims, want %d at most", len(written), n, most)
	}
	for _, e := range env.WritesTo(0, "persistentvolumeclaims") {
		if env.writesFor(e) {
			t.Errorf("%s of claim %s, want no write to a claim", e.Verb, e.Name)
		}
	}
}

// writesFor reports whether a write is for the environment's claims. Sidecars of all drivers remove the finalizer from
// cloned claims, also in the namespaces of other tests.
func (env *environment) writesFor(e controlplane.AuditEvent) bool {
	return e.Namespace == "" || e.Namespace == env.Namespace || e.Namespace == env.DriverNamespace ||
		e.Resource != "persistentvolumeclaims"
}

// provisionMany creates claims before it starts their provisioner, so that the provisioner sees them at once. The last
// claim comes behind the others: once it is bound, too, no writes for the others are outstanding. provisionMany expects
// each claim to be bound after one CreateVolume, and deletes the claims. It returns the number of writes by kind, once
// they are at least least.
func (env *environment) provisionMany(n, least int, start func()) map[string]int {
	env.T.Helper()
	class := env.CreateStorageClass()
	var mu sync.Mutex
	var claims []*objects.Claim
	var users errgroup.Group
	users.SetLimit(fixture.Concurrency)
	began := time.Now()
	for range n - 1 {
		users.Go(func() error {
			claim, err := env.TryCreateClaim(class)
			mu.Lock()
			defer mu.Unlock()
			claims = append(claims, claim)
			return err
		})
	}
	env.Must(users.Wait())
	start()
	for _, claim := range claims {
		env.WaitBound(claim)
	}
	took := time.Since(began).Round(time.Millisecond)
	env.WaitAllSettled()
	claims = append(claims, env.CreateClaim(class))
	env.WaitBound(claims[n-1])
	env.WaitAllSettled()
	written := map[string]int{}
	for _, e := range env.WritesTo(least, "persistentvolumes", "persistentvolumeclaims", "events", "leases") {
		if env.writesFor(e) {
			written[fmt.Sprintf("%s %s %d", e.Verb, e.Resource, e.Code)]++
		}
	}
	env.T.Logf("%d claims were bound after %v, by %v", n, took, written)
	calls, err := env.MockDriver.Calls("CreateVolume")
	env.Must(err)
	count := map[string]int{}
	for _, call := range calls {
		count[call.Name]++
	}
	for _, claim := range claims {
		if count[fixture.PVName(claim)] != 1 {
			env.T.Errorf("%d CreateVolume calls for claim %s", count[fixture.PVName(claim)], claim.Name)
		}
	}
	env.Must(env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).DeleteCollection(env.Ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}))
	env.Eventually("all volumes are gone", func() bool { return len(env.VolumesOnDisk()) == 0 })
	return written
}

func TestProvisionClaimDeletedDuringCreateVolume(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	for name, afterWork := range map[string]bool{"before the volume is there": false, "when the volume is there": true} {
		t.Run(name, func(t *testing.T) {
			env := begin(t)
			env.StartSidecar(fixture.FastRetries()...)
			env.SetFaults(fixture.BlockCreateVolume(afterWork))
			claim := env.CreateClaim(env.CreateStorageClass())
			env.waitCreateCall(claim)
			if !env.IsInFlight(claim) {
				t.Error("the driver was asked, and the in-flight log has no entry")
			}
			env.MustDeleteClaim(claim)
			env.WaitClaim(claim, "gone", fixture.ClaimIsGone) // nothing keeps it
			env.Must(env.MockDriver.ClearFaults(env.Ctx))
			env.waitSettled(claim)
			env.waitVolumeGone(claim)
		})
	}
}

// TestProvisionKilledBeforePVIsCreated kills the sidecar when the volume exists and its PV does not.
func TestProvisionKilledBeforePVIsCreated(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"the claim is deleted: nothing is left": true,
		"the claim stays: it gets that volume": false} {
		t.Run(name, func(t *testing.T) {
			env := begin(t)
			car := env.StartSidecar(fixture.FastRetries()...)
			env.SetFaults(fixture.DelayCreateVolume(true, 30*time.Second))
			claim := env.CreateClaim(env.CreateStorageClass())
			env.waitOneVolume()
			car.Kill()
			if deleted {
				env.MustDeleteClaim(claim)
			}
			env.Must(env.MockDriver.ClearFaults(env.Ctx))
			env.Must(car.Restart())
			if deleted {
				env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
				env.waitVolumeGone(claim)
				return
			}
			env.WaitBound(claim)
			if there := env.VolumesOnDisk(); len(there) != 1 {
				t.Errorf("there are %d volumes: %v", len(there), there)
			}
		})
	}
}

// TestProvisionWithDeletedStorageClass deletes the class while the answer to CreateVolume is lost.
func TestProvisionWithDeletedStorageClass(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	t.Run("an in-flight volume is finished by the same process", func(t *testing.T) {
		env := begin(t, suite.Variant)
		env.StartSidecar(fixture.FastRetries()...)
		class := env.CreateStorageClass()
		claim := env.claimWithLostAnswer(class)
		env.StorageClasses().Delete(class)
		env.Must(env.MockDriver.ClearFaults(env.Ctx))
		vol := env.WaitBound(claim)
		env.MustDeleteClaim(claim)
		env.Must(vol.WaitGone(env.WithTimeout()))
		env.ExpectNothingLeft(claim)
	})
	t.Run("an in-flight volume is finished after a restart", func(t *testing.T) {
		env := begin(t)
		car := env.StartSidecar(fixture.FastRetries()...)
		class := env.CreateStorageClass()
		claim := env.claimWithLostAnswer(class)
		car.Kill()
		env.StorageClasses().Delete(class)
		env.expectDeletable(claim)
		env.Must(env.MockDriver.ClearFaults(env.Ctx))
		env.Must(car.Restart())
		env.waitSettled(claim)
		env.waitVolumeGone(claim)
	})
	t.Run("a claim that was not begun waits, and can be deleted", func(t *testing.T) {
		env := begin(t)
		claim := env.CreateClaim("class-that-never-was-" + env.Namespace)
		env.StartSidecar(fixture.FastRetries()...)
		env.WaitBound(env.CreateClaim(env.CreateStorageClass()))
		env.ExpectClaimUntouched(claim)
		env.expectDeletable(claim)
	})
}

func TestProvisionInvalidRequests(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	t.Run("an unknown parameter", func(t *testing.T) {
		env := begin(t)
		env.StartSidecar(fixture.FastRetries()...)
		claim := env.CreateClaim(env.CreateStorageClass(withParameter("csi.storage.k8s.io/fstpye", "xfs")))
		env.WaitClaimEvent(claim, "ProvisioningFailed", `parameter "csi.storage.k8s.io/fstpye" is not known`)
		env.ExpectClaimUntouched(claim)
		env.expectDeletable(claim)
	})
	t.Run("by the driver", func(t *testing.T) {
		t.Parallel()
		env := newForRole(t, "owner", mockdriver.Options{Args: []string{"--parameters=tier"}})
		env.StartSidecar(fixture.FastRetries()...)
		class := env.CreateStorageClass(withParameter("teir", "gold"))
		claim := env.CreateClaim(class)
		env.WaitClaimEvent(claim, "ProvisioningFailed", `"teir"`)
		env.waitSettled(claim)
		// The parameters of a class cannot be changed: it is mended by a new one of its name.
		env.StorageClasses().Delete(class)
		env.CreateClass(objects.Class{Name: class, Parameters: map[string]string{"tier": "gold"}})
		if there := env.volumeOnDisk(env.WaitBound(claim)); there.Parameters["tier"] != "gold" {
			t.Errorf("volume %+v", there)
		}
	})
	t.Run("by its quota", func(t *testing.T) {
		fixture.Begin(t, suite.WaitsForClock)
		env := newForRole(t, "owner", mockdriver.Options{Args: []string{"--max-volumes=1"}})
		const start, most = 50 * time.Millisecond, 800 * time.Millisecond
		env.StartSidecar("--retry-interval-start="+start.String(), "--retry-interval-max="+most.String())
		class := env.CreateStorageClass()
		first := env.WaitBound(env.CreateClaim(class))
		second := env.CreateClaim(class)
		env.Eventually("it was tried often enough", func() bool { return len(env.CreateCalls(second)) > 3 })
		calls := env.CreateCalls(second)
		env.WaitClaimEvent(second, "ProvisioningFailed", "ResourceExhausted")
		for i, wait := range []time.Duration{10 * start, most, most} {
			if gap := calls[i+1].Received.Sub(calls[i].Received); gap < wait {
				t.Errorf("call %d came %v after the one before, want at least %v", i+2, gap, wait)
			}
		}
		env.MustDeleteClaim(first.BoundClaim)
		env.WaitBound(second)
	})
}

func TestProvisionBlockVolume(t *testing.T) {
	env := begin(t)
	env.StartSidecar(fixture.FastRetries()...)
	vol := env.WaitBound(env.CreateClaim(env.CreateStorageClass(), withBlockMode))
	there := env.volumeOnDisk(vol)
	if !slices.ContainsFunc(there.Access,
		func(a backend.Access) bool { return a.Block }) || *vol.BoundPV.Spec.VolumeMode != v1.PersistentVolumeBlock ||
		vol.BoundPV.Spec.CSI.FSType != "" {
		t.Errorf("volume %+v, PV %+v", there, vol.BoundPV.Spec)
	}
}

// TestProvisionClone deletes the source during the clone.
func TestProvisionClone(t *testing.T) {
	env := begin(t)
	env.StartSidecar(fixture.FastRetries()...)
	class := env.CreateStorageClass()
	source := env.WaitBound(env.CreateClaim(class))
	env.SetFaults(fixture.BlockCreateVolume(false))
	clone := env.CreateClaim(class, fixture.CloneOf(source.BoundClaim))
	env.waitCreateCall(clone)
	env.MustDeleteClaim(source.BoundClaim)
	env.WaitClaim(source.BoundClaim, "terminating and kept", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.DeletionTimestamp != nil && slices.Contains(now.Finalizers, request.CloningFinalizer)
	})
	env.Must(env.MockDriver.ClearFaults(env.Ctx))
	copied := env.WaitBound(clone)
	if there := env.volumeOnDisk(copied); there.Source.VolumeID != source.Handle {
		t.Errorf("the clone is %+v, want one of %s", there, source.Handle)
	}
	env.WaitClaim(source.BoundClaim, "gone", fixture.ClaimIsGone)
	env.Must(source.WaitGone(env.WithTimeout()))
	env.ExpectNothingLeft(source.BoundClaim)
	if n := len(env.CreateCalls(clone)); n != 1 {
		t.Errorf("%d CreateVolume calls", n)
	}
}

func TestProvisionWithVolumeNamePrefix(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	env.StartSidecar(append(fixture.FastRetries(), "--volume-name-prefix=disk", "--volume-name-uuid-length=12",
		"--extra-create-metadata", "--default-fstype=xfs")...)
	claim := env.CreateClaim(env.CreateStorageClass())
	vol := env.WaitBound(claim)
	name := "disk-" + strings.ReplaceAll(string(claim.UID), "-", "")[:12]
	if there := env.volumeOnDisk(vol); vol.Name != name || there.Name != name ||
		there.Parameters["csi.storage.k8s.io/pvc/name"] != claim.Name || vol.BoundPV.Spec.CSI.FSType != "xfs" {
		t.Errorf("volume %+v, PV %s %+v", there, vol.Name, vol.BoundPV.Spec)
	}
	calls, err := env.MockDriver.Calls("CreateVolume")
	env.Must(err)
	if len(calls) != 1 {
		t.Errorf("%d CreateVolume calls", len(calls))
	}
	env.MustDeleteClaim(claim)
	env.Must(vol.WaitGone(env.WithTimeout()))
}

// TestProvisionDisabled leaves claims to another provisioner.
func TestProvisionDisabled(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	env.StartSidecar(append(fixture.FastRetries(), "--provision=false")...)
	claim := env.CreateClaim(env.CreateStorageClass())
	env.Barrier()
	env.ExpectClaimUntouched(claim)
}
