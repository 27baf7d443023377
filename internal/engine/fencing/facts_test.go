package fencing

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

func now() time.Time                { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }
func ago(d time.Duration) time.Time { return now().Add(-d) }

// read is a live read at this place in the session, and old is a read that does not count any more.
func read(order int) session.Read { return session.Read{Sent: ago(time.Second), Order: order} }
func old(order int) session.Read {
	return session.Read{Sent: ago(session.LiveFor + time.Nanosecond), Order: order}
}

// The agents of tests: power has something to undo, bmc has nothing. storage and storage2 fence the volumes of two
// storage systems, and only the second is named in the spec.
const (
	power, bmc, medik8s, byHandAgent = "power", "bmc", "medik8s", "by-hand"
	storage, storage2                = "storage", "storage-2"
)

// cluster returns the attributes of the PVs of a storage system.
func cluster(id v1alpha1.AttributeValue) map[string]v1alpha1.AttributeValue {
	return map[string]v1alpha1.AttributeValue{"clusterID": id}
}

// volumesOf returns the volumes that storage and storage2 have proven.
func volumesOf(agents ...string) (all []v1alpha1.CoveredVolumes) {
	ids := map[string]v1alpha1.AttributeValue{storage: "one", storage2: "two"}
	for _, agent := range agents {
		all = append(all, v1alpha1.CoveredVolumes{Agent: agent, Driver: "driver", Volumes: v1alpha1.VolumesMatching,
			VolumeAttributes: cluster(ids[agent])})
	}
	return all
}

func agentOf(name string) v1alpha1.Agent {
	a := v1alpha1.Agent{Name: name, Covers: v1alpha1.CoversUntilUnfenced,
		Timeout: metav1.Duration{Duration: 5 * time.Minute}}
	switch name {
	case power:
		a.Job = &v1alpha1.JobAgent{Namespace: "ns", PodTemplateName: "power", Undo: true}
	case bmc:
		a.Job = &v1alpha1.JobAgent{Namespace: "ns", PodTemplateName: "bmc"}
	case medik8s:
		a.Covers, a.Remediation = v1alpha1.CoversReboot, &v1alpha1.RemediationAgent{Kind: "RTemplate"}
	case storage, storage2:
		a.Covers, a.NetworkFence = v1alpha1.CoversVolumes, &v1alpha1.NetworkFenceAgent{Driver: "driver",
			Volumes: v1alpha1.VolumesMatching}
		if name == storage2 {
			a.NetworkFence.VolumeAttributes = cluster("two")
		}
	default:
		a.Manual = &v1alpha1.ManualAgent{}
	}
	return a
}

// facts returns the facts about a requested NodeFence that has its finalizer and was read. Its only agent is power,
// unless alter changes that.
func facts(alter ...func(*Facts)) Facts {
	f := Facts{
		Fence: Fence{Name: "node-1", UID: "fence", ResourceVersion: "10", Generation: 3, Finalized: true,
			Spec: v1alpha1.NodeFenceSpec{Reason: "it is down"}},
		FenceRead: read(1),
	}
	agents(power)(&f)
	f.Fence.Status.ObservedGeneration = f.Fence.Generation
	for _, a := range alter {
		a(&f)
	}
	if f.Remaining.Read.Order > 0 && f.Remaining.Basis == (Basis{}) {
		f.Remaining.Basis = f.Basis()
	}
	return f
}

// listedBefore is a list that was made when the state of fence and node was another one.
func listedBefore(f *Facts) { f.Remaining.Basis = Basis{Attempt: 15} }

func all(alter ...func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		for _, a := range alter {
			a(f)
		}
	}
}

func agents(names ...string) func(*Facts) {
	return func(f *Facts) {
		f.Fence.Spec.Agents = nil
		for _, name := range names {
			f.Fence.Spec.Agents = append(f.Fence.Spec.Agents, agentOf(name))
		}
	}
}

func unfence(u v1alpha1.Unfence) func(*Facts) { return func(f *Facts) { f.Fence.Spec.Unfence = u } }
func confirm(words string) func(*Facts) {
	return func(f *Facts) { f.Fence.Spec.Confirmation, f.Fence.Spec.ConfirmationUID = words, f.Fence.UID }
}
func copied(f *Facts)      { f.Fence.Spec.ConfirmationUID = "before" }
func byPolicy(f *Facts)    { f.Fence.Spec.PolicyName = "policy" }
func terminating(f *Facts) { f.Fence.Terminating = true }
func unread(f *Facts)      { f.FenceRead = session.Read{} }

// attempted adds an attempt of an agent that began a minute ago. It has this result, or has not ended for "".
func attempted(agent string, result v1alpha1.Result, alter ...func(*v1alpha1.Attempt)) func(*Facts) {
	return func(f *Facts) {
		number := int32(1)
		if n := len(f.Fence.Status.Attempts); n > 0 {
			number = f.Fence.Status.Attempts[n-1].Number + 1
		}
		a := v1alpha1.Attempt{Number: number, Agent: agent, StartedAt: metav1.NewTime(ago(time.Minute)), Result: result,
			BootID: "boot", MachineID: "id", SystemUUID: "uuid", TerminatingPods: []types.UID{"pod"}}
		if result != "" {
			at := metav1.NewTime(ago(30 * time.Second))
			a.EndedAt = &at
		}
		for _, change := range alter {
			change(&a)
		}
		f.Fence.Status.Attempts = append(f.Fence.Status.Attempts, a)
	}
}

func startedAgo(d time.Duration) func(*v1alpha1.Attempt) {
	return func(a *v1alpha1.Attempt) { a.StartedAt = metav1.NewTime(ago(d)) }
}

func endedAgo(d time.Duration) func(*v1alpha1.Attempt) {
	return func(a *v1alpha1.Attempt) { at := metav1.NewTime(ago(d)); a.EndedAt = &at }
}

func undone(a *v1alpha1.Attempt) { at := metav1.NewTime(now()); a.UndoneAt = &at }

// proved adds a proof by an agent, which is in force.
func proved(agent string) func(*Facts) {
	return all(attempted(agent, v1alpha1.ResultProven), func(f *Facts) {
		of, number := f.Fence.agent(agent), f.Fence.Status.Attempts[len(f.Fence.Status.Attempts)-1].Number
		f.Fence.Status.Proof = &v1alpha1.Proof{Attempt: number, Agent: agent, Covers: of.Covers,
			ProvenAt: metav1.NewTime(ago(30 * time.Second)), BootID: "boot", MachineID: "id", SystemUUID: "uuid",
			LeaseVersion: "7"}
		if of.Covers == v1alpha1.CoversVolumes {
			f.Fence.Status.Proof.Volumes = volumesOf(agent)
		}
		condition(v1alpha1.ConditionFenced, true)(f)
	})
}

func condition(kind string, is bool) func(*Facts) {
	return func(f *Facts) { set(&f.Fence.Status, ago(20*time.Second), kind, is, ReasonFenced) }
}

func released(f *Facts) { condition(v1alpha1.ConditionReleased, true)(f); f.TaintSeen = true }

// returnedAgo is a fence that ended this long ago.
func returnedAgo(d time.Duration) func(*Facts) {
	return func(f *Facts) {
		set(&f.Fence.Status, ago(d), v1alpha1.ConditionReturned, true, ReasonReturned)
	}
}

// saysWait is a fence whose condition Fenced has the reason of a wait.
func saysWait(why Reason) func(*Facts) {
	return func(f *Facts) {
		meta.FindStatusCondition(f.Fence.Status.Conditions, v1alpha1.ConditionFenced).Reason = string(why)
	}
}

// ending is a fence whose end has begun with its first write.
func ending(f *Facts) { condition(v1alpha1.ConditionFenced, false)(f) }

// forsook is a fence whose proof was withdrawn, because its finalizer was gone.
func forsook(f *Facts) {
	ending(f)
	meta.FindStatusCondition(f.Fence.Status.Conditions, v1alpha1.ConditionFenced).Status = metav1.ConditionUnknown
}

// unfinalized is a fence without the finalizer of this project.
func unfinalized(f *Facts) { f.Fence.Finalized = false }

// down is a read Node whose condition Ready is Unknown, with a Lease that was read after it and is not renewed.
func down(alter ...func(*objects.Node)) func(*Facts) {
	return func(f *Facts) {
		f.Node, f.NodeRead = objects.Node{Found: true, ResourceVersion: "20", Ready: objects.ReadyUnknown, BootID: "boot",
			Machine: objects.Machine{MachineID: "id", SystemUUID: "uuid"}}, read(2)
		for _, a := range alter {
			a(&f.Node)
		}
		f.Lease, f.LeaseRead = objects.Lease{ResourceVersion: "7"}, read(3)
		f.Sight.LeaseVersion, f.Sight.LeaseSince = "7", ago(SilentAfter)
	}
}

func ready(n *objects.Node)        { n.Ready = objects.ReadyTrue }
func unready(n *objects.Node)      { n.Ready = objects.ReadyFalse }
func noCondition(n *objects.Node)  { n.Ready = objects.ReadyMissing }
func tainted(n *objects.Node)      { n.OwnTaint = true }
func shunned(n *objects.Node)      { n.VolumesFenced = true }
func otherEffect(n *objects.Node)  { n.OtherEffect = true }
func rebooted(n *objects.Node)     { n.BootID = "boot2" }
func replaced(n *objects.Node)     { n.BootID, n.Machine = "boot2", other }
func controlPlane(n *objects.Node) { n.ControlPlane = true }

var other = objects.Machine{MachineID: "id2", SystemUUID: "uuid2"}

func nodeGone(f *Facts) {
	f.Node, f.NodeRead, f.Lease, f.LeaseRead = objects.Node{}, read(2), objects.Lease{}, read(3)
	f.Sight.LeaseVersion, f.Sight.LeaseSince = "", now()
}

// renewedFor is a Lease that was renewed after the proof, and that has contradicted the proof for this long.
func renewedFor(d time.Duration) func(*Facts) {
	return func(f *Facts) {
		f.Lease.ResourceVersion = "8"
		f.Sight = Sight{LeaseVersion: "8", LeaseSince: now(), RunsSince: ago(d)}
	}
}

func silent(f *Facts) {
	f.Sight.LeaseVersion, f.Sight.LeaseSince = f.Lease.ResourceVersion, ago(SilentAfter)
}

// emptied is a node without pods and VolumeAttachments.
func emptied(f *Facts) { f.Remaining = RemainingFacts{Read: read(4), AttachmentsListed: true} }

// heldThere is a node with these pods, which are held and terminating.
func heldThere(pods ...types.UID) func(*Facts) {
	return func(f *Facts) {
		of := Remains{Pods: len(pods)}
		f.Remaining = RemainingFacts{Read: read(4), Leaving: of, All: of, AttachmentsListed: true}
		for _, pod := range pods {
			f.Remaining.Held = append(f.Remaining.Held, HeldPod{UID: pod})
		}
	}
}

// unheldThere is a node with one terminating pod that uses a claim and is not held.
func unheldThere(f *Facts) {
	f.Remaining = RemainingFacts{Read: read(4), Unheld: 1, All: Remains{Pods: 1}}
}

// provenAgo dates the proof back by this much.
func provenAgo(d time.Duration) func(*Facts) {
	return func(f *Facts) {
		f.Fence.Status.Proof.ProvenAt = metav1.NewTime(ago(d))
		endedAgo(d)(&f.Fence.Status.Attempts[len(f.Fence.Status.Attempts)-1])
	}
}

func remaining(leaving, everything Remains) func(*Facts) {
	return func(f *Facts) {
		f.Remaining = RemainingFacts{Read: read(4), Leaving: leaving, All: everything, AttachmentsListed: true}
	}
}

// ran is the result of a live read of the object of the last attempt.
func ran(state RunState, alter ...func(*RunFacts)) func(*Facts) {
	return func(f *Facts) {
		last := f.Fence.Status.Attempts[len(f.Fence.Status.Attempts)-1]
		f.Run = RunFacts{Read: read(2), Of: Run{Attempt: last.Number, Agent: last.Agent}, State: state, Message: "words",
			Attributes: cluster("one")}
		for _, a := range alter {
			a(&f.Run)
		}
		if f.Run.Of.Undo {
			f.Run.Of.Try = last.UndoTry
		}
	}
}

// tried is an attempt with this number of tries to undo it, the last one this long ago.
func tried(times int32, since time.Duration) func(*Facts) {
	return func(f *Facts) {
		at, last := metav1.NewTime(ago(since)), &f.Fence.Status.Attempts[len(f.Fence.Status.Attempts)-1]
		last.UndoTry, last.UndoTriedAt = times, &at
	}
}

func undo(r *RunFacts)    { r.Of.Undo = true }
func silence(r *RunFacts) { r.Message = "" }

func TestRemainingFacts(t *testing.T) {
	used := objects.Pod{Namespace: "ns", UID: "pod", Node: "node-1", Claims: []string{"data"}}
	pod := func(alter ...func(*objects.Pod)) objects.Pod {
		p := used
		for _, a := range alter {
			a(&p)
		}
		return p
	}
	held := func(p *objects.Pod) { p.Held = true }
	leaves := func(p *objects.Pod) { p.Terminating = true }
	claimless := func(p *objects.Pod) { p.Claims = nil }
	ended := func(p *objects.Pod) { p.Final, p.Succeeded, p.Reported = true, true, true }
	one := Remains{Pods: 1}
	counts, no := map[types.UID]bool{"pod": true}, map[types.UID]bool{"pod": false}
	for name, c := range map[string]struct {
		pod  objects.Pod
		want RemainingFacts
	}{
		"running":                     {pod(), RemainingFacts{Pods: counts, All: one}},
		"one without a claim":         {pod(claimless), RemainingFacts{Pods: no}},
		"ended":                       {pod(ended), RemainingFacts{Pods: no}},
		"held":                        {pod(held), RemainingFacts{Pods: counts, All: one}},
		"ended, held":                 {pod(held, ended), RemainingFacts{Pods: counts, All: one}},
		"one without a claim, held":   {pod(held, claimless), RemainingFacts{Pods: counts, All: one}},
		"terminating":                 {pod(leaves), RemainingFacts{Pods: counts, Unheld: 1, All: one}},
		"terminating, ended":          {pod(leaves, ended), RemainingFacts{Pods: no}},
		"terminating without a claim": {pod(leaves, claimless), RemainingFacts{Pods: no}},
		"held and terminating": {pod(held, leaves),
			RemainingFacts{Pods: counts, Held: []HeldPod{{"ns", "pod"}}, Leaving: one, All: one}},
	} {
		var got RemainingFacts
		if got.AddPod(c.pod); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	var got RemainingFacts
	got.AddAttachment(false)
	got.AddAttachment(true)
	want := RemainingFacts{All: Remains{VolumeAttachments: 2}, Leaving: Remains{VolumeAttachments: 1}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestReasons(t *testing.T) { sessiontest.Reasons(t, Reasons(), 30) }

func TestActions(t *testing.T) { sessiontest.Actions(t, RemoveTaint) }

// A fence is evidence about a pod only while it is in force.
func TestEvidence(t *testing.T) {
	machine := objects.Machine{MachineID: "id", SystemUUID: "uuid"}
	untilNow := objects.Fence{InForce: true, Coverage: v1alpha1.CoversUntilUnfenced, BootID: "boot", Machine: machine}
	whole, rebooted := untilNow, untilNow
	whole.SinceTerminating = true
	rebooted.SinceTerminating, rebooted.Coverage = true, v1alpha1.CoversReboot
	volumes := all(agents(storage), proved(storage))
	ofVolumes := objects.Fence{InForce: true, Coverage: v1alpha1.CoversVolumes, Volumes: volumesOf(storage),
		BootID: "boot", Machine: machine}
	for name, c := range map[string]struct {
		facts Facts
		pod   types.UID
		want  objects.Fence
	}{
		"requested":     {facts(), "pod", objects.Fence{}},
		"in force":      {facts(proved(power)), "pod", whole},
		"released":      {facts(proved(power), released), "pod", whole},
		"another pod":   {facts(proved(power)), "pod2", untilNow},
		"by a reboot":   {facts(agents(medik8s), proved(medik8s)), "pod", rebooted},
		"its end began": {facts(proved(power), ending), "pod", objects.Fence{}},
		"ended":         {facts(proved(power), unfence(v1alpha1.UnfenceNow)), "pod", objects.Fence{}},
		"abandoned":     {facts(proved(power), unfence(v1alpha1.UnfenceAbandon)), "pod", objects.Fence{}},
		"deleted":       {facts(proved(power), terminating), "pod", objects.Fence{}},
		"undone when released": {
			facts(proved(power), unfence(v1alpha1.UnfenceWhenReleased)), "pod", whole},
		"the proof is withdrawn": {
			facts(proved(power), func(f *Facts) { f.Fence.Status.Proof = nil }), "pod", objects.Fence{}},
		"an agent works beside it": {facts(attempted(power, "")), "pod", objects.Fence{}},
		"the attempt is not there": {
			facts(proved(power), func(f *Facts) { f.Fence.Status.Attempts = nil }), "pod",
			untilNow},
		"of volumes": {facts(volumes), "pod2", ofVolumes},
		"of volumes, and an agent works beside it": {
			facts(volumes, agents(storage, storage2), attempted(storage2, "")), "pod2", ofVolumes},
		"of volumes, and deleted": {facts(volumes, terminating), "pod2", ofVolumes},
		"of volumes, and nothing ends it": {
			facts(volumes, terminating, func(f *Facts) { f.Fence.Finalized = false }), "pod2", objects.Fence{}},
		"of volumes, and its finalizer is gone": {
			facts(volumes, func(f *Facts) { f.Fence.Finalized = false }), "pod2", objects.Fence{}},
		"of volumes, and its finalizer was gone": {facts(volumes, forsook), "pod2", objects.Fence{}},
		"of volumes, and ended": {
			facts(volumes, terminating, unfence(v1alpha1.UnfenceNow)), "pod2", objects.Fence{}},
	} {
		if got := Evidence(c.facts.Fence, c.pod); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// An unmount may hang from the start of an agent until the agent has undone its fence.
func TestMayKeepVolumes(t *testing.T) {
	undone := func(f *Facts) { f.Fence.Status.Attempts[0].UndoneAt = &metav1.Time{} }
	for name, c := range map[string]struct {
		facts Facts
		want  bool
	}{
		"requested":              {facts(agents(storage)), false},
		"an agent is at work":    {facts(agents(storage), attempted(storage, "")), true},
		"it has failed":          {facts(agents(storage), attempted(storage, v1alpha1.ResultFailed)), true},
		"in force":               {facts(agents(storage), proved(storage)), true},
		"its end began":          {facts(agents(storage), proved(storage), ending), true},
		"its finalizer was gone": {facts(agents(storage), proved(storage), forsook), true},
		"undone":                 {facts(agents(storage), proved(storage), ending, undone), false},
		"returned":               {facts(agents(storage), proved(storage), returnedAgo(time.Hour)), false},
		"the machine is off":     {facts(proved(power)), false},
		"an agent of no spec":    {facts(proved(power), func(f *Facts) { f.Fence.Spec.Agents = nil }), true},
		"one after another":      {facts(agents(power, storage), attempted(power, v1alpha1.ResultFailed)), false},
		"a person's word alone":  {facts(agents(storage), proved(confirmation)), false},
	} {
		if got := c.facts.Fence.MayKeepVolumes(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
