package claims

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// ClaimFacts holds the results of all reads about one claim, and about the sets and pods of its namespace.
type ClaimFacts struct {
	volumes.ClaimFacts
	Sets explain.Read[[]Set]
	Pods explain.Read[[]statefulset.Pod]
}

// outcomes returns the facts that decide the outcome of its volume.
func (f ClaimFacts) outcomes() volumes.ClusterFacts {
	if f.PV.Value != nil {
		return f.PV.Value.ClusterFacts // with the claims of its siblings
	}
	return f.ClusterFacts
}

// adviseOnRetained covers a claim that stays, whose deletion cannot be taken back.
func adviseOnRetained(s *explain.Explanation, f statefulset.Facts, podsRead bool, of string) {
	switch {
	case !podsRead:
		s.Advise("The pods could not be read here. Do not delete the claim before it is clear that none uses it")
	case f.OtherPod != "":
		s.Advise("Keep the claim while pod %s uses it", f.OtherPod)
	case f.OtherOwner() != "":
		s.Advise("Ask the owner of the claim, %s, whether the data is needed", f.OtherOwner())
	default:
		s.Advise("If the data is not needed: kubectl delete pvc %s", of)
	}
}

// Explain is a pure function that explains a claim and its PV. If a StatefulSet gives the claim its name, it also
// explains the effect of the set's retention policy on the claim.
func Explain(f ClaimFacts) explain.Explanation {
	s := volumes.ExplainClaim(f.ClaimFacts)
	c := ClaimOf(f.Claim)
	i := Facts{ClusterFacts: f.outcomes(), Sets: f.Sets, Pods: f.Pods}.index()
	facts, _ := i.of(c)
	e := statefulset.Explain(facts, f.Now)
	explain.NoteUnread(&s, f.Sets, "StatefulSets", "whether one has the claim, and its retention policy")
	if e.Set == "" {
		explainWithoutSet(&s, c, facts)
		return s
	}
	s.AddFact("StatefulSet", "%s, %s", e.Set, replicaWords(facts))
	s.AddFact("Retention", "%s", policyOf(e.Policy, e.Source))
	addMark(&s, c)
	if c.Hold {
		s.AddFact("Held", "by the annotation %s", volume.HoldAnnotation)
	}
	if f.Pods.OK() {
		addForecast(&s, i, c, "Scaled away", e.Scaled, facts)
		addForecast(&s, i, c, "Set deleted", e.Deleted, facts)
	}
	d := decision(i, e)
	if unread := e.Decision.Reason == statefulset.ReasonPodRemains && !f.Pods.OK(); unread {
		d.Action, d.Reason = "", string(statefulset.ReasonAPIReadFailed)
		d.Text = "The replica of the claim was scaled away. Its pod could not be read here, so the claim may be deleted at " +
			"any time."
	}
	if s.Decision == nil && d.Reason != string(statefulset.ReasonInUse) && d.Reason != string(statefulset.ReasonInRange) {
		s.Decision = &d
		s.Headline = strings.TrimSuffix(s.Headline, ".") + fmt.Sprintf(" (%s): %s", d.Reason, d.Text)
	}
	advise(&s, c, facts, e, f.Pods.OK())
	return s
}

// ExplainSet is a pure function that explains a StatefulSet by its objects that wait, each as KIND/NAME. The
// explanations of these objects are to follow.
func ExplainSet(f PreviewFacts, waiting []string) explain.Explanation {
	set := f.Set
	of := set.Name + " -n " + set.Namespace
	s := explain.Explanation{Object: "StatefulSet " + fullName(set.Namespace, set.Name), Unread: f.unread()}
	state := " has " + plural.Count(set.Replicas, "replica")
	if set.Terminating {
		state = " is being deleted"
	}
	s.Headline = s.Object + state + ", and nothing of it waits."
	if n := len(waiting); n > 0 {
		s.Headline = fmt.Sprintf("%s%s, and %s of it %s.", s.Object, state, plural.Count(n, "object"),
			plural.Verb(n, "waits", "wait"))
		s.WaitsFor = []string{strings.Join(waiting, ", ")}
		s.Advise("To explain them alone: kubectl reclaim explain %s -n %s", strings.Join(waiting, " "), set.Namespace)
	}
	s.AddFact("Retention", "%s", policyOf(set.Policy, set.Source))
	present := 0
	for _, pod := range f.Pods.Value {
		if pod.Namespace == set.Namespace && f.HasPod(pod.Name) {
			present++
		}
	}
	s.AddFact("Pods", "%d of %d", present, set.Replicas)
	s.AddFact("Claims", "%d", len(f.Claims.Value))
	if !set.Terminating && set.Replicas > 0 {
		s.Advise("To preview the effect of a scale-down on its claims: kubectl reclaim preview statefulset/%s "+
			"--replicas=%d", of,
			set.Replicas-1)
	}
	return s
}

// explainWithoutSet reports the mark of a claim that no readable set gives its name.
func explainWithoutSet(s *explain.Explanation, c Claim, f statefulset.Facts) {
	if c.Mark == (statefulset.Mark{}) {
		return
	}
	gone := "which is gone"
	switch f.SetSeen {
	case statefulset.Unknown:
		gone = "which could not be read"
	case statefulset.Found:
		gone = "whose templates do not give the claim its name"
	case statefulset.Absent:
	}
	s.AddFact("StatefulSet", "%s, %s", c.Mark.Set, gone)
	addMark(s, c)
}

func replicaWords(f statefulset.Facts) string {
	state := "in range"
	switch {
	case f.Set.Terminating:
		state = "the set is being deleted"
	case !f.Set.InRange(f.Ordinal):
		state = "scaled away"
	}
	replicas := plural.Count(f.Set.Replicas, "replica")
	if f.Set.Start > 0 {
		replicas += fmt.Sprintf(" from ordinal %d", f.Set.Start)
	}
	return fmt.Sprintf("ordinal %d, %s (the set has %s)", f.Ordinal, state, replicas)
}

func addMark(s *explain.Explanation, c Claim) {
	switch m := c.Mark; {
	case c.OwnMark():
		s.AddFact("Mark", "it had pod %s of the set with UID %s, and whenScaled was %s then",
			statefulset.Set{Name: m.Set}.PodName(m.Ordinal), m.UID, m.WhenScaled)
	case m != statefulset.Mark{}:
		s.AddFact("Mark", "the annotation %s was copied from another claim, with UID %s: the claim counts as never used by "+
			"a pod", statefulset.MarkAnnotation, m.Claim)
	case c.Marked:
		s.AddFact("Mark", "the annotation %s is not valid: the claim counts as never used by a pod",
			statefulset.MarkAnnotation)
	}
}

func addForecast(
	s *explain.Explanation, i *index, c Claim, name string, f statefulset.Forecast, facts statefulset.Facts,
) {
	text := f.Fate.String() + " (" + string(f.Reason) + ")"
	if f.Fate == statefulset.Deleted && f.Grace > 0 {
		text += ", after a grace period of " + duration.HumanDuration(f.Grace)
		if !facts.Set.GraceGiven {
			text += " (the default of volume-guard)"
		}
	}
	if f.Fate != f.Unattended {
		text += "; " + f.Unattended.String() + " if volume-guard does not run"
	}
	if (f.Fate == statefulset.Deleted || f.Unattended == statefulset.Deleted) && c.Volume != "" {
		text += ". Its volume then: " + string(i.facts.AfterClaim(c.Volume, c.UID).Fate)
	}
	s.AddFact(name, "%s", text)
}

// decision converts the engine's next step. The memory of a running volume-guard is not part of it.
func decision(i *index, e statefulset.Explanation) explain.Decision {
	d := explain.Decision{By: "volume-guard, controller statefulset-claims", Action: e.Decision.Action.String(),
		Reason: string(e.Decision.Reason), Text: e.Text}
	if e.Decision.Reason == statefulset.ReasonScaleDownGrace {
		d.Text += fmt.Sprintf(" The grace period is %s from when volume-guard has seen that; how much of it is left is not "+
			"visible from outside.", duration.HumanDuration(e.Decision.After))
	}
	runs, known := i.facts.GuardRuns()
	if waits := e.Decision.Action == statefulset.Wait && e.Decision.After == 0; !waits && known && !runs {
		d.Text += " This needs volume-guard to run: " + explain.NoGuard + "."
	}
	return d
}

// advise adds the actions open to a person, above all for a claim that is scaled away. podsRead reports whether the
// pods were read, without which any of them may use the claim.
func advise(s *explain.Explanation, c Claim, f statefulset.Facts, e statefulset.Explanation, podsRead bool) {
	of := c.Name + " -n " + c.Namespace
	switch reason := e.Decision.Reason; {
	case c.Hold && (reason == statefulset.ReasonRetained || reason == statefulset.ReasonNeverUsed):
		s.Advise("If the data is not needed, end the hold first: kubectl annotate pvc %s %s-", of,
			statefulset.HoldAnnotation)
	case reason == statefulset.ReasonPodRemains && f.Maintained():
		s.Advise("To keep the claim, before its pod is gone: kubectl patch statefulset %s -n %s -p "+
			`'{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Retain"}}}'`, f.Set.Name, c.Namespace)
	case reason == statefulset.ReasonScaleDownGrace, reason == statefulset.ReasonPodRemains:
		s.Advise("To keep the claim: kubectl annotate pvc %s %s=keep", of, statefulset.HoldAnnotation)
	case reason == statefulset.ReasonClaimHeld:
		s.Advise("To have it deleted: kubectl annotate pvc %s %s-", of, statefulset.HoldAnnotation)
	case reason == statefulset.ReasonRetained, reason == statefulset.ReasonNeverUsed:
		adviseOnRetained(s, f, podsRead, of)
	}
	if !c.Terminating && f.Set.InRange(f.Ordinal) {
		s.Advise("To preview the effect of a scale-down on all claims of the set: kubectl reclaim preview statefulset/%s "+
			"-n %s --replicas=%d", f.Set.Name, c.Namespace, max(0, f.Ordinal-f.Set.Start))
	}
}
