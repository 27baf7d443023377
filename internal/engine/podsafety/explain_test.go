package podsafety

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

// missingOf returns why one kind of evidence is missing.
func missingOf(e Explanation, evidence Reason) string {
	for _, m := range e.Missing {
		if m.Evidence == evidence {
			return m.Text
		}
	}
	return ""
}

func TestExplain(t *testing.T) {
	e := Explain(facts(live, node(down())), now())
	if !e.Waits || !e.NodeDown || e.Decision.Reason != ReasonNodeUnreachable ||
		!strings.HasPrefix(e.Text, ReasonNodeUnreachable.Sentence()) || !strings.Contains(e.Text, "node a.") {
		t.Errorf("%+v", e)
	}
	if len(e.Missing) != 5 || len(e.Risks) != 2 || !strings.Contains(e.Risks[1], "data-db-0") {
		t.Errorf("missing %+v, risks %q", e.Missing, e.Risks)
	}
	for name, f := range map[string]Facts{
		"a running pod": facts(pod(runs)), "a pod without hold": facts(pod(func(p *Pod) { p.Held = false })),
		"one with evidence": facts(pod(noGrace), live, node(outOfService())),
	} {
		if e := Explain(f, now()); e.Waits || e.Missing != nil || e.Risks != nil {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestExplainMissingEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		facts    Facts
		evidence Reason
		want     string
	}{
		"phase":   {facts(), ReasonFinished, "neither Succeeded nor Failed"},
		"running": {facts(pod(ended), pod(func(p *Pod) { p.Running = true })), ReasonFinished, "state running"},
		"generation": {facts(pod(ended), pod(func(p *Pod) { p.ObservedGeneration = 1 })), ReasonFinished,
			"seen the deletion"},
		"statuses":  {facts(pod(ended), pod(func(p *Pod) { p.Reported = false })), ReasonFinished, "no status"},
		"a refusal": {facts(pod(turnedDown)), ReasonFinished, "The kubelet refused the pod"},
		"no trace":  {facts(pod(ended), pod(func(p *Pod) { p.ObservedGeneration = 0 })), ReasonFinished, "was the kubelet"},
		"unmount":   {facts(pod(ended)), ReasonFinished, "has not removed the pod"},
		"a fence of volumes": {facts(pod(ended), storage(Storage{Fenced: true})), ReasonFinished,
			"keeps the node from volumes"},
		"grace": {facts(pod(ended), pod(noGrace)), ReasonFinished, "for a while"},
		"grace, for a time": {facts(pod(ended), pod(noGrace), finishedFor(time.Second, false)), ReasonFinished,
			"for 29s more"},
		"no node read": {facts(), ReasonNodeGone, "could not be read"},
		"a node":       {facts(live, node(down())), ReasonNodeGone, "exists"},
		"no lease": {facts(pod(unseen), live, node(objects.Node{})), ReasonNodeGone,
			"Lease of the node could not be read"},
		"a lease":      {facts(pod(unseen), live, node(objects.Node{}), lease("5", 0)), ReasonNodeGone, "40s"},
		"begun to end": {facts(live, node(objects.Node{}), lease("5", 0)), ReasonNodeGone, "was ending the pod"},
		"no taint":     {facts(live, node(down())), ReasonOutOfService, "does not have the taint"},
		"our taint": {facts(live, node(objects.Node{Found: true, OwnTaint: true})), ReasonOutOfService,
			"is from csi-reclaimer"},
		"a taint, Ready": {facts(live, node(objects.Node{Found: true, Ready: objects.ReadyTrue, OutOfService: true})),
			ReasonOutOfService, "not known to be down"},
		"no node to taint":      {facts(live, node(objects.Node{})), ReasonOutOfService, "does not exist"},
		"no node read to taint": {facts(), ReasonOutOfService, "could not be read"},
		"no fence read":         {facts(), ReasonNodeFenced, "NodeFence could not be read"},
		"no fence":              {facts(live, node(down()), fence(objects.Fence{})), ReasonNodeFenced, "No fence"},
		"a fence of long ago": {facts(live, node(down()), fence(objects.Fence{Coverage: v1alpha1.CoversUntilUnfenced})),
			ReasonNodeFenced, "No fence"},
		"the node is Ready": {facts(live, node(ready()),
			fence(off("boot"))),
			ReasonNodeFenced, "not known to be down"},
		"it was powered on": {facts(live, node(down()),
			fence(off("boot-0"))), ReasonNodeFenced,
			"the node was powered on since"},
		"of volumes": {facts(live, node(down()), fence(objects.Fence{InForce: true, Coverage: v1alpha1.CoversVolumes})),
			ReasonNodeFenced, "from volumes"},
		"rebooted": {facts(live, node(down()), fence(objects.Fence{InForce: true, Coverage: v1alpha1.CoversReboot})),
			ReasonNodeFenced, "rebooted before"},
		"uncovered": {facts(live, node(down()), fence(objects.Fence{InForce: true})),
			ReasonNodeFenced, "not known"},
		"no confirmation":     {facts(), ReasonConfirmed, "No force deletion"},
		"another":             {facts(pod(confirmedOther)), ReasonConfirmed, "UID of this pod"},
		"confirmed too early": {facts(pod(confirmed)), ReasonConfirmed, "grace period"},
	} {
		if got := missingOf(Explain(c.facts, now()), c.evidence); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q in it", name, got, c.want)
		}
	}
}

func TestExplainRisks(t *testing.T) {
	for name, c := range map[string]struct {
		facts Facts
		want  string
	}{
		"not read":     {facts(), "is not known"},
		"Ready":        {facts(live, node(ready())), "is Ready"},
		"not Ready":    {facts(live, node(down())), "not Ready"},
		"gone":         {facts(live, node(objects.Node{})), "was deleted"},
		"has finished": {facts(pod(ended)), "have ended"},
	} {
		if got := Explain(c.facts, now()).Risks; len(got) != 2 || !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := Explain(facts(pod(func(p *Pod) { p.Claims = nil })), now()).Risks; len(got) != 1 {
		t.Errorf("no claims: %q", got)
	}
}

func TestExplainNodeDown(t *testing.T) {
	for name, c := range map[string]struct {
		facts Facts
		want  bool
	}{
		"Ready":                     {facts(live, node(ready())), false},
		"not Ready":                 {facts(live, node(down())), true},
		"gone":                      {facts(live, node(objects.Node{})), true},
		"none":                      {facts(live, node(objects.Node{}), pod(unbound)), false},
		"not Ready, from the watch": {facts(seen(objects.NodeNotReady)), true},
		"gone, from the watch":      {facts(seen(objects.NodeAbsent)), true},
		"not known":                 {facts(seen(objects.NodeUnseen)), false},
	} {
		if got := Explain(c.facts, now()).NodeDown; got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestReasons(t *testing.T) {
	sessiontest.Reasons(t, Reasons(), 1)
	evidence := 0
	for _, r := range Reasons() {
		if Evidence(r) {
			evidence++
		}
	}
	if evidence != 7 {
		t.Errorf("%d kinds of evidence, want 7", evidence)
	}
	if d := facts().Detail(ReasonGracePeriodRunning); !strings.Contains(d, "kubectl delete pod -n ns db-0 --force") {
		t.Errorf("%q", d)
	}
}
