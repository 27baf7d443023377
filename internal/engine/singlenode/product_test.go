package singlenode

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// These tests visit every combination of the relevant values. Rules that are independent of the code judge each
// decision.

func fresh(r session.Read) bool { return r.Order > 0 && now().Sub(r.Sent) <= 5*time.Second }

func after(r, other session.Read) bool { return fresh(r) && r.Order > other.Order }

// ended reports whether a pod from a live read can no longer write to a volume.
func ended(u User, shown session.Read, of objects.Volume) bool {
	p := u.Pod
	kubeletWorks := p.Node == "" || u.NodeSeen == objects.NodeReady || u.NodeSeen == objects.NodeTaintedReady
	byItself := kubeletWorks && !p.Terminating && p.Final && !p.Running && p.Reported &&
		(p.Succeeded || p.PhaseByKubelet) &&
		!u.EndedSince.IsZero() && now().Sub(u.EndedSince) >= 30*time.Second && !u.Storage.Away &&
		now().Sub(u.Storage.Since) >= 30*time.Second && (!u.Storage.Fenced || bootedSince(u, shown))
	cutOff := p.Held && p.Terminating && p.Node != "" && u.FenceSeen && after(u.FenceRead, shown) && u.Fence.InForce &&
		u.Fence.Coverage == v1alpha1.CoversVolumes && named(u.Fence, of) &&
		after(u.NodeRead, shown)
	sameRun := u.Fence.SinceTerminating || u.Node.BootID == u.Fence.BootID && u.Fence.BootID != ""
	byWord := p.Terminating && p.GraceZero && !p.Held && p.Confirmation == objects.ConfirmedThis
	return byItself || byWord || cutOff && sameRun
}

// bootedSince reports whether the node has booted since a fence keeps it from volumes.
func bootedSince(u User, shown session.Read) bool {
	return u.FenceSeen && after(u.FenceRead, shown) && after(u.NodeRead, u.FenceRead) && u.Fence.InForce &&
		u.Fence.Coverage == v1alpha1.CoversVolumes && u.Fence.BootID != "" && u.Node.BootID != "" &&
		u.Node.BootID != u.Fence.BootID
}

// named reports whether a fence covers this volume, and not only others of its driver.
func named(f objects.Fence, of objects.Volume) bool {
	return of.Driver != "" && slices.ContainsFunc(f.Volumes, func(v v1alpha1.CoveredVolumes) bool {
		return v.Driver == of.Driver && string(v.VolumeAttributes["clusterID"]) == of.Attributes["clusterID"]
	})
}

// everyUser visits the facts about the end of a pod that uses a claim: every state of the pod with and without a fence
// of its node, and some states with every state of the fence.
func everyUser(visit func(User)) {
	everyPod(func(u User) {
		visit(u)
		for _, u.Storage = range []podsafety.Storage{{}, {Fenced: true}, {Away: true}, {Since: now()}} {
			inForce(&u)
			visit(u)
		}
	})
	for n := objects.NodeUnseen; n <= objects.NodeAbsent; n++ {
		visit(user(ofUser(succeeded), endedFor(grace), nodeSeen(n)))
	}
	for bits := range 1 << 3 {
		for c := objects.NotConfirmed; c <= objects.ConfirmedThis; c++ {
			visit(user(ofUser(func(p *Pod) {
				p.Terminating, p.GraceZero, p.Held, p.Confirmation = bits&1 != 0, bits&2 != 0, bits&4 != 0, c
			})))
		}
	}
	for _, alter := range []func(*Pod){
		func(*Pod) {}, deleted, succeeded, func(p *Pod) { deleted(p); unbound(p) }, func(p *Pod) { deleted(p); unheld(p) },
	} {
		everyFence(user(ofUser(alter)), func(u User) { everyNode(u, visit) })
	}
	everyFence(user(ofUser(succeeded), endedFor(grace), shut), func(u User) { everyNode(u, visit) })
}

// everyUsers is the number of visits of everyUser.
const everyUsers = 256*3*5 + 6 + 8*3 + 6*(8*4*4)*(2*2*3*4)

// everyPod visits each state of a pod that uses a claim.
func everyPod(visit func(User)) {
	for bits := range 1 << 8 {
		bit := func(i int) bool { return bits&(1<<i) != 0 }
		p := runningPod()
		p.Terminating, p.Final, p.Running, p.Reported = bit(0), bit(1), bit(2), bit(3)
		p.Succeeded, p.PhaseByKubelet, p.Gated = bit(4) && bit(1), bit(5) && bit(1), bit(6)
		if bit(7) {
			p.Node = ""
		}
		for _, since := range []time.Time{{}, now(), ago(grace)} {
			visit(User{Pod: p, EndedSince: since, NodeSeen: objects.NodeReady})
		}
	}
}

// everyFence visits each state of the fence of a pod's node.
func everyFence(u User, visit func(User)) {
	for bits := range 1 << 3 {
		u.FenceSeen, u.Fence.InForce = bits&1 != 0, bits&2 != 0
		u.Fence.Coverage = v1alpha1.CoversReboot
		if bits&4 != 0 {
			u.Fence.Coverage = v1alpha1.CoversVolumes
		}
		for _, u.Fence.Volumes = range [][]v1alpha1.CoveredVolumes{nil, ofCluster(driver, "one"), ofCluster(driver, "two"),
			ofCluster("other", "one")} {
			for _, u.FenceRead = range []session.Read{{}, old(6), read(4), read(6)} {
				visit(u)
			}
		}
	}
}

// everyNode visits each state of the node's run, relative to its fence.
func everyNode(u User, visit func(User)) {
	for _, u.Fence.SinceTerminating = range []bool{false, true} {
		for _, u.Fence.BootID = range []string{"", "boot-1"} {
			for _, boot := range []string{"", "boot-1", "boot-2"} {
				for _, r := range []session.Read{{}, old(7), read(4), read(7)} {
					nodeIs(boot, r)(&u)
					visit(u)
				}
			}
		}
	}
}

// mayFree reports whether the lock of a claim may be freed.
func mayFree(f LockFacts) bool {
	c := f.Claim
	switch {
	case !c.Locked && !c.Kept:
		return false
	case f.Rules.Removing, !c.Locked, c.Lock.Name == "":
		return true
	}
	p := f.Holder.Pod
	// No other pod can take the lock of a claim that is being deleted.
	leaves := c.Terminating && p.Terminating && p.GraceZero && !p.Held
	others := f.Holder.Pod.UID != c.Lock.UID || !slices.Contains(f.Holder.Pod.Claims, c.Name)
	return f.HolderGone && f.Holder.Pod.UID != c.Lock.UID ||
		fresh(f.HolderRead) && (others || leaves || ended(f.Holder, f.HolderRead, c.Volume))
}

func judgeLock(t *testing.T, f LockFacts) {
	t.Helper()
	d := DecideLock(f, now())
	switch {
	case (d.Action == FreeLock) != mayFree(f):
		t.Fatalf("%v (%s), and the lock may be freed: %t\n%+v", d.Action, d.Reason, mayFree(f), f)
	case d.Action != Wait && !f.Claim.Locked && !f.Claim.Kept:
		t.Fatalf("%v (%s) of a claim without a lock\n%+v", d.Action, d.Reason, f)
	case d.Action == ReadHolder && fresh(f.HolderRead), d.Action == ReadFence && after(f.Holder.FenceRead, f.HolderRead),
		d.Action == ReadNode && after(f.Holder.NodeRead, f.HolderRead):
		t.Fatalf("%v (%s) once more\n%+v", d.Action, d.Reason, f)
	case slices.Contains([]Action{ReadFence, ReadNode}, d.Action) && f.Holder.Pod.Node == "",
		d.Action != Wait && d.After != 0, d.After < 0, d.After > recheckAfter:
		t.Fatalf("%v (%s) for %s\n%+v", d.Action, d.Reason, d.After, f)
	case !slices.Contains([]Action{Wait, ReadHolder, ReadFence, ReadNode, FreeLock}, d.Action):
		t.Fatalf("%v (%s) of a lock\n%+v", d.Action, d.Reason, f)
	}
}

func TestNoCombinationFreesNeededLock(t *testing.T) {
	t.Parallel()
	locks := []func(*Claim){func(*Claim) {}, unlocked, unkept, func(c *Claim) { unlocked(c); unkept(c) },
		func(c *Claim) { c.Lock = Lock{UID: "uid-0"} }, func(c *Claim) { c.Lock.UID = "uid-9" },
		noDriver, func(c *Claim) { c.Name = "logs" }, terminating}
	visited := 0
	everyUser(func(u User) {
		for _, alter := range locks {
			for _, holderRead := range []session.Read{{}, old(5), read(5)} {
				f := LockFacts{Claim: with(lockedBy(claim("data"), other()), alter), Holder: u, HolderRead: holderRead}
				judgeLock(t, f)
				f.HolderGone = true
				judgeLock(t, f)
				f.Rules.Removing = true
				judgeLock(t, f)
				visited += 3
			}
		}
	})
	if want := everyUsers * len(locks) * 3 * 3; visited != want {
		t.Errorf("visited %d combinations, want %d", visited, want)
	}
}

// blocked reports whether a state outside the pod's control keeps it from its claims.
func blocked(f Facts) bool {
	for i, c := range f.Claims {
		switch claim := c.Claim; {
		case claim.UID == "", claim.Terminating, slices.Contains(f.Pod.Ephemeral, claim.Name) && claim.Owner != f.Pod.UID:
			return true
		case !claim.Unasked && (!f.Pod.Held || claim.Locked && claim.Lock != own()):
			return true
		case f.Pod.Claims[i] != claim.Name:
			panic("not a claim of the pod")
		}
	}
	return false
}

// usedByOther reports whether the last list shows a pod that may write to a claim that needs a lock.
func usedByOther(f Facts) bool {
	return slices.ContainsFunc(f.Users, func(u User) bool {
		return u.Pod.UID != f.Pod.UID && !u.Pod.Gated && slices.ContainsFunc(f.Claims, func(c ClaimFacts) bool {
			return !c.Claim.Unasked && slices.Contains(u.Pod.Claims, c.Claim.Name) &&
				!ended(u, f.UsersRead, c.Claim.Volume)
		})
	})
}

// mayRun reports whether the gate of the pod may be removed.
func mayRun(f Facts) bool {
	switch {
	case !f.Pod.Gated:
		return false
	case f.Rules.Removing:
		return true
	case f.Pod.Terminating, f.Pod.Final, f.Mode == ModeUnknown:
		return false
	case f.Mode == ModeOff:
		return fresh(f.ModeRead)
	}
	for _, c := range f.Claims {
		switch {
		case c.Claim.Unasked && (!fresh(f.ModeRead) || !after(c.Read, f.ModeRead)):
			return false
		case c.Claim.Unasked:
		case !c.Claim.Locked, !c.Claim.Kept, c.Read.Order == 0, !after(f.UsersRead, c.Read):
			return false
		}
	}
	return !blocked(f) && !queuedElsewhere(f) && !usedByOther(f)
}

// queuedElsewhere reports whether another program keeps the pod from being scheduled, perhaps forever. Such a pod must
// not keep a claim from others.
func queuedElsewhere(f Facts) bool {
	return len(f.Pod.OtherGates) > 0 &&
		slices.ContainsFunc(f.Claims, func(c ClaimFacts) bool { return !c.Claim.Unasked })
}

// wrongWrite returns the rule that a write breaks, empty for none.
func wrongWrite(f Facts, d Decision) string {
	if d.Action != TakeLock {
		return ""
	}
	for _, c := range f.Claims {
		switch {
		case c.Claim.Name < d.Claim && !c.Claim.Unasked && (!c.Claim.Locked || !c.Claim.Kept):
			return "the locks are not taken in order"
		case c.Claim.Name == d.Claim && (c.Claim.Unasked || c.Claim.Locked && c.Claim.Kept):
			return "a lock is taken that is not needed"
		}
	}
	if blocked(f) || queuedElsewhere(f) {
		return "a lock is taken by a pod that waits"
	}
	return ""
}

func judgePod(t *testing.T, f Facts) {
	t.Helper()
	d := Decide(f, now())
	waits := !f.Pod.Gated || f.Pod.Terminating || f.Pod.Final || blocked(f) || queuedElsewhere(f) ||
		usedByOther(f)
	switch {
	case (d.Action == RemoveGate) != mayRun(f):
		t.Fatalf("%v (%s), and it may run: %t\n%+v", d.Action, d.Reason, mayRun(f), f)
	case wrongWrite(f, d) != "":
		t.Fatalf("%v (%s): %s\n%+v", d.Action, d.Reason, wrongWrite(f, d), f)
	case d.Action == Wait && !waits:
		t.Fatalf("%v (%s) though nothing keeps it\n%+v", d.Action, d.Reason, f)
	case d.Action != Wait && d.After != 0, d.After < 0, d.After > recheckAfter:
		t.Fatalf("%v (%s) for %s\n%+v", d.Action, d.Reason, d.After, f)
	case d.Action == ReadHolder, d.Action == FreeLock:
		t.Fatalf("%v (%s) of a pod\n%+v", d.Action, d.Reason, f)
	}
}

// everyClaim visits each state of a claim.
func everyClaim(name string, visit func(ClaimFacts)) {
	for _, alter := range []func(*Claim){
		func(*Claim) {}, unasked, terminating, func(c *Claim) { c.UID = "" }, ownedBy("uid-1"), noDriver,
	} {
		for _, l := range []Lock{{}, own(), other(), {UID: "uid-1", Name: "web"}} {
			for bits := range 1 << 2 {
				for _, r := range []session.Read{{}, old(2), read(2), read(6)} {
					c := with(lockedBy(claim(name), l), alter)
					c.Locked, c.Kept = bits&1 != 0 || l != (Lock{}), bits&2 != 0
					visit(ClaimFacts{Claim: c, Read: r})
				}
			}
		}
	}
}

// someClaims visits the most important states of a second claim.
func someClaims(name string, visit func(ClaimFacts)) {
	free := claim(name)
	for _, c := range []Claim{
		free, with(free, unasked), with(free, terminating), lockedBy(free, own()), lockedBy(free, other()),
		with(lockedBy(free, own()), unasked),
	} {
		for _, r := range []session.Read{{}, read(2), read(6)} {
			visit(ClaimFacts{Claim: c, Read: r})
		}
	}
}

func TestNoCombinationOfClaimsLetsAPodRun(t *testing.T) {
	t.Parallel()
	pods := []func(*Pod){func(*Pod) {}, unheld, deleted, failed, gateless, ephemeral}
	visited := 0
	everyClaim("data", func(first ClaimFacts) {
		someClaims("assets", func(c ClaimFacts) {
			for _, alter := range pods {
				for _, list := range []session.Read{{}, old(5), read(5)} {
					for _, modeRead := range []session.Read{{}, old(1), read(1), read(4)} {
						f := facts(second(c), pod(alter), listed(list))
						f.Claims[0], f.ModeRead = first, modeRead
						judgePod(t, f)
						visited++
					}
				}
			}
		})
	})
	if want := 384 * 18 * len(pods) * 3 * 4; visited != want {
		t.Errorf("visited %d combinations, want %d", visited, want)
	}
}

func TestNoCombinationOfUsersLetsAPodRun(t *testing.T) {
	t.Parallel()
	visited := 0
	logs := ClaimFacts{Claim: lockedBy(claim("logs"), own()), Read: read(3)}
	logs.Claim.Volume.Driver = "other"
	everyUser(func(u User) {
		for _, alter := range []func(*Pod){func(*Pod) {}, otherClaim, func(p *Pod) { p.UID = "uid-1" }} {
			for _, list := range []session.Read{{}, old(5), read(5)} {
				one := u
				alter(&one.Pod)
				f := facts(locked, second(logs), users(one))
				f.UsersRead = list
				judgePod(t, f)
				f.Users = append(f.Users, User{Pod: otherPod()})
				judgePod(t, f)
				visited += 2
			}
		}
	})
	if want := everyUsers * 3 * 3 * 2; visited != want {
		t.Errorf("visited %d combinations, want %d", visited, want)
	}
}

func TestNoCombinationOfTheNamespaceLetsAPodRun(t *testing.T) {
	t.Parallel()
	for bits := range 1 << 6 {
		bit := func(i int) bool { return bits&(1<<i) != 0 }
		for m := ModeUnknown; m <= ModeAll; m++ {
			for _, modeRead := range []session.Read{{}, old(1), read(1)} {
				everyClaim("data", func(c ClaimFacts) {
					f := facts(mode(m), users())
					f.Claims[0], f.ModeRead, f.Rules.Removing = c, modeRead, bit(0)
					f.Pod.Gated, f.Pod.Held, f.Pod.Terminating, f.Pod.Final = bit(1), bit(2), bit(3), bit(4)
					if bit(5) {
						queued(&f.Pod)
					}
					judgePod(t, f)
				})
			}
		}
	}
}

func gateless(p *Pod) { p.Gated = false }

// otherPod is a pod that uses none of the claims.
func otherPod() Pod {
	p := runningPod()
	p.UID, p.Claims = "uid-7", []string{"assets"}
	return p
}
