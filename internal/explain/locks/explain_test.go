package locks

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

// explainNew explains the gated pod from the facts that a read gives.
func explainNew(env environment) string {
	f := PodFacts{Facts: env.podFacts(env.new), Locks: explain.Found(env.read())}
	if p, found := f.waitsForPod(); found && p.Terminating {
		its := env.podFacts(env.old)
		f.Holder = explain.Found(&its)
	}
	return ExplainPod(f).Wrapped(false, 0)
}

func TestExplainGatedPod(t *testing.T) {
	const confirm = "kubectl reclaim confirm pvc/data -n shop"
	explained.Table(t, plain, explainNew, map[string]explained.Row[environment]{
		"another pod uses the claim": {func(*environment) {}, []string{
			"Pod shop/new has been waiting to be scheduled for 5m (ClaimInUse): The pod is not scheduled, because another pod " +
				"has the lock of its claim. Claim data. Pod old, on node n1, has the lock. It has not ended",
			"Gate         csi-reclaimer.io/volume, for 5m", "locked by pod old",
			"Decision     Wait, ClaimInUse (by volume-guard (single-node))",
			"Waits for    the lock of claim data, which pod old has", "kubectl reclaim explain pvc/data -n shop",
			"!Pod shop/old", "!" + confirm, "!Start volume-guard"}},
		"the other is terminating on a node that is cut off": {func(env *environment) {
			terminate(env.old)
			env.down()
		}, []string{"(ClaimInUse)", confirm,
			"Pod shop/old has been terminating for 10m and waits (NodeUnreachable)",
			"No evidence  Finished: The phase of the pod is neither", "locked by this pod",
			"Pod new uses claim data too, and may be scheduled once this pod is gone", "!kubectl reclaim explain pvc/data"}},
		"it was created without the lock, and is terminating": {func(env *environment) {
			env.claim = claim("data", "new")
			terminate(env.old)
		}, []string{"(UsedWithoutLock)", "Waits for    pod old to end, which uses claim data without the lock",
			"Pod shop/old has been terminating for 10m", "!" + confirm}},
		"volume-guard is about to schedule it": {func(env *environment) { env.old, env.claim = nil, claim("data", "") },
			[]string{"Waits for    volume-guard to remove its gate", "Decision     RemoveGate, LocksAcquired"}},
		"volume-guard does not run": {func(env *environment) {
			env.old, env.claim = nil, claim("data", "")
			env.away()
		}, []string{"(LocksAcquired)", "If that does not happen, volume-guard does not run",
			"You can      Start volume-guard with the controller single-node"}},
		"its namespace may not be read": {func(env *environment) { explained.Forbid(&env.facts.Namespaces) },
			[]string{"(APIReadFailed)", "Decision     APIReadFailed", "Namespaces: forbidden"}},
		"it is being deleted": {func(env *environment) { terminate(env.new) }, []string{"(NeverBound)", "!Gate"}},
		"it has no gate": {func(env *environment) { env.new.Spec.SchedulingGates = nil }, []string{"(NotTerminating)",
			"!Gate", "locked by pod old"}},
	})
}

func TestExplainPodWithoutLocks(t *testing.T) {
	env := newEnvironment()
	f := PodFacts{Facts: env.podFacts(env.new), Locks: explain.Failed[Facts](errForbidden)}
	expect(t, ExplainPod(f).Wrapped(false, 0), "Gate         csi-reclaimer.io/volume, for 5m",
		"Locks: forbidden. So it is not known which pod the pod waits for")
	f.Locks, f.Holder = explain.Found(env.read()), explain.Failed[*pods.Facts](errForbidden)
	expect(t, ExplainPod(f).Wrapped(false, 0), "The pod that is waited for: forbidden")
}

// explainLock explains the claim as bound, and its lock.
func explainLock(env environment) string {
	return env.explainClaim(explain.Explanation{Headline: "Claim shop/data is bound."})
}

// explainClaim explains the claim from the facts that a read gives.
func (env *environment) explainClaim(s explain.Explanation) string {
	f := ClaimFacts{Claim: ClaimOf(env.claim), Locks: explain.Found(env.read())}
	if p, found := f.holder(); found && p.Terminating {
		its := env.podFacts(env.old)
		f.Holder = explain.Found(&its)
	}
	AddLock(&s, f)
	return s.Wrapped(false, 0)
}

func TestExplainLock(t *testing.T) {
	const confirm = "kubectl reclaim confirm pvc/data -n shop"
	explained.Table(t, plain, explainLock, map[string]explained.Row[environment]{
		"another pod waits": {func(*environment) {}, []string{
			"Claim shop/data is bound (HolderRuns): The pod that has the lock uses the claim. Pod old, on node n1",
			"Lock         pod old, node n1, for 60m (HolderRuns)", "Waiting      pod new for 5m",
			"Decision     Wait, HolderRuns (by volume-guard (single-node))",
			"Waits for    pod old to end, before another pod can use the claim", "!" + confirm, "!Pod shop/old"}},
		"no waiting pods": {func(env *environment) { env.new = nil }, []string{"Claim shop/data is bound.\n",
			"Lock         pod old", "!Waiting", "!Waits for"}},
		"its node is cut off, and no pod waits": {func(env *environment) { env.new = nil; env.down() }, []string{
			"Claim shop/data is bound (HolderUnreachable)", "kubectl delete pod old -n shop", "!Waits for", "!" + confirm}},
		"it is terminating": {func(env *environment) { terminate(env.old); env.down() }, []string{
			"Claim shop/data is bound (HolderUnreachable)", "Waits for    node n1 to return, or evidence that its processes " +
				"cannot run, before another pod can use the claim", confirm, "Pod shop/old has been terminating for 10m and " +
				"waits (NodeUnreachable)", "No evidence  Finished"}},
		"its pod is gone": {func(env *environment) { env.old = nil; env.away() }, []string{
			"(HolderGone)", "Decision     FreeLock, HolderGone", "volume-guard does not run", "Start volume-guard"}},
		"it names no pod": {func(env *environment) { lock(env.claim, "what") }, []string{
			"Lock         names no pod, for 60m (LockDamaged)"}},
		"it has none": {func(env *environment) { env.claim = claim("data", "") }, []string{"Claim shop/data is bound.\n",
			"Lock         none: no pod has it\n", "!Decision"}},
		"nothing asks for one": {func(env *environment) {
			env.claim = claim("data", "")
			env.claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany}
		}, []string{"Lock         none: no lock is requested\n"}},
	})
}

func TestAddLockKeepsExistingDecision(t *testing.T) {
	env := newEnvironment()
	text := env.explainClaim(explain.Explanation{Headline: "It is decided.", Decision: &explain.Decision{Reason: "InUse"}})
	expect(t, text, "It is decided.\n", "Decision     InUse", "Lock         pod old, node n1, for 60m (HolderRuns)")
	deleted := ClaimFacts{Claim: ClaimOf(env.claim)}
	deleted.Locks.Made, deleted.Locks.Value.Now = true, now()
	var s explain.Explanation
	AddLock(&s, deleted)
	expect(t, s.Wrapped(false, 0), "Lock         pod old, for 60m (HolderGone)")
	s = explain.Explanation{}
	AddLock(&s, ClaimFacts{})
	AddLock(&s, ClaimFacts{Locks: explain.Failed[Facts](errForbidden)})
	expect(t, s.Wrapped(false, 0), "!Lock  ", "Locks: forbidden. So it is not known which pod has the lock of the claim")
}

func TestConfirmable(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*environment)
		// cause and next are parts of the refusal. If they are empty, pod old is confirmable.
		cause, next string
	}{
		"its pod is terminating":                        {func(env *environment) { terminate(env.old) }, "", ""},
		"its pod is terminating on a node that is away": {func(env *environment) { terminate(env.old); env.down() }, "", ""},
		"its pod is not being deleted": {func(env *environment) { env.down() },
			"claim shop/data: pod old has its lock, and is not being deleted: The node of the pod",
			"kubectl delete pod old -n shop; then, if it stays"},
		"its pod has completed": {func(env *environment) { complete(env.old) }, "is not being deleted: The processes",
			"kubectl delete pod old"},
		"its pod waits, too": {func(env *environment) { env.old = nil; env.add("old", "data") },
			"pod old has its lock, and waits to be scheduled: it has no processes",
			"kubectl reclaim explain pod/old -n shop; or delete it: kubectl delete pod old -n shop"},
		"its pod is gone": {func(env *environment) { env.old = nil }, "frees its lock by itself: The pod that had",
			"kubectl reclaim locks -n shop"},
		"a damaged lock": {func(env *environment) { lock(env.claim, "x") }, "frees its lock by itself",
			"kubectl reclaim locks"},
		"no lock": {func(env *environment) { env.claim = claim("data", "") }, "no pod has its lock, so there is nothing",
			"kubectl reclaim explain pvc/data -n shop"},
		"no claim": {func(env *environment) { env.claim = nil }, "no claim has this name",
			"kubectl reclaim locks -n shop"},
	} {
		env := newEnvironment()
		c.change(env)
		holder, err := Confirmable(env.read(), "shop", "data")
		if c.cause == "" {
			if err != nil || holder.Name != "old" {
				t.Errorf("%s: %s, %v", sentence, holder.Name, err)
			}
			continue
		}
		var refusal *explain.RefusalError
		if !errors.As(err, &refusal) || holder.Name != "" {
			t.Errorf("%s: %s, %v", sentence, holder.Name, err)
			continue
		}
		expect(t, refusal.Error(), c.cause)
		expect(t, refusal.NextStep(), c.next)
	}
}
