package fencing

import (
	"reflect"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Several agents of volumes, each of its own storage system, are tried until each has proven its fence.
func TestDecideFurtherVolumes(t *testing.T) {
	both := all(agents(power, storage, storage2), attempted(power, v1alpha1.ResultTimedOut), proved(storage))
	in := func(alter ...func(*Facts)) Facts { return facts(append([]func(*Facts){both}, alter...)...) }
	covered := func(f *Facts) { f.Fence.Status.Proof.Volumes = volumesOf(storage, storage2) }
	failed := attempted(storage2, v1alpha1.ResultTimedOut)
	checkDecisions(t, map[string]decision{
		"the node is down":      {in(down()), WriteStatus, ReasonFencing, 0},
		"the node was not read": {in(), ReadNode, ReasonFenced, 0},
		"the node runs":         {in(down(ready), renewedFor(0)), WriteStatus, ReasonFencing, 0},
		"all are covered":       {in(down(shunned), covered), Wait, ReasonFenced, nodePoll},
		"all are covered, and an agent of no volumes may be tried again": {
			in(down(shunned), covered, provenAgo(time.Hour)), Wait, ReasonFenced, nodePoll},
		"the node runs, and all are covered": {
			in(down(ready, shunned), renewedFor(0), covered), Wait, ReasonNeedsReboot, nodePoll},
		"the fence is deleted":                {in(down(shunned), terminating), Wait, ReasonNeedsReboot, nodePoll},
		"the node has booted":                 {in(down(rebooted)), Wait, ReasonFenced, nodePoll},
		"the node is back":                    {in(down(rebooted), renewedFor(0)), ListRemaining, ReasonRebooted, 0},
		"the node is gone":                    {in(nodeGone), ListRemaining, ReasonNodeDeleted, 0},
		"for a policy":                        {in(down(), byPolicy), WriteStatus, ReasonFencing, 0},
		"for a policy, and the node is Ready": {in(down(ready, shunned), byPolicy), Wait, ReasonFenced, nodePoll},
		"a person confirms":                   {in(down(), confirm("burned")), WriteStatus, ReasonFencing, 0},
		"it has failed":                       {in(down(shunned), failed), Wait, ReasonFenced, nodePoll},
		"it has failed long ago": {
			in(down(), attempted(storage2, v1alpha1.ResultTimedOut, endedAgo(retryChainFirst))), WriteStatus, ReasonFencing, 0},
		"it fails for a moment longer": {in(down(shunned), attempted(storage2, v1alpha1.ResultTimedOut,
			endedAgo(retryChainFirst-time.Second))), Wait, ReasonFenced, time.Second},
		"its attempts are gone": {
			in(down(), func(f *Facts) { f.Fence.Status.Attempts = nil }), WriteStatus, ReasonFencing, 0},
	})
}

// An agent of volumes that has proven nothing may come into force after the reboot, and hinder the unmount of ended
// pods until it is undone. The fence, whose proof is no evidence on a Ready node, does not wait for them.
func TestPodsWaitForEndOfUnprovenAgentOfVolumes(t *testing.T) {
	two := all(agents(medik8s, storage), attempted(storage, v1alpha1.ResultTimedOut), proved(medik8s))
	back := all(down(ready, rebooted), renewedFor(0))
	waits := func(f Facts) decision { return decision{f, Wait, ReasonRemainsOnNode, nodePoll} }
	checkDecisions(t, map[string]decision{
		"a pod is held": {facts(two, back, heldThere("later")), WriteStatus, ReasonUnfencing, 0},
		"a person has confirmed the fence": {facts(agents(storage), attempted(storage, v1alpha1.ResultTimedOut),
			proved(confirmation), back, heldThere("later")), WriteStatus, ReasonUnfencing, 0},
		"volumes were not listed": {facts(two, back, heldThere("later"), podsOnly), ListRemaining, ReasonRebooted, 0},
		"a volume is attached": waits(facts(two, back, remaining(Remains{VolumeAttachments: 1},
			Remains{VolumeAttachments: 1}))),
		"the node is not Ready": waits(facts(two, down(rebooted), renewedFor(0), heldThere("later"))),
		"no agent of volumes was tried": {facts(agents(medik8s, storage), proved(medik8s), back, heldThere("later")),
			WriteStatus, ReasonUnfencing, 0},
		"another agent has proven volumes": waits(facts(agents(storage, storage2), proved(storage),
			attempted(storage2, v1alpha1.ResultTimedOut), back, heldThere("later"))),
		"pods alone were listed, and keep the fence": waits(facts(agents(storage), proved(storage), back,
			heldThere("later"), podsOnly)),
	})
	if d := Decide(facts(two, back, heldThere("later"), podsOnly), now()); d.PodsOnly {
		t.Error("pods alone are listed again")
	}
}

func TestDecideAgentOfFurtherVolumes(t *testing.T) {
	open := all(agents(storage, storage2), proved(storage), attempted(storage2, ""))
	over := all(agents(storage, storage2), proved(storage), attempted(storage2, "", startedAgo(5*time.Minute)))
	seen := func(f *Facts) { f.NodeRead, f.LeaseRead = read(3), read(4) }
	known := all(agents(storage, storage2), proved(storage), attempted(storage2, "", objectSeen))
	checkDecisions(t, map[string]decision{
		"the node was not read":                 {facts(open), ReadNode, ReasonFencing, 0},
		"it was not asked":                      {facts(open, down()), ReadRun, ReasonFencing, 0},
		"it was not started":                    {facts(open, down(), ran(RunAbsent)), StartRun, ReasonFencing, 0},
		"it was not started, and the node runs": {facts(open, down(ready), ran(RunAbsent)), StartRun, ReasonFencing, 0},
		"it was not started, and the node runs, for a policy": {facts(open, byPolicy, down(ready), ran(RunAbsent)),
			WriteStatus, ReasonAgentCanceled, 0},
		"it is seen at work": {facts(open, down(), ran(Running)), WriteStatus, ReasonFencing, agentPoll},
		"it works":           {facts(known, down(shunned), ran(Running)), Wait, ReasonFencing, agentPoll},
		"it has succeeded":   {facts(open, down(), ran(RunSucceeded), seen), WriteStatus, ReasonFenced, 0},
		"its time is over":   {facts(over, down(), ran(Running)), WriteStatus, ReasonAgentTimedOut, 0},
		"a person confirms":  {facts(known, down(shunned), ran(Running), confirm("x")), Wait, ReasonFencing, agentPoll},
		"the fence is ended": {facts(open, down(), ran(Running), unfence(v1alpha1.UnfenceNow)), WriteStatus,
			ReasonAgentCanceled, 0},
		"the fence is deleted": {facts(open, down(), ran(Running), terminating), WriteStatus,
			ReasonAgentCanceled, 0},
		"the node has booted": {facts(open, down(rebooted), ran(Running)), WriteStatus, ReasonAgentCanceled, 0},
		"the node has booted, succeeded": {facts(open, down(rebooted), ran(RunSucceeded), seen), WriteStatus,
			ReasonAgentCanceled, 0},
		"the node is gone": {facts(open, nodeGone, ran(Running)), WriteStatus, ReasonAgentCanceled, 0},
	})
}

// A node that may run, and does not reach its volumes, gets no new pods until it has booted.
func TestDecideTaintOfFencedVolumes(t *testing.T) {
	in := all(agents(storage), proved(storage))
	checkDecisions(t, map[string]decision{
		"the node is down": {facts(in, down()), AddTaint, ReasonFenced, 0},
		"the node runs": {
			facts(in, down(ready), renewedFor(0)), AddTaint, ReasonNeedsReboot, 0},
		"the fence is deleted": {facts(in, down(), terminating), AddTaint, ReasonNeedsReboot, 0},
		"its boot ID is not known": {
			facts(in, down(func(n *objects.Node) { n.BootID = "" })), AddTaint, ReasonFenced, 0},
		"it is tainted":                     {facts(in, down(shunned)), Wait, ReasonFenced, nodePoll},
		"it has the taint of others":        {facts(in, down(tainted)), AddTaint, ReasonFenced, 0},
		"it has both taints":                {facts(in, down(tainted, shunned)), AddTaint, ReasonFenced, 0},
		"a person has added another effect": {facts(in, down(shunned, otherEffect)), Wait, ReasonFenced, nodePoll},
		"it has only another effect":        {facts(in, down(otherEffect)), AddTaint, ReasonFenced, 0},
		"it has booted, with another effect": {
			facts(in, down(rebooted, otherEffect)), RemoveTaint, ReasonRebooted, 0},
		"it has booted":                 {facts(in, down(rebooted)), Wait, ReasonFenced, nodePoll},
		"it has booted, and is tainted": {facts(in, down(rebooted, shunned)), RemoveTaint, ReasonRebooted, 0},
		"it is another one":             {facts(in, down(replaced)), Wait, ReasonMachineReplaced, nodePoll},
		"it is another one, and tainted": {
			facts(in, down(replaced, shunned)), RemoveTaint, ReasonMachineReplaced, 0},
		"a person ends the fence": {
			facts(in, down(), unfence(v1alpha1.UnfenceNow)), WriteStatus, ReasonUnfencing, 0},
		"it was rebooted, and all is left": {
			facts(in, down(rebooted), renewedFor(0)), ListRemaining, ReasonRebooted, 0},
		"it never came back, and the fence is vacant": {facts(in, vacant, nodeGone), Wait, ReasonNodeDeleted, vacantPoll},
	})
	for name, c := range map[string]struct {
		facts Facts
		want  Taint
	}{"volumes": {facts(in, down()), VolumesFenced}, "power": {facts(proved(power), down()), OutOfService},
		"the end": {facts(in, down(rebooted, shunned)), NoTaint}} {
		if d := Decide(c.facts, now()); d.Taint != c.want {
			t.Errorf("%s: taint %d", name, d.Taint)
		}
	}
}

// An agent at work may take long, and may be about other volumes.
func TestDecideTaintBesideAgentAtWork(t *testing.T) {
	open := all(agents(storage, storage2), proved(storage), attempted(storage2, "", objectSeen))
	unknown := ran(RunUnknown)
	manual := all(agents(byHandAgent, storage), proved(storage), attempted(byHandAgent, ""), down())
	checkDecisions(t, map[string]decision{
		"it works":                      {facts(open, down(), ran(Running)), AddTaint, ReasonFencing, 0},
		"it is not known":               {facts(open, down(), unknown), AddTaint, ReasonAgentUnusable, 0},
		"it is tainted":                 {facts(open, down(shunned), unknown), Wait, ReasonAgentUnusable, agentPoll},
		"it has booted":                 {facts(open, down(rebooted), unknown), Wait, ReasonAgentUnusable, agentPoll},
		"it has booted, and is tainted": {facts(open, down(rebooted, shunned), unknown), RemoveTaint, ReasonRebooted, 0},
		"it is another one, and tainted": {
			facts(open, down(replaced, shunned), unknown), RemoveTaint, ReasonMachineReplaced, 0},
		"the node is gone": {facts(open, nodeGone, unknown), Wait, ReasonAgentUnusable, agentPoll},
		"a person ends the fence": {
			facts(open, down(), unknown, unfence(v1alpha1.UnfenceNow)), Wait, ReasonAgentUnusable, agentPoll},
		"a person is asked": {facts(manual), AddTaint, ReasonWaitsForConfirmation, 0},
		"the node was read before": {
			facts(manual, func(f *Facts) { f.FenceRead = read(3) }), ReadNode, ReasonFencing, 0},
		"its processes have ended before": {
			facts(agents(medik8s, power), proved(medik8s), attempted(power, ""), down(), ran(Running)),
			Wait, ReasonFencing, agentPoll},
	})
}

// Another NetworkFence of the same storage system would end as well, and its proof would be void.
func TestVolumeAgentIsUndoneInsteadOfStopped(t *testing.T) {
	long := attempted(storage, "", startedAgo(time.Hour))
	checkDecisions(t, map[string]decision{
		"its time is over":   {facts(agents(storage), long, ran(Running)), WriteStatus, ReasonAgentTimedOut, 0},
		"the fence is ended": {facts(agents(storage), long, terminating, ran(Running)), WriteStatus, ReasonAgentCanceled, 0},
	})
	if f := facts(agents(storage), attempted(storage, v1alpha1.ResultTimedOut)); f.Fence.toUndo() == nil {
		t.Error("nothing is undone at the end")
	}
}

func objectSeen(a *v1alpha1.Attempt) { a.ObjectSeen = true }

// A NetworkFence may fence the node after its attempt has ended. If another program deletes it, nothing else shows
// that.
func TestSeenNetworkFenceIsRecorded(t *testing.T) {
	long, of := startedAgo(time.Hour), agents(storage)
	for name, c := range map[string]struct {
		facts Facts
		want  bool
	}{
		"it works":                     {facts(of, attempted(storage, ""), ran(Running)), true},
		"its time is over":             {facts(of, attempted(storage, "", long), ran(Running)), true},
		"it is terminating":            {facts(of, attempted(storage, "", long), ran(RunStopping)), true},
		"it has fenced an ended fence": {facts(of, attempted(storage, ""), terminating, ran(RunSucceeded)), true},
		"it was not started":           {facts(of, attempted(storage, "", long), ran(RunAbsent)), false},
		"it cannot be read":            {facts(of, attempted(storage, "", long), ran(RunUnknown)), false},
		"it was seen before":           {facts(of, attempted(storage, "", long, objectSeen), ran(RunAbsent)), true},
		"it was seen in the attempt before": {facts(of, attempted(storage, v1alpha1.ResultTimedOut, objectSeen,
			endedAgo(time.Hour)), down(), emptied), true},
		"it was not seen in the attempt before": {facts(of, attempted(storage, v1alpha1.ResultTimedOut,
			endedAgo(time.Hour)), down(), emptied), false},
		"another agent's was seen in the attempt before": {facts(agents(storage, storage2), attempted(storage,
			v1alpha1.ResultTimedOut, objectSeen), down(), emptied), false},
		"its object does not outlive it": {facts(agents(bmc), attempted(bmc, "", long), ran(RunFailed)), false},
	} {
		if got := last(written(t, c.facts)).ObjectSeen; got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A proof in force remains so while further agents work, fail, and prove.
func TestProofGrowsByFurtherVolumes(t *testing.T) {
	in := all(agents(storage, storage2), proved(storage))
	proof := *facts(in).Fence.Status.Proof
	judge := func(s *v1alpha1.NodeFenceStatus, volumes []v1alpha1.CoveredVolumes) {
		t.Helper()
		want := proof
		want.Volumes = volumes
		if !reflect.DeepEqual(*s.Proof, want) || !is(s, v1alpha1.ConditionFenced) || s.Phase != v1alpha1.PhaseFenced {
			t.Errorf("%+v, %+v", s.Proof, s)
		}
	}
	s := written(t, facts(in, down()))
	judge(s, volumesOf(storage))
	if a := last(s); a.Agent != storage2 || a.Number != 2 || a.EndedAt != nil {
		t.Errorf("%+v", a)
	}
	open := all(in, attempted(storage2, ""))
	judge(written(t, facts(open, down(), ran(RunFailed))), volumesOf(storage))
	s = written(t, facts(open, down(), ran(RunSucceeded), func(f *Facts) { f.NodeRead, f.LeaseRead = read(3), read(4) }))
	judge(s, volumesOf(storage, storage2))
	if a := last(s); a.Result != v1alpha1.ResultProven {
		t.Errorf("%+v", a)
	}
}

// Attributes in the spec take precedence over attributes that the agent has found, and a fence of all volumes has none.
func TestCoveredVolumes(t *testing.T) {
	f := facts(agents(storage, storage2), attempted(storage, ""), ran(RunSucceeded))
	for name, id := range map[string]v1alpha1.AttributeValue{storage: "one", storage2: "two"} {
		want := cluster(id)
		if got := f.covered(f.Fence.agent(name)); !reflect.DeepEqual(got.VolumeAttributes, want) || got.Agent != name ||
			got.Driver != "driver" || got.Volumes != v1alpha1.VolumesMatching {
			t.Errorf("%s: %+v", name, got)
		}
	}
	agent := f.Fence.agent(storage)
	agent.NetworkFence.Volumes = v1alpha1.VolumesAll
	if got := f.covered(agent); got.Volumes != v1alpha1.VolumesAll || got.VolumeAttributes != nil {
		t.Errorf("%+v", got)
	}
}
