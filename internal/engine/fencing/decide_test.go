package fencing

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

type decision struct {
	facts  Facts
	action Action
	reason Reason
	after  time.Duration
}

func checkDecisions(t *testing.T, cases map[string]decision) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := decide(c.facts, now())
			if d.Action != c.action || d.Reason != c.reason || d.After != c.after {
				t.Errorf("%v because %s after %s, want %v because %s after %s", d.Action, d.Reason, d.After,
					c.action, c.reason, c.after)
			}
			if d.Action == WriteStatus && (d.Status.ObservedGeneration != 3 || d.Status.Phase != phaseOf(d.Status)) {
				t.Errorf("the status is of generation %d, phase %s", d.Status.ObservedGeneration, d.Status.Phase)
			}
			ofRun := slices.Contains([]Action{ReadRun, StartRun, StopRun}, d.Action)
			if ofRun != (d.Run != Run{}) {
				t.Errorf("it is about run %+v", d.Run)
			}
		})
	}
}

func TestDecideRequestedFence(t *testing.T) {
	failed := attempted(power, v1alpha1.ResultFailed)
	checkDecisions(t, map[string]decision{
		"nothing is known": {Facts{}, Wait, ReasonNoFence, 0},
		"it is terminating without finalizer": {
			facts(terminating, func(f *Facts) { f.Fence.Finalized = false }), Wait, ReasonNoFence, 0},
		"it has no finalizer": {
			facts(func(f *Facts) { f.Fence.Finalized = false }), AddFinalizer, ReasonRequested, 0},
		"it was not read":          {facts(unread), ReadFence, ReasonRequested, 0},
		"it was read too long ago": {facts(func(f *Facts) { f.FenceRead = old(1) }), ReadFence, ReasonRequested, 0},
		"the node was not read":    {facts(), ReadNode, ReasonRequested, 0},
		"the node was read too long ago": {
			facts(down(), func(f *Facts) { f.NodeRead = old(2) }), ReadNode, ReasonRequested, 0},
		"the pods were not listed": {facts(down()), ListRemaining, ReasonRequested, 0},
		"they were listed before the node was rebooted": {
			facts(down(), emptied, listedBefore), ListRemaining, ReasonRequested, 0},
		"their list took long": {facts(down(), emptied, func(f *Facts) { f.Remaining.Read = old(1) }), WriteStatus,
			ReasonFencing, 0},
		"all was read":                 {facts(down(), emptied), WriteStatus, ReasonFencing, 0},
		"a Ready node, by hand":        {facts(down(ready), emptied), WriteStatus, ReasonFencing, 0},
		"there is no such node":        {facts(nodeGone), Wait, ReasonNodeNotFound, nodePoll},
		"the node of a policy is gone": {facts(nodeGone, byPolicy), WriteStatus, ReasonNodeGone, 0},
		"the node of a policy came back": {
			facts(down(ready), byPolicy), WriteStatus, ReasonNodeReady, 0},
		"the node of a policy has no condition": {
			facts(down(noCondition), byPolicy), WriteStatus, ReasonNodeReady, 0},
		"the node of a policy is down": {facts(down(), byPolicy, emptied), WriteStatus, ReasonFencing, 0},
		"a control plane node":         {facts(down(controlPlane), emptied), Wait, ReasonControlPlane, 0},
		"a control plane node that is allowed": {
			facts(down(controlPlane), emptied, func(f *Facts) { f.Fence.Spec.AllowControlPlane = true }), WriteStatus,
			ReasonFencing, 0},
		"no agents": {facts(down(), emptied, agents()), Wait, ReasonRequested, 0},
		"the node has the taint of an earlier fence": {
			facts(down(tainted), emptied), RemoveTaint, ReasonContradicted, 0},
		"the node has the taint of an earlier fence of volumes": {
			facts(down(shunned), emptied), RemoveTaint, ReasonTaintRemains, 0},
		"the node has that taint with another effect": {
			facts(down(otherEffect), emptied), RemoveTaint, ReasonTaintRemains, 0},
		"the taint was removed": {
			facts(down(), emptied, condition(v1alpha1.ConditionReleased, true)), WriteStatus, ReasonContradicted, 0},

		"all agents have failed": {
			facts(down(), emptied, failed), Wait, ReasonAllAgentsFailed, 30 * time.Second},
		"all agents have failed, the node was not read": {facts(failed), ReadNode, ReasonAllAgentsFailed, 0},
		"all agents have failed long ago": {
			facts(down(), emptied, attempted(power, v1alpha1.ResultFailed, endedAgo(retryChainFirst))), WriteStatus,
			ReasonFencing, 0},
		"all agents have failed, by a clock that is ahead": {
			facts(down(), emptied, attempted(power, v1alpha1.ResultFailed, endedAgo(-clockSkew))), Wait,
			ReasonAllAgentsFailed, retryChainFirst},
		"all agents have failed, by a clock that was wrong": {
			facts(down(), emptied, attempted(power, v1alpha1.ResultFailed, endedAgo(-time.Hour))), WriteStatus,
			ReasonFencing, 0},
		"one of two agents has failed": {
			facts(agents(power, bmc), down(), emptied, failed), WriteStatus, ReasonFencing, 0},
		"all agents have failed, and a person confirms": {
			facts(down(), emptied, failed, confirm("burned")), WriteStatus, ReasonFencing, 0},
		"all agents have failed, and the confirmation is a copy": {
			facts(down(), emptied, failed, confirm("burned"), copied), Wait, ReasonAllAgentsFailed, 30 * time.Second},
		"the node has shown that the confirmation is wrong": {
			facts(down(), emptied, failed, confirm("burned"), attempted(confirmation, v1alpha1.ResultContradicted,
				func(a *v1alpha1.Attempt) { a.Message = "burned" })), Wait, ReasonAllAgentsFailed, 30 * time.Second},
		"confirmed in other words": {
			facts(down(), emptied, failed, confirm("switched off"), attempted(confirmation, v1alpha1.ResultContradicted,
				func(a *v1alpha1.Attempt) { a.Message = "burned" })), WriteStatus, ReasonFencing, 0},
	})
}

func TestDecideRunningAgent(t *testing.T) {
	open := attempted(power, "")
	over := attempted(power, "", startedAgo(5*time.Minute))
	long := attempted(power, "", startedAgo(5*time.Minute+stopGrace+time.Nanosecond))
	checkDecisions(t, map[string]decision{
		"the fence was not read": {facts(open, unread), ReadFence, ReasonFencing, 0},
		"it was not asked":       {facts(open), ReadRun, ReasonFencing, 0},
		"another run was read": {
			facts(open, ran(RunSucceeded, func(r *RunFacts) { r.Of.Attempt = 7 })), ReadRun, ReasonFencing, 0},
		"its undoing was read": {facts(open, ran(RunSucceeded, undo)), ReadRun, ReasonFencing, 0},
		"it was asked too long ago": {
			facts(open, ran(RunSucceeded, func(r *RunFacts) { r.Read = old(2) })), ReadRun, ReasonFencing, 0},
		"it was not started": {facts(open, ran(RunAbsent)), StartRun, ReasonFencing, 0},
		"it works":           {facts(open, ran(Running)), Wait, ReasonFencing, agentPoll},
		"it cannot be asked": {facts(open, ran(RunUnknown)), Wait, ReasonAgentUnusable, agentPoll},
		"stopped by request": {facts(open, ran(RunStopping)), Wait, ReasonAgentStopping, agentPoll},
		"it has failed":      {facts(open, ran(RunFailed)), WriteStatus, ReasonAgentFailed, 0},
		"it has succeeded":   {facts(open, ran(RunSucceeded)), ReadNode, ReasonFenced, 0},
		"it has succeeded, the node was read before": {
			facts(open, down(), ran(RunSucceeded)), ReadNode, ReasonFenced, 0},
		"it has succeeded, the Lease was read before": {
			facts(open, down(), ran(RunSucceeded), func(f *Facts) { f.NodeRead, f.LeaseRead = read(3), read(1) }), ReadLease,
			ReasonFenced, 0},
		"it has succeeded, and all was read": {
			facts(open, down(), ran(RunSucceeded), func(f *Facts) { f.NodeRead, f.LeaseRead = read(3), read(4) }),
			WriteStatus, ReasonFenced, 0},
		"it has succeeded, and another machine has the name": {
			facts(attempted(storage, ""), agents(storage), down(replaced), ran(RunSucceeded), func(f *Facts) {
				f.NodeRead, f.LeaseRead = read(3), read(4)
			}), WriteStatus, ReasonAgentFailed, 0},
		"it has succeeded, and the machine was not known": {
			facts(attempted(storage, "", func(a *v1alpha1.Attempt) { a.MachineID, a.SystemUUID = "", "" }), agents(storage),
				down(replaced), ran(RunSucceeded), func(f *Facts) { f.NodeRead, f.LeaseRead = read(3), read(4) }), WriteStatus,
			ReasonFenced, 0},
		"it has a second left": {
			facts(attempted(power, "", startedAgo(5*time.Minute-time.Second)), ran(Running)), Wait, ReasonFencing, time.Second},

		"it was started by a clock that is ahead": {
			facts(attempted(power, "", startedAgo(-clockSkew)), ran(Running)), Wait, ReasonFencing, agentPoll},
		"it was started by a clock that was wrong": {
			facts(attempted(power, "", startedAgo(-time.Hour)), ran(Running)), StopRun, ReasonAgentTimedOut, 0},

		"its time is over":                          {facts(over, ran(Running)), StopRun, ReasonAgentTimedOut, 0},
		"its time is over before it was started":    {facts(over, ran(RunAbsent)), WriteStatus, ReasonAgentTimedOut, 0},
		"its time is over, and it has succeeded":    {facts(over, ran(RunSucceeded)), ReadNode, ReasonFenced, 0},
		"its time is over, and it is being stopped": {facts(over, ran(RunStopping)), Wait, ReasonAgentStopping, agentPoll},
		"its time is over, and it cannot be asked":  {facts(over, ran(RunUnknown)), Wait, ReasonAgentUnusable, agentPoll},
		"it does not stop":                          {facts(long, ran(RunStopping)), WriteStatus, ReasonAgentTimedOut, 0},
		"it cannot be asked for long":               {facts(long, ran(RunUnknown)), WriteStatus, ReasonAgentTimedOut, 0},
		"it works for long":                         {facts(long, ran(Running)), StopRun, ReasonAgentTimedOut, 0},
		"it cannot be stopped for long": {
			facts(long, ran(Running), refused), WriteStatus, ReasonAgentTimedOut, 0},

		"its agent is not in the spec": {
			facts(open, agents(bmc)), WriteStatus, ReasonAgentFailed, 0},
	})
}

// refused makes the last stop of the run fail.
func refused(f *Facts) { f.Sight.Refused = f.Run.Of }

func TestDecideCanceledAgent(t *testing.T) {
	open := attempted(power, "")
	long := attempted(power, "", startedAgo(5*time.Minute+stopGrace+time.Nanosecond))
	for name, say := range map[string]func(*Facts){
		"confirmed": confirm("burned"), "ended": unfence(v1alpha1.UnfenceNow), "abandoned": unfence(v1alpha1.UnfenceAbandon),
		"deleted": terminating,
	} {
		t.Run(name, func(t *testing.T) {
			waits := map[RunState]decision{
				RunUnknown:  {facts(say, open, ran(RunUnknown)), Wait, ReasonAgentUnusable, agentPoll},
				RunStopping: {facts(say, open, ran(RunStopping)), Wait, ReasonAgentStopping, agentPoll},
			}
			if name == "confirmed" || name == "abandoned" { // without a wait for the agent
				for state, d := range waits {
					d.action, d.reason, d.after = WriteStatus, ReasonAgentCanceled, 0
					waits[state] = d
				}
			}
			checkDecisions(t, map[string]decision{
				"was not asked": {facts(say, open), ReadRun, ReasonFencing, 0},
				"not started":   {facts(say, open, ran(RunAbsent)), WriteStatus, ReasonAgentCanceled, 0},
				"works":         {facts(say, open, ran(Running)), StopRun, ReasonAgentCanceled, 0},
				"has failed":    {facts(say, open, ran(RunFailed)), WriteStatus, ReasonAgentFailed, 0},
				"has succeeded": {facts(say, open, ran(RunSucceeded)), WriteStatus, ReasonAgentCanceled, 0},
				"unknown":       waits[RunUnknown],
				"is stopping":   waits[RunStopping],
				"says both": {
					facts(say, unfence(v1alpha1.UnfenceNow), confirm("burned"), open, ran(RunStopping)), Wait, ReasonAgentStopping,
					agentPoll},
				"unknown, long": {facts(say, long, ran(RunUnknown)), WriteStatus, ReasonAgentCanceled, 0},
				"stops long":    {facts(say, long, ran(RunStopping)), WriteStatus, ReasonAgentCanceled, 0},
				"works long":    {facts(say, long, ran(Running)), StopRun, ReasonAgentCanceled, 0},
				"refused long":  {facts(say, long, ran(Running), refused), WriteStatus, ReasonAgentCanceled, 0},
			})
		})
	}
}

// The node can come back between two agents, and between the write of an attempt and its start by another process.
func TestPolicyStartsAgentsOnlyOnSilentNodes(t *testing.T) {
	open := all(byPolicy, attempted(power, ""), ran(RunAbsent))
	checkDecisions(t, map[string]decision{
		"the node was not read": {facts(open), ReadNode, ReasonFencing, 0},
		"the node was read before the fence": {
			facts(open, down(), func(f *Facts) { f.FenceRead = read(3) }), ReadNode, ReasonFencing, 0},
		"the node is down":          {facts(open, down()), StartRun, ReasonFencing, 0},
		"the node is Ready":         {facts(open, down(ready)), WriteStatus, ReasonAgentCanceled, 0},
		"the node is not ready yet": {facts(open, down(unready)), WriteStatus, ReasonAgentCanceled, 0},
		"by hand":                   {facts(attempted(power, ""), ran(RunAbsent), down(unready)), StartRun, ReasonFencing, 0},
		"requested":                 {facts(byPolicy, down(), emptied), WriteStatus, ReasonFencing, 0},
		"requested, not ready yet":  {facts(byPolicy, down(unready), emptied), WriteStatus, ReasonNodeReady, 0},
		"requested by hand":         {facts(down(unready), emptied), WriteStatus, ReasonFencing, 0},
		"of volumes": {facts(byPolicy, agents(storage, storage2), proved(storage), down(shunned)), WriteStatus,
			ReasonFencing, 0},
		"of volumes, not ready yet": {facts(byPolicy, agents(storage, storage2), proved(storage), down(shunned, unready)),
			Wait, ReasonFenced, nodePoll},
		"rebooted": {facts(byPolicy, agents(medik8s, power), proved(medik8s), provenAgo(returnPatience), down(),
			heldThere("later")), WriteStatus, ReasonFencing, 0},
		"rebooted, by a clock that is ahead": {facts(byPolicy, agents(medik8s, power), proved(medik8s),
			provenAgo(-2*time.Minute), down(), heldThere("later")), Wait, ReasonFenced, nodePoll},
		"rebooted, by a clock that was wrong": {facts(byPolicy, agents(medik8s, power), proved(medik8s),
			provenAgo(-time.Hour), down(), heldThere("later")), WriteStatus, ReasonFencing, 0},
		"rebooted, not ready yet": {facts(byPolicy, agents(medik8s, power), proved(medik8s), provenAgo(returnPatience),
			down(unready), heldThere("later")), Wait, ReasonFenced, nodePoll},
		"the node has no condition": {facts(open, down(noCondition)), WriteStatus, ReasonAgentCanceled, 0},
		"the node is gone":          {facts(open, nodeGone), WriteStatus, ReasonAgentCanceled, 0},
	})
}

func TestDecideConfirmation(t *testing.T) {
	for name, agent := range map[string]string{"of the chain": byHandAgent, "in its place": confirmation} {
		t.Run(name, func(t *testing.T) {
			open := all(agents(byHandAgent), attempted(agent, ""))
			after := func(f *Facts) { f.NodeRead, f.LeaseRead = read(2), read(3) }
			waits := decision{facts(open), Wait, ReasonWaitsForConfirmation, 4 * time.Minute}
			if agent == confirmation { // the person has taken the word back
				waits = decision{facts(open), WriteStatus, ReasonAgentTimedOut, 0}
			}
			checkDecisions(t, map[string]decision{
				"no word":   waits,
				"confirmed": {facts(open, confirm("burned")), ReadNode, ReasonFenced, 0},
				"confirmed for another fence": {
					facts(open, confirm("burned"), copied, down(), after), waits.action, waits.reason, waits.after},
				"the node was read before": {
					facts(open, confirm("burned"), down(), func(f *Facts) { f.FenceRead = read(5) }), ReadNode, ReasonFenced, 0},
				"the node was read": {
					facts(open, confirm("burned"), down(), func(f *Facts) { f.LeaseRead = session.Read{} }), ReadLease,
					ReasonFenced, 0},
				"all was read": {facts(open, confirm("burned"), down(), after), WriteStatus, ReasonFenced, 0},
				"ended":        {facts(open, confirm("burned"), unfence(v1alpha1.UnfenceNow)), WriteStatus, ReasonAgentCanceled, 0},
				"no answer": {
					facts(agents(byHandAgent), attempted(agent, "", startedAgo(time.Hour))), WriteStatus, ReasonAgentTimedOut, 0},
				"asked by a clock that was wrong": {
					facts(agents(byHandAgent), attempted(agent, "", startedAgo(-time.Hour))), WriteStatus, ReasonAgentTimedOut, 0},
			})
		})
	}
}

// TestDecideConfirmationAfterReboot: a proof of the reboot holds while a person is asked. The node may come back
// meanwhile, and the word does not concern its present boot.
func TestDecideConfirmationAfterReboot(t *testing.T) {
	open := all(agents(medik8s, byHandAgent), proved(medik8s), attempted(byHandAgent, ""))
	checkDecisions(t, map[string]decision{
		"the node was not read":   {facts(open), ReadNode, ReasonFencing, 0},
		"it is away":              {facts(open, down()), Wait, ReasonWaitsForConfirmation, 4 * time.Minute},
		"it is back":              {facts(open, down(rebooted, ready)), WriteStatus, ReasonAgentCanceled, 0},
		"it is back, and a word":  {facts(open, down(rebooted, ready), confirm("off")), WriteStatus, ReasonAgentCanceled, 0},
		"the Node object is gone": {facts(open, nodeGone), WriteStatus, ReasonAgentCanceled, 0},
		"a word, and it is away":  {facts(open, down(), confirm("off")), WriteStatus, ReasonFenced, 0},
	})
}

// Each operand of a condition counts by itself.

// operand is a condition that holds for the facts, but not without any of its operands.
type operand struct {
	holds   func(Facts) bool
	facts   Facts
	without map[string]func(*Facts)
}

func TestEachOperandIsNeeded(t *testing.T) {
	isSilent := func(f Facts) bool { return f.silent(now()) }
	runsOn := func(f Facts) bool { return f.runsOn(now()) }
	noProof := func(f *Facts) { f.Fence.Status.Proof = nil }
	noBoot := func(f *Facts) { f.Fence.Status.Proof.BootID = "" }
	gone := func(f *Facts) { f.Node.Found = false }
	notRenewed := func(f *Facts) { f.Lease.ResourceVersion = "7" }
	noLease := func(f *Facts) { f.Lease.ResourceVersion = "" }
	word := func(alter func(*v1alpha1.Attempt)) func(*Facts) {
		return attempted(confirmation, v1alpha1.ResultContradicted, func(a *v1alpha1.Attempt) {
			a.Message = "burned"
			alter(a)
		})
	}
	notConfirmed := func(f Facts) bool { return !f.Fence.Confirmed() }
	for name, c := range map[string]operand{
		"the Lease was renewed": {Facts.renewed, facts(proved(power), down(), renewedFor(0)), map[string]func(*Facts){
			"a change": notRenewed, "a Lease": noLease,
		}},
		"the Lease is silent": {isSilent, facts(down()), map[string]func(*Facts){
			"the seen Lease": func(f *Facts) { f.Lease.ResourceVersion = "8" },
			"since long":     func(f *Facts) { f.Sight.LeaseSince = f.Sight.LeaseSince.Add(1) },
		}},
		"the node runs on": {runsOn, facts(proved(power), down(), renewedFor(0)), map[string]func(*Facts){
			"a proof": noProof, "a node": gone, "a renewal": notRenewed, "it is new": silent,
			"the boot ID":    func(f *Facts) { f.Node.BootID = "boot2" },
			"it covers pods": func(f *Facts) { f.Fence.Status.Proof.Covers = v1alpha1.CoversVolumes },
		}},
		"the node is back": {Facts.Back, facts(proved(power), down(rebooted), renewedFor(0)), map[string]func(*Facts){
			"a proof": noProof, "a node": gone, "a renewal": notRenewed, "a Lease": noLease, "a former boot ID": noBoot,
			"another boot ID": func(f *Facts) { f.Node.BootID = "boot" },
			"a boot ID":       func(f *Facts) { f.Node.BootID = "" },
			"the machine":     func(f *Facts) { f.Node.Machine.SystemUUID = "uuid2" },
		}},
		"another machine has the name": {Facts.replaced, facts(proved(power), down(replaced)), map[string]func(*Facts){
			"a former boot ID": noBoot,
			"a proof":          noProof, "a node": gone, "another boot ID": func(f *Facts) { f.Node.BootID = "boot" },
			"a boot ID":       func(f *Facts) { f.Node.BootID = "" },
			"another machine": func(f *Facts) { f.Node.Machine = objects.Machine{MachineID: "id", SystemUUID: "uuid"} },
			"a known machine": func(f *Facts) {
				f.Fence.Status.Proof.MachineID, f.Fence.Status.Proof.SystemUUID = "", ""
			},
		}},
		"no confirmation": {notConfirmed, facts(confirm("burned"), word(func(*v1alpha1.Attempt) {})),
			map[string]func(*Facts){
				"these words":        confirm("switched off"),
				"contradiction":      func(f *Facts) { f.Fence.Status.Attempts[0].Result = v1alpha1.ResultCanceled },
				"a person said them": func(f *Facts) { f.Fence.Status.Attempts[0].Agent = power },
				"an agent":           func(f *Facts) { f.Fence.Status.Attempts[0].Agent = "none" },
			}},
		"a person confirms": {func(f Facts) bool { return f.Fence.Confirmed() }, facts(confirm("burned")),
			map[string]func(*Facts){
				"words": confirm(""), "of this fence": copied,
				"a UID": func(f *Facts) { f.Fence.UID, f.Fence.Spec.ConfirmationUID = "", "" },
			}},
		"ended by request": {func(f Facts) bool { return f.Fence.Ending() }, facts(terminating),
			map[string]func(*Facts){"a word": func(f *Facts) { f.Fence.Terminating = false }}},
	} {
		if !c.holds(c.facts) {
			t.Errorf("%s: does not hold", name)
		}
		for operand, without := range c.without {
			f := c.facts
			f.Fence.Status = *f.Fence.Status.DeepCopy()
			if without(&f); c.holds(f) {
				t.Errorf("%s: holds without %q", name, operand)
			}
		}
	}
}
