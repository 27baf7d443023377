package singlenode

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

const (
	driver = "nfs.example.org"
	grace  = podsafety.DefaultUnmountGrace
)

func now() time.Time { return time.Unix(1_800_000_000, 0) }

func ago(d time.Duration) time.Time { return now().Add(-d) }

// read is a live read that was made just now.
func read(order int) session.Read { return session.Read{Sent: now(), Order: order} }

// old is a live read that has expired.
func old(order int) session.Read {
	return session.Read{Sent: ago(session.LiveFor + time.Second), Order: order}
}

// gatedPod is a pod that waits for the lock of the claim data.
func gatedPod() Pod {
	return Pod{Gated: true, Namespace: "ns", Name: "web-1", UID: "uid-1", ResourceVersion: "10",
		Held:   true,
		Claims: []string{"data"}}
}

// runningPod is another pod that uses the claim on node a.
func runningPod() Pod {
	return Pod{Namespace: "ns", Name: "web-0", UID: "uid-0", ResourceVersion: "9", Held: true, Node: "a",
		Claims: []string{"data"}, Running: true, Reported: true}
}

func lockOf(p Pod) Lock { return Lock{UID: p.UID, Name: p.Name} }

func own() Lock   { return lockOf(gatedPod()) }
func other() Lock { return lockOf(runningPod()) }

// volume is the volume of a claim, and ofCluster the volumes of a driver in one storage system.
func volume() objects.Volume {
	return objects.Volume{Driver: driver, Attributes: map[string]string{"clusterID": "one"}}
}

func ofCluster(driver string, cluster v1alpha1.AttributeValue) []v1alpha1.CoveredVolumes {
	return []v1alpha1.CoveredVolumes{{Driver: driver, Volumes: v1alpha1.VolumesMatching,
		VolumeAttributes: map[string]v1alpha1.AttributeValue{"clusterID": cluster}}}
}

// claim is a claim that needs a lock and has none.
func claim(name string) Claim {
	return Claim{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "5", Volume: volume()}
}

// lockedBy gives a claim the lock of a pod.
func lockedBy(c Claim, l Lock) Claim {
	c.Lock, c.Locked, c.Kept = l, true, true
	return c
}

// facts are the facts about gatedPod from the watch caches.
func facts(alter ...func(*Facts)) Facts {
	f := Facts{Mode: ModeAll, Pod: gatedPod(), Claims: []ClaimFacts{{Claim: claim("data")}}}
	for _, a := range alter {
		a(&f)
	}
	return f
}

func pod(alter func(*Pod)) func(*Facts)       { return func(f *Facts) { alter(&f.Pod) } }
func mode(m Mode) func(*Facts)                { return func(f *Facts) { f.Mode = m } }
func modeRead(r session.Read) func(*Facts)    { return func(f *Facts) { f.ModeRead = r } }
func removing(f *Facts)                       { f.Rules.Removing = true }
func ofClaim(alter func(*Claim)) func(*Facts) { return func(f *Facts) { alter(&f.Claims[0].Claim) } }
func queued(p *Pod)                           { p.OtherGates = []string{"queue.example.com/x"} }
func unasked(c *Claim)                        { c.Unasked = true }
func terminating(c *Claim)                    { c.Terminating = true }
func ephemeral(p *Pod)                        { p.Ephemeral = []string{"data"} }

// lock gives the claim a lock, seen by the read.
func lock(l Lock, r session.Read) func(*Facts) {
	return func(f *Facts) { f.Claims[0] = ClaimFacts{Claim: lockedBy(f.Claims[0].Claim, l), Read: r} }
}

// locked gives the pod the lock of its claim, seen by a live read.
func locked(f *Facts) { lock(own(), read(1))(f) }

// second gives the pod a second claim with these facts.
func second(c ClaimFacts) func(*Facts) {
	return func(f *Facts) {
		f.Pod.Claims = append(f.Pod.Claims, c.Claim.Name)
		f.Claims = append(f.Claims, c)
	}
}

// users are the result of a list that was sent after the reads of the claims.
func users(u ...User) func(*Facts) {
	return func(f *Facts) { f.Users, f.UsersRead = u, read(5) }
}

// user is runningPod, altered, on a node that is Ready.
func user(alter ...func(*User)) User {
	u := User{Pod: runningPod(), NodeSeen: objects.NodeReady}
	for _, a := range alter {
		a(&u)
	}
	return u
}

func ofUser(alter func(*Pod)) func(*User) { return func(u *User) { alter(&u.Pod) } }
func nodeSeen(n objects.NodeSeen) func(*User) {
	return func(u *User) { u.NodeSeen = n }
}
func deleted(p *Pod)   { p.Terminating = true }
func succeeded(p *Pod) { p.Final, p.Succeeded, p.Running = true, true, false }
func failed(p *Pod)    { p.Final, p.Running = true, false }
func unbound(p *Pod)   { p.Node, p.Running, p.Reported = "", false, false }

func storage(s podsafety.Storage) func(*User) { return func(u *User) { u.Storage = s } }

// endedFor sets how long ago this process first saw the pod completed.
func endedFor(d time.Duration) func(*User) { return func(u *User) { u.EndedSince = ago(d) } }

// fenced adds a fence of volumes for the run boot-1 of the node, seen by the read.
func fenced(of string, r session.Read) func(*User) {
	return func(u *User) {
		u.FenceSeen = true
		u.Fence, u.FenceRead = objects.Fence{InForce: true, Coverage: v1alpha1.CoversVolumes,
			Volumes: ofCluster(of, "one"), BootID: "boot-1"}, r
	}
}

// nodeIs sets the boot ID of the Node, seen by the read.
func nodeIs(boot string, r session.Read) func(*User) {
	return func(u *User) { u.Node, u.NodeRead = objects.Node{Found: true, BootID: boot}, r }
}

// inForce adds a fence of volumes for the current run of the node, seen by reads after the fourth.
func inForce(u *User) {
	fenced(driver, read(6))(u)
	nodeIs("boot-1", read(7))(u)
}

// since lets the pod be terminating before the fence began.
func since(u *User) { u.Fence.SinceTerminating = true }

func fenceSeen(u *User) { u.FenceSeen = true }

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		facts  Facts
		action Action
		reason Reason
	}{
		"nothing is known":        {Facts{}, Wait, ReasonNotGated},
		"a pod without the gate":  {facts(pod(func(p *Pod) { p.Gated = false })), Wait, ReasonNotGated},
		"not even when removing":  {facts(pod(func(p *Pod) { p.Gated = false }), removing), Wait, ReasonNotGated},
		"a pod that was deleted":  {facts(pod(deleted)), Wait, ReasonPodEnded},
		"a pod that has ended":    {facts(pod(failed)), Wait, ReasonPodEnded},
		"all when uninstalled":    {facts(removing, pod(deleted)), RemoveGate, ReasonUninstalled},
		"a namespace not seen":    {facts(mode(ModeUnknown)), ReadNamespace, ReasonNotAsked},
		"seems not to ask":        {facts(mode(ModeOff)), ReadNamespace, ReasonNotAsked},
		"did not ask, long ago":   {facts(mode(ModeOff), modeRead(old(1))), ReadNamespace, ReasonNotAsked},
		"does not ask":            {facts(mode(ModeOff), modeRead(read(1))), RemoveGate, ReasonNotAsked},
		"does not ask, not held":  {facts(mode(ModeOff), modeRead(read(1)), pod(unheld)), RemoveGate, ReasonNotAsked},
		"no claim at all":         {facts(func(f *Facts) { f.Pod.Claims, f.Claims = nil, nil }), RemoveGate, ReasonNotAsked},
		"a pod that is not held":  {facts(pod(unheld)), Wait, ReasonNotHeld},
		"not even with the lock":  {facts(pod(unheld), locked, users()), Wait, ReasonNotHeld},
		"a pod with another gate": {facts(pod(queued)), Wait, ReasonOtherGates},
		"that needs no lock":      {facts(pod(queued), mode(ModeOff), modeRead(read(1))), RemoveGate, ReasonNotAsked},
		"a claim of no facts":     {facts(func(f *Facts) { f.Claims = nil }), Wait, ReasonClaimMissing},
		"a claim that is missing": {facts(ofClaim(func(c *Claim) { c.UID = "" })), Wait, ReasonClaimMissing},
		"a claim being deleted":   {facts(ofClaim(terminating)), Wait, ReasonClaimTerminating},
		"even if it is locked":    {facts(locked, users(), ofClaim(terminating)), Wait, ReasonClaimTerminating},
		"even if nothing asks": {facts(ofClaim(unasked), ofClaim(terminating)), Wait,
			ReasonClaimTerminating},
		"an ephemeral volume":         {facts(pod(ephemeral), ofClaim(ownedBy("uid-1"))), TakeLock, ReasonAcquired},
		"without an owner":            {facts(pod(ephemeral)), Wait, ReasonClaimOfOther},
		"of an earlier pod":           {facts(pod(ephemeral), ofClaim(ownedBy("uid-0"))), Wait, ReasonClaimOfOther},
		"a claim of another pod":      {facts(ofClaim(ownedBy("uid-0"))), TakeLock, ReasonAcquired},
		"a claim that is free":        {facts(), TakeLock, ReasonAcquired},
		"free, by a live read":        {facts(func(f *Facts) { f.Claims[0].Read = read(1) }), TakeLock, ReasonAcquired},
		"its finalizer is missing":    {facts(locked, users(), ofClaim(unkept)), TakeLock, ReasonAcquired},
		"its annotation is missing":   {facts(locked, users(), ofClaim(unlocked)), TakeLock, ReasonAcquired},
		"another has the lock":        {facts(lock(other(), session.Read{})), Wait, ReasonClaimInUse},
		"by a live read":              {facts(lock(other(), read(1)), users()), Wait, ReasonClaimInUse},
		"without the finalizer":       {facts(lock(other(), read(1)), ofClaim(unkept)), Wait, ReasonClaimInUse},
		"the name is damaged":         {facts(lock(Lock{UID: "uid-1", Name: "web"}, read(1))), Wait, ReasonClaimInUse},
		"the UID is damaged":          {facts(lock(Lock{UID: "uid", Name: "web-1"}, read(1))), Wait, ReasonClaimInUse},
		"all of it is damaged":        {facts(lock(Lock{UID: "x"}, read(1))), Wait, ReasonClaimInUse},
		"locked, as the watch shows":  {facts(lock(own(), session.Read{}), users()), ReadClaim, ReasonAcquired},
		"locked":                      {facts(locked), ListPods, ReasonAcquired},
		"locked long ago":             {facts(lock(own(), old(1))), ListPods, ReasonAcquired},
		"listed before the lock":      {facts(lock(own(), read(6)), users()), ListPods, ReasonAcquired},
		"listed long ago":             {facts(locked, listed(old(5))), ListPods, ReasonAcquired},
		"no other pod uses it":        {facts(locked, users()), RemoveGate, ReasonAcquired},
		"with a lock of long ago":     {facts(lock(own(), old(1)), users()), RemoveGate, ReasonAcquired},
		"another uses it":             {facts(locked, users(user())), Wait, ReasonUsedWithoutLock},
		"before it runs":              {facts(locked, users(user(ofUser(unbound)))), Wait, ReasonUsedWithoutLock},
		"while it terminates":         {facts(locked, users(user(ofUser(deleted)))), Wait, ReasonUsedWithoutLock},
		"though it has failed":        {facts(locked, users(user(ofUser(failed)))), Wait, ReasonUsedWithoutLock},
		"another is gated":            {facts(locked, users(user(ofUser(gate)))), RemoveGate, ReasonAcquired},
		"another uses another":        {facts(locked, users(user(ofUser(otherClaim)))), RemoveGate, ReasonAcquired},
		"the list has the pod itself": {facts(locked, users(User{Pod: ungated()})), RemoveGate, ReasonAcquired},
		"the other one has ended": {facts(locked, users(user(ofUser(succeeded), endedFor(grace)))), RemoveGate,
			ReasonAcquired},
		"one of two has ended": {facts(locked, users(user(ofUser(succeeded), endedFor(grace)), user(ofUser(second0)))), Wait,
			ReasonUsedWithoutLock},
		"it has ended on a node that is away": {facts(locked, users(user(ofUser(succeeded), endedFor(time.Hour),
			nodeSeen(objects.NodeNotReady)))), Wait, ReasonUsedWithoutLock},
		"it is not held, and has no grace": {facts(locked, users(user(ofUser(shutDown)))), Wait, ReasonUsedWithoutLock},
		"and its end is confirmed": {facts(locked, users(user(ofUser(shutDown), ofUser(confirmed)))), RemoveGate,
			ReasonAcquired},
		"it was just seen so": {facts(locked, users(user(ofUser(succeeded), endedFor(0)))), Wait, ReasonUsedWithoutLock},
		"its node may be fenced": {facts(locked, users(user(ofUser(deleted), fenceSeen))), ReadFence,
			ReasonHolderTerminating},
		"its node is fenced, in some run": {facts(locked, users(user(ofUser(deleted), fenced(driver, read(6))))), ReadNode,
			ReasonHolderTerminating},
		"its node is fenced, in an earlier run": {
			facts(locked, users(user(ofUser(deleted), inForce, nodeIs("boot-2", read(7))))), Wait, ReasonUsedWithoutLock},
		"its node is fenced": {facts(locked, users(user(ofUser(deleted), inForce))), RemoveGate,
			ReasonAcquired},
		"for another driver": {facts(locked, users(user(ofUser(deleted), inForce, fenced("x", read(6))))), Wait,
			ReasonUsedWithoutLock},
	} {
		d := Decide(c.facts, now())
		if d.Action != c.action || d.Reason != c.reason {
			t.Errorf("%s: %v (%s), want %v (%s)", name, d.Action, d.Reason, c.action, c.reason)
		}
	}
}

func unheld(p *Pod)     { p.Held = false }
func gate(p *Pod)       { p.Gated = true }
func otherClaim(p *Pod) { p.Claims = []string{"logs"} }
func second0(p *Pod)    { p.Name, p.UID = "web-2", "uid-2" }
func unkept(c *Claim)   { c.Kept = false }
func unlocked(c *Claim) { c.Locked, c.Lock = false, Lock{} }

func ownedBy(pod string) func(*Claim) { return func(c *Claim) { c.Owner = types.UID(pod) } }

func listed(r session.Read) func(*Facts) { return func(f *Facts) { f.UsersRead = r } }

// ungated is gatedPod after the removal of its gate.
func ungated() Pod {
	p := gatedPod()
	p.Gated = false
	return p
}

// A lagging watch does not prove that a claim needs no lock, or that no other pod has its lock.
func TestUnaskedNeedsLiveReads(t *testing.T) {
	for name, c := range map[string]struct {
		facts  Facts
		action Action
		reason Reason
	}{
		"as the watch shows":    {facts(ofClaim(unasked)), ReadNamespace, ReasonNotAsked},
		"the namespace is read": {facts(ofClaim(unasked), modeRead(read(1))), ReadClaim, ReasonNotAsked},
		"the claim before it":   {facts(ofClaim(unasked), modeRead(read(2)), claimRead(read(1))), ReadClaim, ReasonNotAsked},
		"the claim long ago":    {facts(ofClaim(unasked), modeRead(read(1)), claimRead(old(2))), ReadClaim, ReasonNotAsked},
		"the namespace long ago": {facts(ofClaim(unasked), modeRead(old(1)), claimRead(read(2))), ReadNamespace,
			ReasonNotAsked},
		"the claim alone": {facts(ofClaim(unasked), claimRead(read(1))), ReadNamespace, ReasonNotAsked},
		"both":            {facts(ofClaim(unasked), modeRead(read(1)), claimRead(read(2))), RemoveGate, ReasonNotAsked},
		"a pod that is not held": {facts(ofClaim(unasked), modeRead(read(1)), claimRead(read(2)), pod(unheld)), RemoveGate,
			ReasonNotAsked},
		"another has its lock": {facts(ofClaim(unasked), modeRead(read(1)), lock(other(), read(2))), RemoveGate,
			ReasonNotAsked},
		"of one claim, and another is in use": {facts(lock(other(), session.Read{}),
			second(ClaimFacts{Claim: unaskedLogs()})),
			Wait, ReasonClaimInUse},
		"of one claim, before the lock of another": {facts(second(ClaimFacts{Claim: unaskedLogs()})), ReadNamespace,
			ReasonNotAsked},
		"of one claim, with the lock of another": {facts(locked, users(), modeRead(read(1)),
			second(ClaimFacts{Claim: unaskedLogs(), Read: read(2)})), RemoveGate, ReasonAcquired},
		"of one claim, long ago, with the lock of another": {facts(locked, users(), modeRead(read(1)),
			second(ClaimFacts{Claim: unaskedLogs(), Read: old(2)})), ReadClaim, ReasonNotAsked},
	} {
		d := Decide(c.facts, now())
		if d.Action != c.action || d.Reason != c.reason {
			t.Errorf("%s: %v (%s), want %v (%s)", name, d.Action, d.Reason, c.action, c.reason)
		}
	}
}

func claimRead(r session.Read) func(*Facts) { return func(f *Facts) { f.Claims[0].Read = r } }

func unaskedLogs() Claim {
	c := claim("logs")
	c.Unasked = true
	return c
}

// Pods with several claims must not wait for each other in a circle. The order is by name, regardless of UIDs and of
// the order in the pod, and a pod that waits takes no lock.
func TestLocksAreTakenInOrderOfClaimNames(t *testing.T) {
	free := func(name, uid string) ClaimFacts {
		c := claim(name)
		c.UID = types.UID(uid)
		return ClaimFacts{Claim: c}
	}
	by := func(l Lock, c ClaimFacts) ClaimFacts {
		return ClaimFacts{Claim: lockedBy(c.Claim, l), Read: read(1)}
	}
	for name, c := range map[string]struct {
		claims []ClaimFacts
		action Action
		claim  string
	}{
		"the first by name":           {[]ClaimFacts{free("b", "1"), free("a", "2")}, TakeLock, "a"},
		"then the second":             {[]ClaimFacts{free("b", "1"), by(own(), free("a", "2"))}, TakeLock, "b"},
		"none while one is in use":    {[]ClaimFacts{free("a", "1"), by(other(), free("b", "2"))}, Wait, "b"},
		"the first that is in use":    {[]ClaimFacts{by(other(), free("b", "1")), by(other(), free("a", "2"))}, Wait, "a"},
		"keeps its locks":             {[]ClaimFacts{by(own(), free("a", "1")), by(other(), free("b", "2"))}, Wait, "b"},
		"then the list of the pods":   {[]ClaimFacts{by(own(), free("b", "1")), by(own(), free("a", "2"))}, ListPods, ""},
		"a claim that does not exist": {[]ClaimFacts{free("a", "1"), free("b", "")}, Wait, "b"},
	} {
		f := facts(func(f *Facts) {
			f.Pod.Claims, f.Claims = []string{"b", "a"}, c.claims
		})
		if d := Decide(f, now()); d.Action != c.action || d.Claim != c.claim {
			t.Errorf("%s: %v %q (%s), want %v %q", name, d.Action, d.Claim, d.Reason, c.action, c.claim)
		}
	}
}

func TestListComesAfterEachLock(t *testing.T) {
	logs := ClaimFacts{Claim: lockedBy(claim("logs"), own())}
	for order, want := range map[int]Action{4: RemoveGate, 5: ListPods, 6: ListPods} {
		logs.Read = read(order)
		if d := Decide(facts(locked, users(), second(logs)), now()); d.Action != want {
			t.Errorf("read %d: %v (%s), want %v", order, d.Action, d.Reason, want)
		}
	}
}

func TestDecisionNamesClaimUserAndDelay(t *testing.T) {
	for name, c := range map[string]struct {
		facts Facts
		want  Decision
	}{
		"a wait for the unmount": {facts(locked, users(user(ofUser(succeeded), endedFor(10*time.Second)))),
			Decision{Reason: ReasonUsedWithoutLock, After: grace - 10*time.Second, Claim: "data", User: "uid-0"}},
		"by its own setting": {facts(locked, users(user(ofUser(succeeded), endedFor(10*time.Second))),
			func(f *Facts) { f.Rules.UnmountGrace = 15 * time.Second }),
			Decision{Reason: ReasonUsedWithoutLock, After: 5 * time.Second, Claim: "data", User: "uid-0"}},
		"a fence": {facts(locked, users(user(ofUser(deleted), fenceSeen))),
			Decision{Action: ReadFence, Reason: ReasonHolderTerminating, Claim: "data", User: "uid-0"}},
		"the second claim": {facts(locked, users(user(ofUser(otherClaim))),
			second(ClaimFacts{Claim: lockedBy(claim("logs"), own()), Read: read(2)})),
			Decision{Reason: ReasonUsedWithoutLock, After: recheckAfter, Claim: "logs", User: "uid-0"}},
		"a wait for the unmount that is long": {facts(locked, users(user(ofUser(succeeded), endedFor(0))),
			func(f *Facts) { f.Rules.UnmountGrace = time.Hour }),
			Decision{Reason: ReasonUsedWithoutLock, After: recheckAfter, Claim: "data", User: "uid-0"}},
		"a claim that is missing": {facts(ofClaim(func(c *Claim) { c.UID = "" })),
			Decision{Reason: ReasonClaimMissing, Claim: "data"}},
		"a terminating claim": {facts(ofClaim(terminating)), Decision{Reason: ReasonClaimTerminating, Claim: "data"}},
		"one of another":      {facts(pod(ephemeral)), Decision{Reason: ReasonClaimOfOther, Claim: "data"}},
	} {
		if d := Decide(c.facts, now()); d != c.want {
			t.Errorf("%s: %+v, want %+v", name, d, c.want)
		}
	}
}
