package singlenode

import (
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

// watched gives the lock to another pod, seen by the watch.
func watched(alter ...func(*User)) func(*Facts) {
	return func(f *Facts) {
		lock(other(), session.Read{})(f)
		f.Claims[0].Holder = user(alter...)
	}
}

func TestExplain(t *testing.T) {
	for name, c := range map[string]struct {
		facts  Facts
		action Action
		reason Reason
		text   string
	}{
		"no gate":         {facts(pod(gateless)), Wait, ReasonNotGated, "does not have the scheduling gate"},
		"nothing asks":    {facts(ofClaim(unasked)), RemoveGate, ReasonNotAsked, "about to be removed"},
		"the mode is off": {facts(mode(ModeOff)), RemoveGate, ReasonNotAsked, "volume-guard does not run"},
		"a claim is free": {facts(), RemoveGate, ReasonAcquired, "Its scheduling gate is about to be removed."},
		"it has the lock": {facts(lock(own(), session.Read{})), RemoveGate, ReasonAcquired, "about to be removed"},
		"free, and used":  {facts(withUser(user())), Wait, ReasonUsedWithoutLock, "Pod web-0, on node a, uses it."},
		"in use":          {facts(watched()), Wait, ReasonClaimInUse, "Pod web-0, on node a, has the lock."},
		"a fence is in force": {facts(withUser(user(ofUser(deleted), inForce))), RemoveGate,
			ReasonAcquired, "about to be removed"},
		"missing": {facts(func(f *Facts) { f.Claims = nil }), Wait, ReasonClaimMissing, "Claim data."},
	} {
		before := c.facts.Claims
		e := Explain(c.facts, now())
		if e.Decision.Action != c.action || e.Decision.Reason != c.reason {
			t.Errorf("%s: %+v", name, e)
		}
		if !strings.HasPrefix(e.Text, c.reason.Sentence()) || !strings.Contains(e.Text, c.text) {
			t.Errorf("%s: %q, want %q in it", name, e.Text, c.text)
		}
		if len(before) > 0 && before[0].Read.Order != 0 {
			t.Errorf("%s: the facts of the caller are changed", name)
		}
	}
}

func withUser(u User) func(*Facts) { return func(f *Facts) { f.Users = []User{u} } }

func TestExplainLock(t *testing.T) {
	for name, c := range map[string]struct {
		facts  LockFacts
		action Action
		reason Reason
		text   string
	}{
		"none":     {LockFacts{Claim: claim("data")}, Wait, ReasonFree, "No pod has the lock"},
		"held":     {lockFacts(), Wait, ReasonHolderRuns, "Pod web-0, on node a, has the lock. It has not ended"},
		"gone":     {lockFacts(noHolder), FreeLock, ReasonHolderGone, "Pod web-0. The lock is about to be freed."},
		"replaced": {lockFacts(holder(ofUser(newUID))), FreeLock, ReasonHolderGone, "Pod web-0."},
		"damaged":  {lockFacts(lockIs(Lock{UID: "x"})), FreeLock, ReasonLockDamaged, "about to be freed"},
		"completed": {lockFacts(holder(ofUser(succeeded), endedFor(grace))), FreeLock, ReasonHolderCompleted,
			"ended. Pod web-0, on node a. The lock is about to be freed."},
		"fenced": {lockFacts(holder(ofUser(deleted), inForce)), FreeLock, ReasonVolumeFenced,
			"about to be freed"},
	} {
		e := ExplainLock(c.facts, now())
		if e.Decision.Action != c.action || e.Decision.Reason != c.reason {
			t.Errorf("%s: %+v", name, e)
		}
		if !strings.HasPrefix(e.Text, c.reason.Sentence()) || !strings.Contains(e.Text, c.text) {
			t.Errorf("%s: %q, want %q in it", name, e.Text, c.text)
		}
	}
}

// The details name the claim, the pod that has it and its node, the missing evidence, and the remedy.
func TestDetailOfWaitingPod(t *testing.T) {
	away := nodeSeen(objects.NodeNotReady)
	for name, c := range map[string]struct {
		facts Facts
		want  []string
	}{
		"in use, and runs": {facts(watched()), []string{"Claim data.", "Pod web-0, on node a, has the lock.",
			"is not being deleted", "such as a backup"}},
		"by the earlier pod of a Deployment": {facts(watched(), pod(func(p *Pod) { p.OwnerKind = "ReplicaSet" })),
			[]string{"is not being deleted", "strategy Recreate", "maxSurge: 0"}},
		"its own other gates": {facts(pod(queued)), []string{"queue.example.com/x."}},
		"by one without a node": {facts(watched(ofUser(unbound))), []string{"Pod web-0, without a node,",
			"waits to be scheduled", "kubectl reclaim explain pod/web-0 -n ns"}},
		"by a terminating pod": {facts(watched(ofUser(deleted))), []string{"It is terminating:",
			"kubectl reclaim explain pod/web-0 -n ns"}},
		"by a released pod": {facts(watched(ofUser(shutDown), ofUser(func(p *Pod) {
			p.Finalizers = []string{"example.com/keep", "example.com/count"}
		}))), []string{"terminating and not held", "example.com/keep, example.com/count."}},
		"by a pod that is cut off": {facts(watched(away)), []string{"node is not Ready",
			"kubectl delete pod web-0 -n ns"}},
		"by a terminating pod that is cut off": {facts(watched(ofUser(deleted), away)), []string{
			"It is terminating, and its node is not Ready", "kubectl reclaim explain pod/web-0 -n ns"}},
		"by a released pod that is cut off": {facts(watched(ofUser(shutDown), away, ofUser(func(p *Pod) {
			p.Finalizers = []string{"example.com/keep"}
		}))), []string{"its node is not Ready", "shows why it has not ended. It is terminating and not held",
			"example.com/keep."}},
		"by a completed pod": {facts(watched(ofUser(succeeded))), []string{"It has ended", "--unmount-grace"}},
		"by a refused pod": {facts(watched(ofUser(failed), ofUser(unreported))), []string{"Its phase is final",
			"kubectl delete pod web-0 -n ns"}},
		"by a pod that is gone": {facts(watched(ofUser(newUID))), []string{"Claim data.", "does not exist"}},
		"by an unknown pod": {facts(lock(Lock{UID: "x"}, session.Read{})), []string{"Claim data.",
			"does not exist"}},
		"used without lock": {facts(locked, users(user())), []string{"Claim data.", "Pod web-0, on node a, uses it.",
			"is not being deleted"}},
		"missing":       {facts(func(f *Facts) { f.Claims = nil }), []string{"Claim data."}},
		"of another":    {facts(pod(ephemeral)), []string{"Claim data."}},
		"being deleted": {facts(ofClaim(terminating)), []string{"Claim data."}},
		"being deleted, with the lock": {facts(locked, ofClaim(terminating)), []string{"kept for this pod",
			"kubectl delete pod web-1 -n ns"}},
		"being deleted, with the lock of another": {facts(watched(), ofClaim(terminating)), []string{
			"Pod web-0 has its lock"}},
	} {
		d := Decide(c.facts, now())
		got := c.facts.Detail(d)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q in it", name, got, want)
			}
		}
		if strings.HasSuffix(got, " ") || strings.Contains(got, "  ") || !strings.HasSuffix(got, ".") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := facts(locked, users()).Detail(Decision{Action: RemoveGate, Reason: ReasonAcquired}); got != "" {
		t.Errorf("of a pod that can be scheduled: %q", got)
	}
	for _, d := range []Decision{{Reason: ReasonClaimInUse, Claim: "x"}, {Reason: ReasonUsedWithoutLock, Claim: "x"}} {
		if got := facts().Detail(d); got != "" {
			t.Errorf("of what is not known: %q", got)
		}
	}
}

func TestReasons(t *testing.T) {
	sessiontest.Reasons(t, Reasons(), 25)
	if ReasonClaimInUse.EventType() != "Normal" || ReasonHolderUnreachable.EventType() != "Warning" {
		t.Error("the types of Events")
	}
}

func TestActions(t *testing.T) { sessiontest.Actions(t, RemoveGate) }
