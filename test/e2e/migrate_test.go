//go:build unix

package e2e

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/sidecar"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// The steps of each test are those of docs/how-to/migrate.md, in its order.

// stockKinds are the external-provisioners that there are, by whether they honour the reclaim policy.
func stockKinds() map[string]bool { return map[string]bool{"5.0 and newer": true, "older": false} }

// stock are the flags of the peer with which it does what external-provisioner does.
func stock() []string { return []string{"--provision", "--retry-interval-start=1s"} }

// crowd is a driver's volumes at the moment at which another program takes over, in each phase of their life.
type crowd struct {
	*stage
	class string
	// used are bound, going is too while its PV is being deleted, and released has a driver that fails to delete it.
	used            [2]*provisioned
	going, released *provisioned
	// half has a volume, of which nobody knows but the driver.
	half *storage.Claim
}

// newCrowd has whatever provisions now make them. What is half done stays so until the driver's faults are cleared.
func (s *stage) newCrowd() *crowd {
	s.t.Helper()
	c := &crowd{stage: s, class: s.class()}
	var claims [4]*storage.Claim
	for i := range claims {
		claims[i] = s.claim(c.class)
	}
	c.used = [2]*provisioned{s.bound(claims[0]), s.bound(claims[1])}
	c.going, c.released = s.bound(claims[2]), s.bound(claims[3])
	c.halt(true)
	s.deleteClaim(c.released.claim)
	s.waitCalls(c.released.Volume, 1)
	s.must(c.going.DeletePV(s.ctx))
	s.waitPV(c.going.Volume, "terminating", func(pv *v1.PersistentVolume) bool { return pv.DeletionTimestamp != nil })
	c.makeHalf()
	return c
}

// halt has the driver fail to delete the one volume, and, with creations, not answer that it has made any.
func (c *crowd) halt(creations bool) {
	c.t.Helper()
	plan := faults.Plan{Rules: []faults.Rule{{Method: "DeleteVolume", Volume: c.released.Handle, Action: faults.Fail, Code: "Internal"}}}
	if creations {
		plan.Rules = append(plan.Rules, slowly(true, time.Minute).Rules...)
	}
	c.must(c.driver.SetFaults(c.ctx, plan))
}

func (c *crowd) makeHalf() {
	c.t.Helper()
	c.half = c.claim(c.class)
	c.eventually("the volume is on the disk", func() bool { return c.volumesOf(c.half) == 1 })
}

// volumesOf counts the volumes that were made for a claim.
func (c *crowd) volumesOf(claim *storage.Claim) (n int) {
	c.t.Helper()
	volumes, err := c.driver.Volumes()
	c.must(err)
	for _, v := range volumes {
		if v.Name == volumeName(claim) {
			n++
		}
	}
	return n
}

// endGoing lets what is being deleted end.
func (c *crowd) endGoing() {
	c.t.Helper()
	c.must(c.driver.ClearFaults(c.ctx))
	c.deleteClaim(c.going.claim)
	for _, vol := range []*provisioned{c.going, c.released} {
		c.must(vol.WaitGone(c.soon()))
	}
	c.going = nil
}

// goOn has the driver work again and expects of whoever is at work now: claims get their volumes, whatever is deleted goes
// with its volume, and nothing else. pvFirst: also where the PV is deleted before its claim. told: of the PV that was being deleted
// before anybody could protect it, it is told which volume it leaves behind.
func (c *crowd) goOn(pvFirst, told bool) {
	c.t.Helper()
	c.must(c.driver.ClearFaults(c.ctx))
	half, more := c.bound(c.half), c.bound(c.claim(c.class))
	if n := c.volumesOf(c.half); n != 1 {
		c.t.Errorf("%d volumes of claim %s, want that which was there", n, c.half.Name)
	}
	alive := []*provisioned{c.used[0], c.used[1], half, more}
	if c.going != nil {
		alive = append(alive, c.going)
	}
	for _, vol := range alive {
		c.expectKept(vol.Volume)
	}
	if pvFirst {
		c.must(c.used[1].DeletePV(c.ctx))
	}
	for _, vol := range alive {
		c.deleteClaim(vol.claim)
	}
	if told {
		c.waitEvent(c.going.Volume, "VolumeLeftBehind", c.going.Handle)
		again := c.make(storage.Spec{Handle: c.going.Handle}) // a PV brings it back
		c.waitPV(again, "protected", func(pv *v1.PersistentVolume) bool { return protected(pv) || companionProtected(pv) })
		c.must(again.DeleteClaim(c.ctx))
	}
	c.nothingIsLeft()
}

// nothingIsLeft waits until neither claims nor PVs nor volumes are left.
func (c *crowd) nothingIsLeft() {
	c.t.Helper()
	c.eventually("all claims are gone", func() bool {
		list, err := c.client.CoreV1().PersistentVolumeClaims(c.Namespace).List(c.ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
	c.eventually("all PVs are gone", func() bool {
		for _, pv := range c.allPVs() {
			if pv.Spec.CSI != nil && pv.Spec.CSI.Driver == c.Driver {
				return false
			}
		}
		return true
	})
	c.eventually("all volumes are gone", func() bool { return len(c.onDiskAll()) == 0 })
}

// restart ends a sidecar and starts it with further flags.
func (s *stage) restart(car *sidecar.Sidecar, args ...string) {
	s.t.Helper()
	s.must(car.Terminate())
	s.must(car.Restart(args...))
	s.must(car.WaitReady(s.soon()))
}

func TestMigrateFromExternalProvisioner(t *testing.T) {
	for kind, honours := range stockKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			_, stop := s.startPeer(honours, append(stock(), "--leader-election-namespace="+s.Namespace)...)
			c := s.newCrowd()
			look := s.sidecar("--dry-run") // 1. a first look
			s.must(look.Terminate())
			s.expectNoWrites()
			// 2. and 3. as one change of the pod: the old one still holds the Lease of both.
			car := s.sidecar(append(eager(), "--leader-election", "--leader-election-namespace="+s.Namespace,
				"--leader-election-identity=new", "--leader-election-retry-period=500ms")...)
			s.eventually("it waits for the Lease", func() bool { return strings.Contains(car.LogTail(1000), `"New leader" identity="peer"`) })
			s.expectNoWrites()
			stop()
			s.must(car.WaitLog(s.soon(), "Became the leader"))
			c.goOn(true, !honours)
		})
	}
}

func TestMigrateToACompanionAndBack(t *testing.T) {
	t.Parallel()
	s := newStageAs(t, "companion", mockdriver.Options{})
	s.startPeer(false, stock()...)
	c := s.newCrowd()
	car := s.sidecar(append(eager(), "--role=companion")...) // 1. start it
	for _, vol := range c.used {
		s.waitPV(vol.Volume, "protected by the companion", companionProtected)
	}
	c.goOn(true, true)

	left, ends := s.bound(s.claim(c.class)), s.bound(s.claim(c.class))
	for _, vol := range []*provisioned{left, ends} {
		s.waitPV(vol.Volume, "protected by the companion", companionProtected)
	}
	s.must(ends.DeletePV(s.ctx))
	s.deleteClaim(ends.claim) // 2. let what is being deleted end
	s.must(ends.WaitGone(s.soon()))
	s.must(car.Terminate())                 // 3. stop it
	_, err := s.release("--role=companion") // 4. take the finalizers off
	s.must(err)
	s.waitPV(left.Volume, "without our finalizer", func(pv *v1.PersistentVolume) bool { return !companionProtected(pv) })
	s.expectKept(left.Volume)
	s.deleteClaim(left.claim)
	c.nothingIsLeft()
}

func TestMigrateToAnObserverAndBack(t *testing.T) {
	t.Parallel()
	s := newStageAs(t, "observer", mockdriver.Options{})
	s.startPeer(true, stock()...)
	c := s.newCrowd()
	car := s.sidecar(append(eager(), "--role=observer")...) // 1. start it
	c.goOn(true, false)
	for _, vol := range []*provisioned{c.used[0], c.used[1], c.going, c.released} {
		if told := s.events(vol.Volume, "VolumeLeftBehind"); len(told) != 0 {
			t.Errorf("a false alarm about %s: %s", vol.Name, told[0].Message)
		}
	}
	s.must(car.Terminate()) // 2. stop it
	s.expectNoWrites("events")
	left := s.bound(s.claim(c.class))
	s.deleteClaim(left.claim)
	c.nothingIsLeft()
}

func TestMigrateBackToExternalProvisioner(t *testing.T) {
	for kind, honours := range stockKinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			car := s.sidecar(append(eager(), "--shutdown-grace=1s")...)
			c := s.newCrowd()
			finished := c.half
			c.halt(false)
			s.restart(car, "--provision=false") // 1. finish what is in flight, and begin nothing
			s.allSettled()
			s.bound(finished)
			s.deleteClaim(finished)
			if !honours { // 2. let what is being deleted end
				c.endGoing()
			}
			c.half = s.claim(c.class) // begun by nobody
			s.must(car.Terminate())   // 3. stop csi-reclaimer
			if !honours {             // 4. take the finalizers off
				_, err := s.release()
				s.must(err)
			}
			s.startPeer(honours, stock()...) // 5. start external-provisioner
			c.goOn(honours, false)
		})
	}
}
