package statefulset

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/docs"
	"github.com/csi-reclaimer/csi-reclaimer/test/docs/picture"
)

// scalingDownAndUp draws the behavior of Kubernetes, which test/e2e/statefulset verifies, and the decisions of
// DecideSet.
func scalingDownAndUp(t *testing.T) *picture.Sequence {
	t.Helper()
	const people, controller, collector, guard = 0, 1, 2, 3
	drawn := &picture.Sequence{
		Title: "A StatefulSet is scaled from 2 to 1 and back",
		Description: "The StatefulSet controller makes the pod web-1 the owner of its claim and deletes it. The set is " +
			"scaled up again while the pod is terminating. The garbage collector deletes the claim, which the StatefulSet " +
			"controller does not notice. After ten seconds volume-guard writes an annotation to the set, and the claim " +
			"and the pod are created.",
		Lanes: []string{"people", "StatefulSet controller", "garbage collector", "volume-guard"},
	}
	drawn.Box(controller, picture.Fact, "", "pods web-0 and web-1 run")
	drawn.Does(people, controller, "1 replica")
	drawn.Does(controller, controller, "makes web-1 the owner of its claim")
	drawn.Does(controller, controller, "deletes pod web-1")
	drawn.Does(people, controller, "2 replicas, while web-1 is terminating")
	drawn.Box(controller, picture.Fact, "", "waits for the claim of web-1 to go")
	drawn.Does(collector, collector, "deletes the claim")
	drawn.Box(controller, picture.Fact, "", "does not notice, and creates no pod")

	facts := SetFacts{Gap: GapOpen, Set: Set{UID: "set", Templates: []string{"data"}, Replicas: 2,
		Policy: Policy{WhenScaled: Delete}}, Sight: SetSight{QuietSince: now()}}
	clock, last := now(), ReasonPodMissing
	next := func() picture.Step {
		d := DecideSet(facts, clock)
		last = d.Reason
		step := picture.Step{Reason: string(d.Reason), Sentence: d.Reason.Sentence(), Waits: d.Action == SetWait,
			To: controller}
		switch d.Action {
		case SetWait:
		case Wake:
			step.Words, facts.Set.Woken, facts.Sight.Wakes, facts.Sight.QuietSince = "annotation woken", true, 1, clock
		case EndWake:
			step.Words, facts.Set.Woken = "removes the annotation", false
		}
		return step
	}
	drawn.Tell(guard, next)
	if last != ReasonPodMissing {
		t.Errorf("volume-guard does not wait at first: %s", last)
	}
	clock = clock.Add(Quiet)
	drawn.Does(guard, guard, "nothing happens for "+Quiet.String())
	drawn.Tell(guard, next)
	drawn.Does(controller, controller, "creates the claim and web-1, with an empty volume")
	facts.Gap = GapNone
	drawn.Tell(guard, next)
	if facts.Set.Woken {
		t.Errorf("the annotation stays: %s", last)
	}
	return drawn
}

func TestPictureMatchesDecisions(t *testing.T) {
	docs.CheckPicture(t, "scaling-down-and-up", scalingDownAndUp(t))
}
