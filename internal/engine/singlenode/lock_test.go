package singlenode

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// lockFacts are the facts about a claim locked by runningPod, from the watch caches.
func lockFacts(alter ...func(*LockFacts)) LockFacts {
	f := LockFacts{Claim: lockedBy(claim("data"), other()), Holder: user()}
	for _, a := range alter {
		a(&f)
	}
	return f
}

func lockClaim(alter func(*Claim)) func(*LockFacts) { return func(f *LockFacts) { alter(&f.Claim) } }

func holder(alter ...func(*User)) func(*LockFacts) {
	return func(f *LockFacts) { f.Holder = user(alter...) }
}

func noHolder(f *LockFacts) { f.Holder = User{} }

func holderGone(f *LockFacts) { f.HolderGone = true }

func holderRead(r session.Read) func(*LockFacts) { return func(f *LockFacts) { f.HolderRead = r } }

func lockRemoving(f *LockFacts) { f.Rules.Removing = true }

func newUID(p *Pod) { p.UID = "uid-9" }

func TestDecideLock(t *testing.T) {
	live := holderRead(read(2))
	for name, c := range map[string]struct {
		facts  LockFacts
		action Action
		reason Reason
		after  time.Duration
	}{
		"nothing is known":        {LockFacts{}, Wait, ReasonFree, 0},
		"a claim without a lock":  {LockFacts{Claim: claim("data")}, Wait, ReasonFree, 0},
		"even when uninstalled":   {LockFacts{Claim: claim("data"), Rules: Rules{Removing: true}}, Wait, ReasonFree, 0},
		"a lock when uninstalled": {lockFacts(lockRemoving), FreeLock, ReasonUninstalled, 0},
		"a finalizer when uninstalled": {lockFacts(lockRemoving, lockClaim(unlocked)), FreeLock,
			ReasonUninstalled, 0},
		"a finalizer alone":        {lockFacts(lockClaim(unlocked)), FreeLock, ReasonLockDamaged, 0},
		"an annotation alone":      {lockFacts(lockClaim(unkept), live), Wait, ReasonHolderRuns, recheckAfter},
		"a lock without a name":    {lockFacts(lockIs(Lock{UID: "uid-0"})), FreeLock, ReasonLockDamaged, 0},
		"a holder that runs":       {lockFacts(), Wait, ReasonHolderRuns, 0},
		"by a live read":           {lockFacts(live), Wait, ReasonHolderRuns, recheckAfter},
		"of a claim being deleted": {lockFacts(lockClaim(terminating), live), Wait, ReasonHolderRuns, recheckAfter},
		"a holder that is gated": {lockFacts(holder(ofUser(unbound), ofUser(gate)), live), Wait, ReasonHolderWaits,
			recheckAfter},
		"being deleted, gated": {lockFacts(lockClaim(terminating), holder(ofUser(unbound), ofUser(gate)), live), Wait,
			ReasonHolderWaits, recheckAfter},
		"a failed gated pod": {lockFacts(holder(ofUser(unbound), ofUser(gate), ofUser(failed)), live), Wait,
			ReasonHolderFailed, recheckAfter},
		"a pod that fits no node": {lockFacts(holder(ofUser(unbound), ofUser(func(p *Pod) { p.Unschedulable = true })), live),
			Wait, ReasonHolderUnschedulable, recheckAfter},
		"a pod that fits a node by now": {lockFacts(holder(ofUser(func(p *Pod) { p.Unschedulable = true })), live), Wait,
			ReasonHolderRuns, recheckAfter},
		"one without a node": {lockFacts(holder(ofUser(unbound)), live), Wait, ReasonHolderWaits, recheckAfter},
		"without a node": {lockFacts(holder(ofUser(unbound), nodeSeen(objects.NodeAbsent)), live), Wait,
			ReasonHolderWaits, recheckAfter},
		"a terminating pod": {lockFacts(holder(ofUser(deleted)), live), Wait, ReasonHolderTerminating, recheckAfter},
		"even if it has ended": {lockFacts(holder(ofUser(deleted), ofUser(succeeded), endedFor(grace)), live), Wait,
			ReasonHolderTerminating, recheckAfter},
		"released, and its claim is being deleted": {lockFacts(lockClaim(terminating), holder(ofUser(shutDown)), live),
			FreeLock, ReasonHolderReleased, 0},
		"released, as the watch shows": {lockFacts(lockClaim(terminating), holder(ofUser(shutDown))), ReadHolder,
			ReasonHolderReleased, 0},
		"released, and another pod may want the claim": {lockFacts(holder(ofUser(shutDown)), live), Wait,
			ReasonHolderStays, recheckAfter},
		"released, and its end is confirmed": {lockFacts(holder(ofUser(shutDown), ofUser(confirmed)), live), FreeLock,
			ReasonHolderReleased, 0},
		"released and confirmed, on a node that is away": {lockFacts(holder(ofUser(shutDown), ofUser(confirmed),
			nodeSeen(objects.NodeNotReady)), live), FreeLock, ReasonHolderReleased, 0},
		"held without grace": {lockFacts(lockClaim(terminating), holder(ofUser(shutDown), ofUser(confirmed), ofUser(held)),
			live), Wait, ReasonHolderTerminating, recheckAfter},
		"not held, and with grace": {lockFacts(lockClaim(terminating), holder(ofUser(deleted), ofUser(unheld),
			ofUser(confirmed)), live), Wait, ReasonHolderStays, recheckAfter},
		"confirmed, and not deleted": {lockFacts(lockClaim(terminating), holder(ofUser(unheld), ofUser(confirmed)), live),
			Wait, ReasonHolderRuns, recheckAfter},
		"not held, for less than a minute": {lockFacts(holder(ofUser(shutDown), ofUser(graceEnded(50*time.Second))), live),
			Wait, ReasonHolderTerminating, 10 * time.Second},
		"not held, with a long grace": {lockFacts(holder(ofUser(deleted), ofUser(unheld), ofUser(graceEnded(-time.Hour)))),
			Wait, ReasonHolderTerminating, recheckAfter},
		"not held, on a node that is away": {lockFacts(holder(ofUser(shutDown), nodeSeen(objects.NodeNotReady)), live), Wait,
			ReasonHolderUnreachable, recheckAfter},
		"one whose node is away": {lockFacts(holder(nodeSeen(objects.NodeNotReady)), live), Wait,
			ReasonHolderUnreachable, recheckAfter},
		"one whose node is unseen": {lockFacts(holder(nodeSeen(objects.NodeUnseen)), live), Wait, ReasonHolderRuns,
			recheckAfter},
		"one whose node is gone": {lockFacts(holder(ofUser(deleted), nodeSeen(objects.NodeAbsent)), live), Wait,
			ReasonHolderUnreachable, recheckAfter},
		"a pod refused by its node": {lockFacts(holder(ofUser(failed), ofUser(unreported), endedFor(grace)), live),
			Wait, ReasonHolderFailed, recheckAfter},
		"failed by a program": {lockFacts(holder(ofUser(failed), endedFor(grace)), live), Wait, ReasonHolderFailed,
			recheckAfter},

		"no pod of the name, as the watch shows": {lockFacts(noHolder), ReadHolder, ReasonHolderGone, 0},
		"no pod of the name, long ago":           {lockFacts(noHolder, holderRead(old(1))), ReadHolder, ReasonHolderGone, 0},
		"no pod of the name":                     {lockFacts(noHolder, live), FreeLock, ReasonHolderGone, 0},
		"even of a claim being deleted": {lockFacts(noHolder, live, lockClaim(terminating)), FreeLock, ReasonHolderGone,
			0},
		"no pod of the name, whose end the watch has shown": {lockFacts(noHolder, holderGone), FreeLock,
			ReasonHolderGone, 0},
		"another of the name, after its end": {lockFacts(holder(ofUser(newUID)), holderGone), FreeLock,
			ReasonHolderGone, 0},
		"a pod whose end the watch has shown":     {lockFacts(holderGone), Wait, ReasonHolderRuns, 0},
		"another of the name, as the watch shows": {lockFacts(holder(ofUser(newUID))), ReadHolder, ReasonHolderGone, 0},
		"another of the name":                     {lockFacts(holder(ofUser(newUID)), live), FreeLock, ReasonHolderGone, 0},

		"it does not use the claim, as the watch shows": {lockFacts(holder(ofUser(otherClaim))), ReadHolder,
			ReasonLockDamaged, 0},
		"it does not use the claim": {lockFacts(holder(ofUser(otherClaim)), live), FreeLock, ReasonLockDamaged,
			0},

		"completed, as the watch shows": {lockFacts(holder(ofUser(succeeded), endedFor(grace))), ReadHolder,
			ReasonHolderCompleted, 0},
		"completed, long ago": {lockFacts(holder(ofUser(succeeded), endedFor(grace)), holderRead(old(1))), ReadHolder,
			ReasonHolderCompleted, 0},
		"completed": {lockFacts(holder(ofUser(succeeded), endedFor(grace)), live), FreeLock, ReasonHolderCompleted,
			0},
		"evicted by its kubelet": {lockFacts(holder(ofUser(failed), ofUser(byKubelet), endedFor(grace)), live),
			FreeLock, ReasonHolderCompleted, 0},
		"completed just now": {lockFacts(holder(ofUser(succeeded), endedFor(time.Second)), live), Wait,
			ReasonWaitsForUnmount, grace - time.Second},
		"completed, and a fence keeps its node from volumes": {lockFacts(holder(ofUser(succeeded), endedFor(time.Hour),
			storage(podsafety.Storage{Fenced: true})), live), Wait, ReasonWaitsForUnmount, grace},
		"completed, and its fence keeps no volumes": {lockFacts(holder(ofUser(succeeded), endedFor(grace), fenceSeen),
			live), FreeLock, ReasonHolderCompleted, 0},
		"completed, and its fence is seen": {lockFacts(holder(ofUser(succeeded), endedFor(grace), shut, fenceSeen), live),
			ReadFence, ReasonWaitsForUnmount, 0},
		"completed, and its fence was read before the holder": {lockFacts(holder(ofUser(succeeded), endedFor(grace), shut,
			fenced(driver, read(1)), nodeIs("boot-2", read(7))), live), ReadFence, ReasonWaitsForUnmount, 0},
		"completed, and its node was read before the fence": {lockFacts(holder(ofUser(succeeded), endedFor(grace), shut,
			fenced(driver, read(6)), nodeIs("boot-2", read(5))), live), ReadNode, ReasonWaitsForUnmount, 0},
		"completed, and its fence has ended the run before": {lockFacts(holder(ofUser(succeeded), endedFor(grace), shut,
			inForce, nodeIs("boot-2", read(7))), live), FreeLock, ReasonHolderCompleted, 0},
		"completed just now, after that": {lockFacts(holder(ofUser(succeeded), endedFor(time.Second), shut, inForce,
			nodeIs("boot-2", read(7))), live), Wait, ReasonWaitsForUnmount, grace - time.Second},
		"completed, and the node that was fenced runs on": {lockFacts(holder(ofUser(succeeded), endedFor(grace), shut,
			inForce), live), Wait, ReasonWaitsForUnmount, grace},
		"completed, and another machine has the name": {lockFacts(holder(ofUser(succeeded), endedFor(grace), shut, inForce,
			nodeIs("boot-2", read(7)), ofOther), live), Wait, ReasonWaitsForUnmount, grace},
		"completed, and the fence is not in force": {lockFacts(holder(ofUser(succeeded), endedFor(grace), shut, inForce,
			nodeIs("boot-2", read(7)), released), live), Wait, ReasonWaitsForUnmount, grace},
		"completed, and a reboot is proven alone": {lockFacts(holder(ofUser(succeeded), endedFor(grace), shut, inForce,
			nodeIs("boot-2", read(7)), ofReboot), live), Wait, ReasonWaitsForUnmount, grace},
		"completed, on a node that returns just now": {lockFacts(holder(ofUser(succeeded), endedFor(time.Hour),
			storage(podsafety.Storage{Away: true})), live), Wait, ReasonWaitsForUnmount, grace},
		"completed, and that has ended": {lockFacts(holder(ofUser(succeeded), endedFor(time.Hour),
			storage(podsafety.Storage{Since: ago(time.Second)})), live), Wait, ReasonWaitsForUnmount, grace - time.Second},
		"completed, and that ended before": {lockFacts(holder(ofUser(succeeded), endedFor(grace),
			storage(podsafety.Storage{Since: ago(time.Hour)})), live), FreeLock, ReasonHolderCompleted, 0},
		"completed, and never seen so": {lockFacts(holder(ofUser(succeeded)), live), Wait, ReasonWaitsForUnmount, grace},
		"completed, on a node that is not Ready": {lockFacts(holder(ofUser(succeeded), endedFor(time.Hour),
			nodeSeen(objects.NodeNotReady)), live), Wait, ReasonHolderUnreachable, recheckAfter},
		"completed, on a node that is out of service": {lockFacts(holder(ofUser(succeeded), endedFor(time.Hour),
			nodeSeen(objects.NodeTainted)), live), Wait, ReasonHolderUnreachable, recheckAfter},
		"completed, and its Node is gone": {lockFacts(holder(ofUser(succeeded), endedFor(time.Hour),
			nodeSeen(objects.NodeAbsent)), live), Wait, ReasonHolderUnreachable, recheckAfter},
		"completed, on a node that was not seen": {lockFacts(holder(ofUser(succeeded), endedFor(time.Hour),
			nodeSeen(objects.NodeUnseen)), live), Wait, ReasonWaitsForUnmount, recheckAfter},
		"completed, on a tainted node that is Ready": {lockFacts(holder(ofUser(succeeded), endedFor(grace),
			nodeSeen(objects.NodeTaintedReady)), live), FreeLock, ReasonHolderCompleted, 0},
		"completed, and a container runs": {lockFacts(holder(ofUser(succeeded), ofUser(running), endedFor(grace)),
			live), Wait,
			ReasonHolderFailed, recheckAfter},

		"a fence is seen": {lockFacts(holder(ofUser(deleted), fenceSeen), live), ReadFence, ReasonHolderTerminating,
			0},
		"of a holder not deleted": {lockFacts(holder(inForce), live), Wait, ReasonHolderRuns, recheckAfter},
		"of a claim without a driver": {lockFacts(lockClaim(noDriver), holder(ofUser(deleted), inForce, fenced("", read(3))),
			live), Wait, ReasonHolderTerminating, recheckAfter},
		"of a claim without a driver, which needs no read": {lockFacts(lockClaim(noDriver), holder(ofUser(deleted),
			fenceSeen), live), Wait, ReasonHolderTerminating, recheckAfter},
		"of a holder without a node": {lockFacts(holder(ofUser(deleted), ofUser(unbound), inForce),
			live), Wait, ReasonHolderTerminating, recheckAfter},
		"read before the holder": {lockFacts(holder(ofUser(deleted), fenced(driver, read(1))), live), ReadFence,
			ReasonHolderTerminating, 0},
		"read long ago": {lockFacts(holder(ofUser(deleted), fenced(driver, old(3))), live), ReadFence,
			ReasonHolderTerminating, 0},
		"in force": {lockFacts(holder(ofUser(deleted), inForce), live), FreeLock, ReasonVolumeFenced, 0},
		"in force, on a node that is away": {lockFacts(holder(ofUser(deleted), inForce, nodeSeen(objects.NodeNotReady)),
			live), FreeLock, ReasonVolumeFenced, 0},
		"in force, and the node was not read": {lockFacts(holder(ofUser(deleted), fenced(driver, read(3))), live), ReadNode,
			ReasonHolderTerminating, 0},
		"read before the holder, too": {lockFacts(holder(ofUser(deleted), fenced(driver, read(3)),
			nodeIs("boot-1", read(1))), live), ReadNode, ReasonHolderTerminating, 0},
		"and long ago": {lockFacts(holder(ofUser(deleted), fenced(driver, read(3)), nodeIs("boot-1", old(4))), live),
			ReadNode, ReasonHolderTerminating, 0},
		"of an earlier run of the node": {lockFacts(holder(ofUser(deleted), inForce, nodeIs("boot-2", read(7))), live), Wait,
			ReasonHolderTerminating, recheckAfter},
		"of a node that is gone": {lockFacts(holder(ofUser(deleted), inForce, nodeIs("", read(7))), live), Wait,
			ReasonHolderTerminating, recheckAfter},
		"of a run that is not known": {lockFacts(holder(ofUser(deleted), inForce, nodeIs("", read(7)), noBoot), live), Wait,
			ReasonHolderTerminating, recheckAfter},
		"of an earlier run, when the holder was terminating": {lockFacts(holder(ofUser(deleted), inForce, since,
			nodeIs("boot-2", read(7))), live), FreeLock, ReasonVolumeFenced, 0},
		"of a holder that is not held": {lockFacts(holder(ofUser(deleted), ofUser(unheld), inForce, since), live), Wait,
			ReasonHolderStays, recheckAfter},
		"of another storage system": {lockFacts(holder(ofUser(deleted), inForce, func(u *User) {
			u.Fence.Volumes = ofCluster(driver, "two")
		}), live), Wait, ReasonHolderTerminating, recheckAfter},
		"of another driver": {lockFacts(holder(ofUser(deleted), inForce, fenced("other", read(3))), live), Wait,
			ReasonHolderTerminating, recheckAfter},
		"released": {lockFacts(holder(ofUser(deleted), inForce, released), live), Wait,
			ReasonHolderTerminating, recheckAfter},
		"not seen any more": {lockFacts(holder(ofUser(deleted), inForce, unseen), live), Wait,
			ReasonHolderTerminating, recheckAfter},
		"the holder read long ago": {lockFacts(holder(ofUser(deleted), inForce), holderRead(old(2))),
			ReadHolder, ReasonVolumeFenced, 0},
		"none of both was read": {lockFacts(holder(ofUser(deleted), fenceSeen)), ReadHolder, ReasonHolderTerminating,
			0},
	} {
		d := DecideLock(c.facts, now())
		if d.Action != c.action || d.Reason != c.reason || d.After != c.after {
			t.Errorf("%s: %v (%s) %s, want %v (%s) %s", name, d.Action, d.Reason, d.After, c.action, c.reason, c.after)
		}
		if d.Claim != c.facts.Claim.Name || d.User != c.facts.Claim.Lock.UID {
			t.Errorf("%s: about %q and %q", name, d.Claim, d.User)
		}
	}
}

// shutDown is a pod without hold and grace, which is released or never was held.
func shutDown(p *Pod)  { p.Terminating, p.GraceZero, p.Held = true, true, false }
func confirmed(p *Pod) { p.Confirmation = objects.ConfirmedThis }
func held(p *Pod)      { p.Held = true }

func graceEnded(d time.Duration) func(*Pod) { return func(p *Pod) { p.GraceEnds = ago(d) } }

func lockIs(l Lock) func(*LockFacts) { return lockClaim(func(c *Claim) { c.Lock = l }) }

func unreported(p *Pod) { p.Reported, p.PhaseByKubelet = false, true }
func byKubelet(p *Pod)  { p.PhaseByKubelet = true }
func running(p *Pod)    { p.Running = true }
func noDriver(c *Claim) { c.Volume.Driver = "" }
func released(u *User)  { u.Fence.InForce = false }
func unseen(u *User)    { u.FenceSeen = false }
func noBoot(u *User)    { u.Fence.BootID = "" }
func shut(u *User)      { u.Storage.Fenced = true }
func ofOther(u *User)   { u.Fence.Machine.MachineID = "another" }
func ofReboot(u *User)  { u.Fence.Coverage = v1alpha1.CoversReboot }
