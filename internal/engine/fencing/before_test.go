package fencing

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

// A pod that the first list did not show was bound to the node since, and does not keep the fence. A list counts anew
// for another state of fence and node, and in another process.
func TestOnlyPodsFromBeforeKeepFence(t *testing.T) {
	remains := saysWait(ReasonRemainsOnNode)
	third := func(n *objects.Node) { n.BootID = "boot3" }
	for name, c := range map[string]struct {
		in          func(*Facts)
		node        Reply
		lease       string
		waits, ends Reason
	}{
		"of a deleted Node": {proved(power), reply(), "7", ReasonNodeDeleted, ReasonNodeDeleted},
		"that ends once it has released": {all(proved(power), released, unfence(v1alpha1.UnfenceWhenReleased), remains),
			nodeIs(tainted), "7", ReasonRemainsOnNode, ReasonUnfencing},
		"of volumes, of a node that has booted": {all(agents(storage), proved(storage), remains), nodeIs(rebooted),
			"8", ReasonRemainsOnNode, ReasonUnfencing},
		"of a node that was rebooted": {all(agents(medik8s), proved(medik8s), remains), nodeIs(rebooted),
			"8", ReasonRemainsOnNode, ReasonUnfencing},
	} {
		t.Run(name, func(t *testing.T) {
			at, unheld := now(), types.UID("")
			list := func(tracker *Tracker, node Reply, want sessiontest.End, pods ...types.UID) {
				t.Helper()
				at = at.Add(nodePoll)
				lists := reply(func(r *Reply) {
					r.Remaining.AttachmentsListed = true
					for _, pod := range pods {
						r.Remaining.AddPod(objects.Pod{UID: pod, Held: pod != unheld, Terminating: true})
					}
				})
				answers := []answer{{ReadFence, fenceIs(c.in), 0}, {ReadNode, node, 0}, {ReadLease, leaseIs(c.lease), 0},
					{ListRemaining, lists, 0}}
				if want == sessiontest.Written(c.ends) {
					answers = append(answers, answer{ListRemaining, lists, 0}, answer{WriteStatus, reply(), 0})
				}
				s, _ := play(t, tracker, facts(c.in, unread), at, answers...)
				sessiontest.Ends(t, &s, want)
			}
			waits, ends := sessiontest.Timed(c.waits), sessiontest.Written(c.ends)
			tracker := NewTracker()
			list(tracker, c.node, waits, "old", "older")
			list(tracker, c.node, waits, "old", "new")
			list(tracker, c.node, ends, "new", "newer")
			list(NewTracker(), c.node, waits, "new")
			unheld = "unheld"
			list(tracker, c.node, waits, "old")
			list(tracker, c.node, waits, "old", unheld)
			if c.lease == "8" {
				list(tracker, nodeIs(third), waits, "new")
			}
		})
	}
}

// A tenant can delete a pod that ignores SIGTERM, with a grace period of years, after the node has booted.
func TestPodThatIsDeletedAfterBootDoesNotKeepFence(t *testing.T) {
	in := all(agents(storage), proved(storage), saysWait(ReasonRemainsOnNode))
	tracker := NewTracker()
	for i, terminating := range [][]types.UID{{"old"}, {"old", "later"}, {"later"}} {
		lists := reply(func(r *Reply) {
			r.Remaining.AttachmentsListed = true
			for _, pod := range []types.UID{"old", "later"} {
				if i < 2 || pod == "later" {
					r.Remaining.AddPod(objects.Pod{UID: pod, Held: true, Terminating: slices.Contains(terminating, pod)})
				}
			}
		})
		answers := []answer{{ReadFence, fenceIs(in), 0}, {ReadNode, nodeIs(rebooted), 0}, {ReadLease, leaseIs("8"), 0},
			{ListRemaining, lists, 0}}
		want := sessiontest.Timed(ReasonRemainsOnNode)
		if i == 2 {
			answers = append(answers, answer{ListRemaining, lists, 0}, answer{WriteStatus, reply(), 0})
			want = sessiontest.Written(ReasonUnfencing)
		}
		s, _ := play(t, tracker, facts(in, unread), now().Add(time.Duration(i)*nodePoll), answers...)
		sessiontest.Ends(t, &s, want)
	}
}

// A pod that gets a hold only after the first list is from before, and a pod after an empty list is not.
func TestFirstListTellsPodsFromBefore(t *testing.T) {
	in := proved(power)
	for name, c := range map[string]struct {
		first objects.Pod
		lists int
	}{"it was there without a hold": {objects.Pod{UID: "pod"}, 1}, "it was not there": {objects.Pod{}, 2}} {
		tracker := NewTracker()
		for i, pod := range []objects.Pod{c.first, {UID: "pod", Held: true}} {
			remaining := reply(func(r *Reply) {
				if pod.UID != "" {
					r.Remaining.AddPod(pod)
				}
			})
			answers := []answer{{ReadFence, fenceIs(in), 0}, {ReadNode, reply(), 0}, {ReadLease, leaseIs("7"), 0},
				{ListRemaining, remaining, 0}, {ListRemaining, remaining, 0}}
			if i == 1 {
				answers = answers[:3+c.lists]
			}
			s, _ := play(t, tracker, facts(in, unread), now(), answers...)
			if sessiontest.Ends(t, &s, sessiontest.Timed(ReasonNodeDeleted)); t.Failed() {
				t.Fatal(name)
			}
		}
	}
}
