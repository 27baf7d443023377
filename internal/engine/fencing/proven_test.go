package fencing

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

func TestDecideFenceInForce(t *testing.T) {
	in := proved(power)
	inForce := func(alter ...func(*Facts)) Facts { return facts(append([]func(*Facts){in}, alter...)...) }
	before := func(f *Facts) { f.FenceRead = read(5) }
	checkDecisions(t, map[string]decision{
		"it was not read":          {inForce(unread), ReadFence, ReasonFenced, 0},
		"the node was not read":    {inForce(), ReadNode, ReasonFenced, 0},
		"the node was read before": {inForce(down(), before), ReadNode, ReasonFenced, 0},
		"the Lease was read before": {
			inForce(down(), func(f *Facts) { f.NodeRead, f.LeaseRead = read(3), read(2) }), ReadLease, ReasonFenced, 0},
		"the node is down":              {inForce(down()), AddTaint, ReasonReleased, 0},
		"the node is Ready":             {inForce(down(ready)), Wait, ReasonNodeStillReady, nodePoll},
		"the node has no condition":     {inForce(down(noCondition)), Wait, ReasonNodeStillReady, nodePoll},
		"the node is tainted":           {inForce(down(tainted)), WriteStatus, ReasonReleased, 0},
		"the node is tainted and Ready": {inForce(down(tainted, ready)), WriteStatus, ReasonReleased, 0},
		"there is nothing to undo":      {facts(agents(bmc), proved(bmc), down()), AddTaint, ReasonReleased, 0},
		"it is released":                {inForce(down(tainted), released), Wait, ReasonReleased, nodePoll},
		"the taint was removed": {
			inForce(down(), released), AddTaint, ReasonReleased, 0},
		"the taint was removed, and the node is Ready": {
			inForce(down(ready), released), Wait, ReasonNodeStillReady, nodePoll},

		"the node runs": {inForce(down(), renewedFor(0)), Wait, ReasonNodeRuns, nodePoll},
		"it was not seen running before": {
			inForce(down(), renewedFor(0), func(f *Facts) { f.Sight.RunsSince = time.Time{} }), Wait, ReasonNodeRuns, nodePoll},
		"it runs for long": {inForce(down(), renewedFor(SilentAfter)), WriteStatus, ReasonContradicted, 0},
		"it runs not long": {
			inForce(down(), renewedFor(SilentAfter-time.Nanosecond)), Wait, ReasonNodeRuns, nodePoll},
		"it ran and is silent since": {
			inForce(down(), renewedFor(SilentAfter), silent), AddTaint, ReasonReleased, 0},
		"it has no Lease": {
			inForce(down(), func(f *Facts) { f.Lease.ResourceVersion = "" }), AddTaint, ReasonReleased, 0},

		"it was rebooted, and is tainted": {
			inForce(down(rebooted, tainted), released, renewedFor(0)), RemoveTaint, ReasonRebooted, 0},
		"it is tainted, and has another boot ID": {
			inForce(down(rebooted, tainted), released), RemoveTaint, ReasonRebooted, 0},
		"it was rebooted": {inForce(down(rebooted), released, renewedFor(0)), ListRemaining, ReasonRebooted, 0},
		"it was rebooted, listed before": {
			inForce(down(rebooted), released, renewedFor(0), emptied, listedBefore), ListRemaining, ReasonRebooted, 0},
		"it was rebooted, and the list took long": {
			inForce(down(rebooted), released, renewedFor(0), emptied,
				func(f *Facts) { f.Remaining.Read = old(1) }), WriteStatus, ReasonUnfencing, 0},
		"it was rebooted, and VolumeAttachments are not known": {
			inForce(down(rebooted), released, renewedFor(0), emptied, unlisted), Wait, ReasonAwaitsVolumeList, nodePoll},
		"it was rebooted, and a pod is held": {
			inForce(down(rebooted), renewedFor(0), remaining(Remains{Pods: 1}, Remains{})), Wait, ReasonRemainsOnNode, nodePoll},
		"it was rebooted, and a volume is attached": {
			inForce(down(rebooted), renewedFor(0), remaining(Remains{VolumeAttachments: 1}, Remains{})), Wait,
			ReasonRemainsOnNode, nodePoll},
		"it was rebooted, and runs pods anew": {
			inForce(down(rebooted), renewedFor(0), remaining(Remains{}, Remains{2, 2})), WriteStatus, ReasonUnfencing, 0},
		"its boot ID is not known": {
			inForce(down(func(n *objects.Node) { n.BootID = "" }), renewedFor(0)), Wait, ReasonFenced, nodePoll},
		"it never had a boot ID": {
			inForce(func(f *Facts) { f.Fence.Status.Proof.BootID = "" }, down(func(n *objects.Node) { n.BootID = "" })),
			AddTaint,
			ReasonReleased, 0},
		"it had no boot ID at the proof": {inForce(func(f *Facts) { f.Fence.Status.Proof.BootID = "" }, down(),
			renewedFor(0)), Wait, ReasonFenced, nodePoll},
		"it has another boot ID, and has not renewed its Lease": {
			inForce(down(rebooted)), Wait, ReasonFenced, nodePoll},

		"its Node is gone, with something to undo": {inForce(nodeGone), ListRemaining, ReasonNodeDeleted, 0},
		"its Node is gone, pods alone were listed": {
			inForce(nodeGone, emptied, podsOnly), ListRemaining, ReasonNodeDeleted, 0},
		"it was rebooted, pods alone were listed": {
			inForce(down(rebooted), renewedFor(0), emptied, podsOnly), ListRemaining, ReasonRebooted, 0},
		"its Node is gone, listed before": {
			inForce(nodeGone, emptied, listedBefore), ListRemaining, ReasonNodeDeleted, 0},
		"its Node is gone, and VolumeAttachments are not known": {
			inForce(nodeGone, emptied, unlisted), Wait, ReasonNodeDeleted, nodePoll},
		"its Node is gone, and a pod remains": {
			inForce(nodeGone, remaining(Remains{}, Remains{Pods: 1})), Wait, ReasonNodeDeleted, nodePoll},
		"its Node is gone, and a volume is attached": {
			inForce(nodeGone, remaining(Remains{}, Remains{VolumeAttachments: 1})), Wait, ReasonNodeDeleted, nodePoll},
		"its Node is gone, and nothing remains": {inForce(nodeGone, emptied), WriteStatus, ReasonNodeDeleted, 0},
		"it is vacant":                          {inForce(vacant, nodeGone), Wait, ReasonNodeDeleted, vacantPoll},
		"it was vacant, and its Node is there":  {inForce(vacant, down()), WriteStatus, ReasonFenced, 0},
	})
}

// Another machine with the name of the node proves nothing about the fenced machine, which may run on.
func TestReplacedMachineIsNoReboot(t *testing.T) {
	machine := func(id, uuid string) func(*objects.Node) {
		return func(n *objects.Node) { n.Machine = objects.Machine{MachineID: id, SystemUUID: uuid} }
	}
	unknown := func(f *Facts) { f.Fence.Status.Proof.MachineID, f.Fence.Status.Proof.SystemUUID = "", "" }
	whenReleased := all(proved(power), unfence(v1alpha1.UnfenceWhenReleased), released, ending, allUndone)
	for name, in := range map[string]func(*Facts){
		"off": proved(power), "rebooted": all(agents(medik8s), proved(medik8s)), "volumes": all(agents(storage),
			proved(storage)), "volumes, deleted": all(agents(storage), proved(storage), terminating),
	} {
		waits := decision{action: Wait, reason: ReasonMachineReplaced, after: nodePoll}
		cases := map[string]decision{}
		for which, alter := range map[string]func(*objects.Node){"another one": machine("id2", "uuid2"),
			"another machine ID": machine("id2", "uuid"), "another system UUID": machine("id", "uuid2"),
			"neither is known": machine("", ""), "one is not known": machine("id", "")} {
			waits.facts = facts(in, down(ready, rebooted, alter), renewedFor(0), emptied)
			cases[which] = waits
		}
		cases["neither was known"] = decision{
			facts(in, unknown, down(ready, rebooted, machine("id2", "uuid2")), renewedFor(0), emptied), WriteStatus,
			ReasonUnfencing, 0}
		cases["it is tainted"] = decision{
			facts(in, down(replaced, tainted), renewedFor(0)), RemoveTaint, ReasonMachineReplaced, 0}
		cases["a person ends it"] = decision{
			facts(in, unfence(v1alpha1.UnfenceNow), down(ready, replaced), renewedFor(0)), WriteStatus, ReasonUnfencing, 0}
		t.Run(name, func(t *testing.T) { checkDecisions(t, cases) })
	}
	checkDecisions(t, map[string]decision{
		"undone when released": {
			facts(whenReleased, down(ready, replaced), renewedFor(0)), Wait, ReasonMachineReplaced, nodePoll},
		"undone when released, and a copy has the taint of volumes": {
			facts(whenReleased, down(shunned, replaced), renewedFor(0), func(f *Facts) { f.TaintSeen = false }), RemoveTaint,
			ReasonRebooted, 0},
		"undone when released, and tainted": {
			facts(whenReleased, down(tainted, replaced), renewedFor(0)), RemoveTaint, ReasonRebooted, 0},
	})
}

func podsOnly(f *Facts) { f.Remaining.PodsOnly, f.Remaining.AttachmentsListed = true, false }
func unlisted(f *Facts) { f.Remaining.AttachmentsListed = false }

// vacant is a fence whose Node was deleted, and whose node was found empty.
func vacant(f *Facts) {
	set(&f.Fence.Status, now(), v1alpha1.ConditionFenced, true, ReasonNodeDeleted)
}

// WhenReleased has the agents undo the fence before the node is back.
func TestDecideUnfenceWhenReleased(t *testing.T) {
	in := all(proved(power), unfence(v1alpha1.UnfenceWhenReleased))
	over := all(in, released, down(tainted))
	checkDecisions(t, map[string]decision{
		"it is not tainted":  {facts(in, down(), emptied), AddTaint, ReasonReleased, 0},
		"it is not released": {facts(in, down(tainted), emptied), WriteStatus, ReasonReleased, 0},
		"not listed":         {facts(over), ListRemaining, ReasonReleased, 0},
		"a pod is not deleted yet": {
			facts(over, remaining(Remains{}, Remains{Pods: 1})), Wait, ReasonRemainsOnNode, nodePoll},
		"a pod is not deleted yet, on a node that is Ready": {
			facts(agents(power, storage), attempted(storage, v1alpha1.ResultTimedOut), over, down(tainted, ready),
				remaining(Remains{}, Remains{Pods: 1})), Wait, ReasonRemainsOnNode, nodePoll},
		"a volume is not detached yet": {
			facts(over, remaining(Remains{}, Remains{VolumeAttachments: 1})), Wait, ReasonRemainsOnNode, nodePoll},
		"nothing remains":   {facts(over, emptied), WriteStatus, ReasonUnfencing, 0},
		"its end has begun": {facts(over, ending), WriteStatus, ReasonUnfencing, agentPoll},
		"it is undone":      {facts(over, ending, allUndone), Wait, ReasonAwaitsReturn, nodePoll},
		"it is back": {
			facts(over, ending, allUndone, down(tainted, rebooted), renewedFor(0)), RemoveTaint, ReasonRebooted, 0},
		"it has another boot ID": {facts(over, ending, allUndone, down(tainted, rebooted)), RemoveTaint, ReasonRebooted, 0},
		"it has another boot ID, and no taint was seen": {
			facts(in, ending, allUndone, down(tainted, rebooted)), RemoveTaint, ReasonRebooted, 0},
		"it was never down": {facts(over, ending, allUndone, renewedFor(0)), Wait, ReasonNodeRuns, nodePoll},
		"ended by request":  {facts(over, ending, allUndone, terminating), RemoveTaint, ReasonEnded, 0},
		"its Node is gone":  {facts(over, ending, allUndone, nodeGone), WriteStatus, ReasonNodeGone, 0},
	})
}

func allUndone(f *Facts) {
	for i := range f.Fence.Status.Attempts {
		undone(&f.Fence.Status.Attempts[i])
	}
}

func TestDecideFenceOfRebootOrVolumes(t *testing.T) {
	reboot, volumes := all(agents(medik8s), proved(medik8s)), all(agents(storage), proved(storage))
	checkDecisions(t, map[string]decision{
		"reboot: the node is down":    {facts(reboot, down()), Wait, ReasonFenced, nodePoll},
		"reboot: the node is Ready":   {facts(reboot, down(ready)), Wait, ReasonFenced, nodePoll},
		"reboot: it was not rebooted": {facts(reboot, down(), renewedFor(SilentAfter)), WriteStatus, ReasonContradicted, 0},
		"reboot: the node is back": {
			facts(reboot, down(rebooted, ready), renewedFor(0), emptied), WriteStatus, ReasonUnfencing, 0},
		"volumes: the node is down": {facts(volumes, down(shunned)), Wait, ReasonFenced, nodePoll},
		"volumes: the node runs": {
			facts(volumes, down(ready, shunned), renewedFor(time.Hour)), Wait, ReasonNeedsReboot, nodePoll},
		"volumes: the node was just lost": {
			facts(volumes, down(shunned), func(f *Facts) { f.Sight.LeaseSince = now() }), Wait, ReasonFenced, nodePoll},
		"volumes: the node ran": {facts(volumes, down(shunned), renewedFor(time.Hour), silent), Wait, ReasonFenced, nodePoll},
		"volumes: the node was rebooted": {
			facts(volumes, down(rebooted, ready), renewedFor(0), emptied), WriteStatus, ReasonUnfencing, 0},
		"volumes: released is not meant": {
			facts(volumes, down(shunned), emptied, unfence(v1alpha1.UnfenceWhenReleased)), Wait, ReasonFenced, nodePoll},
	})
}

// Health checks delete the NodeFence once the node is healthy. Writes still buffered on the node would then reach the
// volumes, so the fence ends by a reboot, or by a person's decision.
func TestDeletedVolumeFenceWaitsForReboot(t *testing.T) {
	in := all(agents(storage), proved(storage), terminating)
	back := all(down(rebooted, ready), renewedFor(0))
	checkDecisions(t, map[string]decision{
		"it was not read":       {facts(in, unread), ReadFence, ReasonFenced, 0},
		"the node was not read": {facts(in), ReadNode, ReasonFenced, 0},
		"the node runs": {
			facts(in, down(ready, shunned), renewedFor(time.Hour)), Wait, ReasonNeedsReboot, nodePoll},
		"the node is down":                {facts(in, down(shunned)), Wait, ReasonNeedsReboot, nodePoll},
		"the Lease was not renewed since": {facts(in, down(rebooted)), Wait, ReasonNeedsReboot, nodePoll},
		"the node was rebooted":           {facts(in, back), ListRemaining, ReasonRebooted, 0},
		"a pod of before is left": {
			facts(in, back, remaining(Remains{Pods: 1}, Remains{Pods: 1})), Wait, ReasonRemainsOnNode, nodePoll},
		"nothing of before is left": {facts(in, back, emptied), WriteStatus, ReasonUnfencing, 0},
		"its end has begun":         {facts(in, ending), WriteStatus, ReasonUnfencing, agentPoll},
		"it is undone, and the node is gone again": {
			facts(in, ending, allUndone, down()), Wait, ReasonAwaitsReturn, nodePoll},
		"it is undone": {facts(in, ending, allUndone, back), WriteStatus, ReasonRebooted, 0},
		"a person ends it": {
			facts(in, unfence(v1alpha1.UnfenceNow), down(ready), renewedFor(0)), WriteStatus, ReasonUnfencing, 0},
		"a person abandons it": {
			facts(in, unfence(v1alpha1.UnfenceAbandon), down(ready), renewedFor(0)), WriteStatus, ReasonUnfencing, 0},
		"it is not proven yet": {
			facts(agents(storage), attempted(storage, ""), terminating, ran(RunSucceeded)), WriteStatus, ReasonAgentCanceled,
			0},
	})
}

func TestDecideFenceOfDeletedNode(t *testing.T) {
	in := all(agents(bmc), proved(bmc), nodeGone)
	checkDecisions(t, map[string]decision{
		"not listed": {facts(in), ListRemaining, ReasonNodeGone, 0},
		"a pod remains": {
			facts(in, remaining(Remains{}, Remains{Pods: 1})), Wait, ReasonRemainsOnNode, nodePoll},
		"nothing remains":   {facts(in, emptied), WriteStatus, ReasonUnfencing, 0},
		"its end has begun": {facts(in, ending), WriteStatus, ReasonNodeGone, 0},
	})
}

// An agent at work beside a proof that is no evidence any more proves nothing.
func TestAgentBesideFenceThatLostItsFinalizer(t *testing.T) {
	open := all(agents(storage, storage2), proved(storage), attempted(storage2, ""), forsook, down(ready))
	checkDecisions(t, map[string]decision{
		"it was not started": {facts(open, ran(RunAbsent)), WriteStatus, ReasonAgentCanceled, 0},
		"it has succeeded":   {facts(open, ran(RunSucceeded)), WriteStatus, ReasonAgentCanceled, 0},
		"it is stopping":     {facts(open, ran(RunStopping)), Wait, ReasonAgentStopping, agentPoll},
	})
}

// While nothing keeps a fence, a person may undo the work of its agents. A later process neither believes the proof nor
// ends the fence of a node that may run.
func TestFenceThatLostItsFinalizer(t *testing.T) {
	for name, in := range map[string]func(*Facts){"off": proved(power),
		"rebooted": all(agents(medik8s, power), proved(medik8s), provenAgo(time.Hour)),
		"volumes":  all(agents(storage, storage2), proved(storage))} {
		waits := func(f Facts) decision { return decision{f, Wait, ReasonNeedsReboot, nodePoll} }
		t.Run(name, func(t *testing.T) {
			checkDecisions(t, map[string]decision{
				"it was not read":   {facts(in, unfinalized, unread), ReadFence, ReasonNeedsReboot, 0},
				"it was read":       {facts(in, unfinalized, released), WriteStatus, ReasonNeedsReboot, 0},
				"it is withdrawn":   {facts(in, forsook, unfinalized), AddFinalizer, ReasonRequested, 0},
				"the node is down":  waits(facts(in, forsook, down())),
				"by a policy":       waits(facts(in, forsook, down(), byPolicy)),
				"pods are held":     waits(facts(in, forsook, down(), heldThere("later"))),
				"the Node is gone":  waits(facts(in, forsook, nodeGone, emptied)),
				"it is tainted":     {facts(in, forsook, down(tainted)), RemoveTaint, ReasonNeedsReboot, 0},
				"a person confirms": waits(facts(in, forsook, down(), confirm("burned"))),
				"the node is back":  {facts(in, forsook, down(rebooted), renewedFor(0), emptied), WriteStatus, ReasonUnfencing, 0},
				"a pod remains": {facts(in, forsook, down(rebooted), renewedFor(0), heldThere("pod")), Wait,
					ReasonRemainsOnNode, nodePoll},
				"the node runs":    waits(facts(in, forsook, down(ready), renewedFor(time.Hour))),
				"a person ends it": {facts(in, forsook, down(), unfence(v1alpha1.UnfenceNow)), WriteStatus, ReasonUnfencing, 0},
				"another machine":  {facts(in, forsook, down(replaced), renewedFor(0)), Wait, ReasonMachineReplaced, nodePoll},
			})
			s := written(t, facts(in, unfinalized, released))
			if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFenced); c.Status != metav1.ConditionUnknown ||
				c.Reason != string(ReasonNeedsReboot) || !c.LastTransitionTime.Time.Equal(now()) ||
				s.Proof == nil || s.Phase != v1alpha1.PhaseFenced || is(s, v1alpha1.ConditionReleased) {
				t.Errorf("%+v, %+v", c, s)
			}
			s = written(t, facts(in, forsook, down(rebooted), renewedFor(0), emptied))
			if !meta.IsStatusConditionFalse(s.Conditions, v1alpha1.ConditionFenced) {
				t.Errorf("its end has begun: %+v", s.Conditions)
			}
		})
	}
}

// An agent that is tried for a node that has booted since would be canceled, and tried again at once.
func TestBootEndsProofOfReboot(t *testing.T) {
	in := all(agents(medik8s, power), proved(medik8s), provenAgo(time.Hour), down(rebooted))
	for name, also := range map[string]func(*Facts){"a held pod": heldThere("later"), "a person's word": confirm("off")} {
		d := Decide(facts(in, also), now())
		if d.Reason != ReasonRebooted && d.Reason != ReasonRemainsOnNode {
			t.Errorf("%s: %v (%v)", name, d.Action, d.Reason)
		}
	}
	if d := Decide(facts(in, confirm("off"), emptied), now()); d.Action != WriteStatus || d.Reason != ReasonUnfencing {
		t.Errorf("%v (%v)", d.Action, d.Reason)
	}
}

func TestDecideEndOfFence(t *testing.T) {
	in := proved(power)
	begun := all(in, ending)
	over := all(begun, tried(1, 0))
	gone := all(over, allUndone)
	for name, say := range map[string]func(*Facts){"deleted": terminating, "ended": unfence(v1alpha1.UnfenceNow)} {
		t.Run(name, func(t *testing.T) {
			checkDecisions(t, map[string]decision{
				"it was not read":      {facts(say, in, unread), ReadFence, ReasonUnfencing, 0},
				"it is in force":       {facts(say, in), WriteStatus, ReasonUnfencing, 0},
				"it is to be undone":   {facts(say, begun), WriteStatus, ReasonUnfencing, agentPoll},
				"it is written down":   {facts(say, over), ReadRun, ReasonUnfencing, 0},
				"the run was read":     {facts(say, over, ran(RunAbsent)), ReadRun, ReasonUnfencing, 0},
				"the undoing was read": {facts(say, over, ran(RunAbsent, undo)), StartRun, ReasonUnfencing, 0},
				"the try before was read": {
					facts(say, over, ran(RunAbsent, undo), tried(2, 0)), ReadRun, ReasonUnfenceFailed, 0},
				"it was read long ago": {
					facts(say, over, ran(RunAbsent, undo, func(r *RunFacts) { r.Read = old(2) })), ReadRun, ReasonUnfencing, 0},
				"its taint was seen": {facts(say, over, taintSeen, ran(RunAbsent, undo)), ReadNode, ReasonEnded, 0},
				"it is tainted":      {facts(in, forsook, down(tainted)), RemoveTaint, ReasonNeedsReboot, 0},
				"it was rebooted, and is tainted": {
					facts(say, over, taintSeen, down(rebooted, tainted), ran(RunAbsent, undo)), RemoveTaint, ReasonEnded, 0},
				"it was rebooted, and gets no new pods": {
					facts(say, over, taintSeen, down(rebooted, shunned), ran(RunAbsent, undo)), RemoveTaint, ReasonEnded, 0},
				"it was rebooted, and no taint was seen": {
					facts(say, over, down(rebooted, tainted), ran(RunAbsent, undo)), StartRun, ReasonUnfencing, 0},
				"it is being undone":    {facts(say, over, ran(Running, undo)), Wait, ReasonUnfencing, agentPoll},
				"the undoing is ending": {facts(say, over, ran(RunStopping, undo)), Wait, ReasonUnfencing, agentPoll},
				"it takes too long": {
					facts(say, over, tried(1, 6*time.Minute), ran(Running, undo)), WriteStatus, ReasonUnfenceFailed, agentPoll},
				"it was tried by a clock that was ahead": {
					facts(say, over, tried(1, -time.Hour), ran(Running, undo)), WriteStatus, ReasonUnfenceFailed, agentPoll},
				"it does not end": {
					facts(say, over, tried(1, 6*time.Minute), ran(RunStopping, undo)), WriteStatus, ReasonUnfenceFailed,
					agentPoll},
				"it takes its time": {
					facts(say, over, endedLongAgo, tried(1, 4*time.Minute), ran(Running, undo)), Wait, ReasonUnfencing,
					agentPoll},
				"it is tried again": {
					facts(say, over, tried(2, 0), ran(RunAbsent, undo)), StartRun, ReasonUnfenceFailed, 0},
				"it was tried again": {
					facts(say, over, tried(2, 0), ran(Running, undo)), Wait, ReasonUnfenceFailed, agentPoll},
				"it was undone at last": {
					facts(say, over, tried(2, 0), ran(RunSucceeded, undo)), WriteStatus, ReasonUnfencing, 0},
				"no request is possible": {facts(say, over, ran(RunUnknown, undo)), Wait, ReasonUnfenceFailed, agentPoll},
				"it was undone":          {facts(say, over, ran(RunSucceeded, undo)), WriteStatus, ReasonUnfencing, 0},
				"it failed just now": {
					facts(say, over, tried(1, time.Minute), ran(RunFailed, undo,
						func(r *RunFacts) { r.EndedAt = ago(20 * time.Second) })), Wait, ReasonUnfenceFailed, 40 * time.Second},
				"it failed by a clock that is ahead": {
					facts(say, over, ran(RunFailed, undo, func(r *RunFacts) { r.EndedAt = now().Add(clockSkew) })), Wait,
					ReasonUnfenceFailed, retryUndo},
				"it failed by a clock that is wrong": {
					facts(say, over, tried(1, retryUndo), ran(RunFailed, undo,
						func(r *RunFacts) { r.EndedAt = now().Add(time.Hour) })), WriteStatus, ReasonUnfenceFailed, agentPoll},
				"it failed by that clock just after its start": {
					facts(say, over, tried(1, 5*time.Second), ran(RunFailed, undo,
						func(r *RunFacts) { r.EndedAt = now().Add(time.Hour) })), Wait, ReasonUnfenceFailed, 55 * time.Second},
				"it failed a minute ago": {
					facts(say, over, tried(1, retryUndo), ran(RunFailed, undo,
						func(r *RunFacts) { r.EndedAt = ago(retryUndo) })), WriteStatus, ReasonUnfenceFailed, agentPoll},
				"all is undone": {facts(say, gone), ReadNode, ReasonEnded, 0},
				"the node was read before": {
					facts(say, gone, down(), func(f *Facts) { f.FenceRead = read(3) }), ReadNode, ReasonEnded, 0},
				"the node was read": {
					facts(say, gone, down(), func(f *Facts) { f.LeaseRead = session.Read{} }), ReadLease, ReasonEnded, 0},
				"all was read":              {facts(say, gone, down()), WriteStatus, ReasonEnded, 0},
				"the node is tainted":       {facts(say, gone, down(tainted)), RemoveTaint, ReasonEnded, 0},
				"the node gets no new pods": {facts(say, gone, down(shunned)), RemoveTaint, ReasonEnded, 0},
				"the node runs, and is tainted": {
					facts(say, gone, down(tainted), renewedFor(0)), RemoveTaint, ReasonEnded, 0},
				"its Node is gone":     {facts(say, gone, nodeGone), WriteStatus, ReasonEnded, 0},
				"no agent was started": {facts(say, down()), WriteStatus, ReasonEnded, 0},
				"an agent that proved nothing": {
					facts(say, attempted(power, v1alpha1.ResultTimedOut)), WriteStatus, ReasonUnfencing, agentPoll},
			})
		})
	}
	abandoned := unfence(v1alpha1.UnfenceAbandon)
	checkDecisions(t, map[string]decision{
		"abandoned in force":       {facts(abandoned, in), WriteStatus, ReasonUnfencing, 0},
		"abandoned, and all read":  {facts(abandoned, over, down()), WriteStatus, ReasonEnded, 0},
		"abandoned with its taint": {facts(abandoned, over, down(tainted)), RemoveTaint, ReasonEnded, 0},

		"rebooted": {facts(over, allUndone, down(rebooted), renewedFor(0)), WriteStatus, ReasonRebooted, 0},
	})
}

// The Job of each try has its own name, because an earlier Job may never end. Other agents have one object for all
// tries.
func TestUndoTriesAreCounted(t *testing.T) {
	over := all(proved(power), ending, terminating)
	late, failed := tried(1, 6*time.Minute), ran(RunFailed, undo, func(r *RunFacts) { r.EndedAt = ago(retryUndo) })
	for name, c := range map[string]struct {
		facts Facts
		want  int32
	}{
		"the first":                     {facts(over), 1},
		"after a try that hangs":        {facts(over, late, ran(Running, undo)), 2},
		"after a try that does not end": {facts(over, late, ran(RunStopping, undo)), 2},
		"after a failed try":            {facts(over, tried(3, time.Minute), failed), 4},
		"after a try without a number":  {facts(over, tried(0, 0)), 1},
		"after a try without a time": {facts(over, tried(2, 0), func(f *Facts) {
			f.Fence.Status.Attempts[0].UndoTriedAt = nil
		}), 3},
	} {
		d := Decide(c.facts, now())
		if d.Action != WriteStatus {
			t.Fatalf("%s: %v", name, d.Action)
		}
		if a := d.Status.Attempts[0]; a.UndoTry != c.want || !a.UndoTriedAt.Time.Equal(now()) || a.UndoneAt != nil {
			t.Errorf("%s: try %d at %s, undone %v; want try %d", name, a.UndoTry, a.UndoTriedAt, a.UndoneAt, c.want)
		}
	}
	for name, in := range map[string]func(*Facts){"remediation": all(agents(medik8s), proved(medik8s)),
		"NetworkFence": all(agents(storage), proved(storage))} {
		f := facts(in, ending, unfence(v1alpha1.UnfenceNow), late, ran(RunStopping, undo))
		checkDecisions(t, map[string]decision{name: {f, Wait, ReasonUnfenceFailed, agentPoll}})
	}
}

func TestDecideReturnedFence(t *testing.T) {
	over := returnedAgo(10 * time.Minute)
	checkDecisions(t, map[string]decision{
		"it is kept":                            {facts(over), Wait, ReasonReturned, 50 * time.Minute},
		"it returned by a clock that was wrong": {facts(returnedAgo(-2 * time.Hour)), DeleteFence, ReasonReturned, 0},
		"kept for the announced time": {
			facts(over, func(f *Facts) { f.Rules.KeepReturned = 11 * time.Minute }), Wait, ReasonReturned, time.Minute},
		"it is kept, and was not read":   {facts(over, unread), Wait, ReasonReturned, 50 * time.Minute},
		"the watch shows no taint":       {facts(over, down(tainted)), Wait, ReasonReturned, 50 * time.Minute},
		"it was kept long enough":        {facts(returnedAgo(time.Hour)), DeleteFence, ReasonReturned, 0},
		"it was kept, and was not read":  {facts(returnedAgo(time.Hour), unread), ReadFence, ReasonReturned, 0},
		"it is terminating":              {facts(over, terminating), RemoveFinalizer, ReasonReturned, 0},
		"the watch shows its taint":      {facts(over, terminating, taintSeen), ReadNode, ReasonReturned, 0},
		"the taint, and it was not read": {facts(over, terminating, taintSeen, unread), ReadFence, ReasonReturned, 0},
		"the taint, and the node was read before": {
			facts(over, taintSeen, down(tainted), func(f *Facts) { f.FenceRead = read(3) }), ReadNode, ReasonReturned, 0},
		"the node is tainted": {facts(over, terminating, taintSeen, down(tainted)), RemoveTaint, ReasonReturned, 0},
		"the node gets no new pods": {
			facts(over, terminating, taintSeen, down(shunned)), RemoveTaint, ReasonReturned, 0},
		"the node is not tainted": {facts(over, terminating, taintSeen, down()), RemoveFinalizer, ReasonReturned, 0},
	})
}

// endedLongAgo makes the end of the fence older than the timeout of an agent.
func endedLongAgo(f *Facts) {
	for i := range f.Fence.Status.Conditions {
		f.Fence.Status.Conditions[i].LastTransitionTime = metav1.NewTime(ago(time.Hour))
	}
}

func taintSeen(f *Facts) { f.TaintSeen = true }

func TestDecideTaintWithoutFence(t *testing.T) {
	alone := func(f *Facts) { f.Fence, f.TaintSeen = Fence{Name: "node-1"}, true }
	checkDecisions(t, map[string]decision{
		"the watch shows it": {facts(alone, unread), ReadFence, ReasonTaintRemains, 0},
		"there is no fence":  {facts(alone), ReadNode, ReasonTaintRemains, 0},
		"the node was read before": {
			facts(alone, down(tainted), func(f *Facts) { f.FenceRead = read(3) }), ReadNode, ReasonTaintRemains, 0},
		"the node is tainted":     {facts(alone, down(tainted)), RemoveTaint, ReasonTaintRemains, 0},
		"it gets no new pods":     {facts(alone, down(shunned)), RemoveTaint, ReasonTaintRemains, 0},
		"it loses its pods":       {facts(alone, down(otherEffect)), RemoveTaint, ReasonTaintRemains, 0},
		"the node is not tainted": {facts(alone, down()), Wait, ReasonNoFence, 0},
		"the node is gone":        {facts(alone, nodeGone), Wait, ReasonNoFence, 0},
	})
	// Its finalizer was removed by hand, and another finalizer keeps it.
	kept := all(proved(power), released, terminating, func(f *Facts) { f.Fence.Finalized = false })
	checkDecisions(t, map[string]decision{
		"other programs keep the fence":                 {facts(kept, down(tainted)), RemoveTaint, ReasonTaintRemains, 0},
		"other programs keep the fence, it is not read": {facts(kept, unread), ReadFence, ReasonTaintRemains, 0},
		"other programs keep the fence, without a taint": {
			facts(kept, down(tainted), func(f *Facts) { f.TaintSeen = false }), Wait, ReasonNoFence, 0},
		"it is to begin": {facts(taintSeen, down(shunned), func(f *Facts) { f.Fence.Finalized = false }), AddFinalizer,
			ReasonRequested, 0},
	})
}
