package statefulset

import (
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

func TestExplain(t *testing.T) {
	for name, c := range map[string]struct {
		facts           Facts
		decision        Decision
		scaled, deleted Fate
		text            string
	}{
		"a replica that runs": {
			ofPolicy(Policy{WhenScaled: Delete}, SourceField), wait(ReasonInUse), Deleted, Kept, "A pod of the StatefulSet"},
		"a replica by the annotation": {
			ofPolicy(Policy{Delete, Delete}, SourceAnnotation), wait(ReasonInUse), Deleted, Deleted, "A pod of the StatefulSet"},
		"a replica that is scaled away": {
			facts(scaledDown, podAbsent), Decision{Reason: ReasonScaleDownGrace, After: DefaultGrace}, Deleted, Kept,
			"It is ordinal 1 of StatefulSet db, which has the ordinal 0."},
		"one of many": {
			facts(scaledDown, podAbsent, func(f *Facts) { f.Set.Start, f.Set.Replicas = 2, 3 }),
			Decision{Reason: ReasonScaleDownGrace, After: DefaultGrace}, Deleted, Kept, "which has the ordinals 2 to 4."},
		"of a set without replicas": {
			facts(podAbsent, func(f *Facts) { f.Set.Replicas = 0 }),
			Decision{Reason: ReasonScaleDownGrace, After: DefaultGrace}, Deleted, Kept, "which has no replicas."},
		"another pod uses it": {
			facts(scaledDown, podAbsent, otherPod), wait(ReasonUsedByOtherPod), Deleted, Kept, "It is pod backup."},
		"another owner": {
			facts(scaledDown, podAbsent, owned(controlling(setRef("set")), foreignRef())), wait(ReasonOtherOwner), Kept, Kept,
			"It is ConfigMap app."},
		"a wrong annotation": {
			facts(scaledDown, podAbsent, invalid), wait(ReasonInvalidPolicy), Kept, Kept, "wrong"},
	} {
		e := Explain(c.facts, now())
		if e.Decision != c.decision || e.Scaled.Fate != c.scaled || e.Deleted.Fate != c.deleted {
			t.Errorf("%s: %+v, scaled %s (%s), deleted %s (%s)", name, e.Decision, e.Scaled.Fate, e.Scaled.Reason,
				e.Deleted.Fate, e.Deleted.Reason)
		}
		if !strings.HasPrefix(e.Text, c.decision.Reason.Sentence()) || !strings.Contains(e.Text, c.text) {
			t.Errorf("%s: %s", name, e.Text)
		}
		if e.Set != "db" || e.Policy != c.facts.Set.Policy || e.Source != c.facts.Set.Source {
			t.Errorf("%s: set %q, %s from %s", name, e.Set, e.Policy, e.Source)
		}
	}
	e := Explain(facts(setAbsent), now())
	if e.Set != "" || e.Scaled != (Forecast{}) || e.Deleted != (Forecast{}) || e.Decision.Reason != ReasonSetGone {
		t.Errorf("without a set: %+v", e)
	}
}

func TestReasons(t *testing.T) {
	sessiontest.Reasons(t, Reasons(), 1)
	if ReasonScaledDown.EventType() != "Normal" || ReasonNamesCollide.EventType() != "Warning" || ReasonInUse.Waits() {
		t.Error("the table is another one")
	}
}
