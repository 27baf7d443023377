package agents

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

func (b *bench) remediation(template string) v1alpha1.Agent {
	return v1alpha1.Agent{Name: "medik8s", Remediation: &v1alpha1.RemediationAgent{APIVersion: remediationVersion,
		Kind: "RemediationTemplate", Namespace: b.namespace, Name: template}}
}

// remedy creates a template, and returns its agent.
func (b *bench) remedy() v1alpha1.Agent {
	b.Helper()
	b.create(remediationVersion, "RemediationTemplate", "reboot", map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"agent": "fence_ipmilan"}}}})
	return b.remediation("reboot")
}

func (b *bench) theRemediation() *unstructured.Unstructured {
	b.Helper()
	return b.get(remediationVersion, "Remediation", b.node)
}

// answers sets conditions of the custom resource, as medik8s does.
func (b *bench) answers(conditions ...any) {
	b.Helper()
	b.update(remediationVersion, "Remediation", b.node, func(o *unstructured.Unstructured) {
		o.Object["status"] = map[string]any{"conditions": conditions}
	})
}

func answer(kind, status string) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": "Why", "message": "words"}
}

func remediationIsStartedOnce(b *bench) {
	ask := b.ask(b.remedy())
	b.state(ask, fencing.RunAbsent, "")
	b.must(b.Stop(b.Context(), ask))
	b.must(b.Start(b.Context(), ask))
	first := b.theRemediation()
	b.must(b.Start(b.Context(), ask))
	o := b.theRemediation()
	if o.GetUID() != first.GetUID() || text(o, "spec", "agent") != "fence_ipmilan" || o.GetNamespace() != b.namespace ||
		o.GetLabels()[FenceLabel] != string(b.fence) || o.GetLabels()[kube.NoBackup] != "true" ||
		o.GetAnnotations()[nodeAnnotation] != b.node ||
		o.GetAnnotations()[attemptAnnotation] != "1" {
		b.Errorf("%+v", o.Object)
	}
	if refs := o.GetOwnerReferences(); len(refs) != 1 || refs[0].UID != b.fence || refs[0].Name != b.node {
		b.Errorf("%+v", refs)
	}
	b.state(ask, fencing.Running, "Remediation "+b.namespace+"/"+b.node+" is at work.")
	b.answers(answer("Processing", "True"), answer("Succeeded", "Unknown"))
	b.state(ask, fencing.Running, "is at work. words")
	b.answers(answer("Processing", "False"), answer("Succeeded", "False"))
	b.state(ask, fencing.RunFailed, "has failed: words")
	b.answers(answer("Processing", "True"), answer("FenceAgentActionSucceeded", "True"))
	b.state(ask, fencing.Running, "is at work.")
	b.answers("garbage", answer("Processing", "False"), answer("Succeeded", "True"))
	b.state(ask, fencing.RunSucceeded, "has succeeded. words")
}

// The custom resource shows how its remediator removes pods, even if its template leaves that to the default of the
// kind, which the API server fills in.
func TestRemovalIsReadFromCustomResource(t *testing.T) {
	for strategy, want := range map[string]fencing.Removal{
		"OutOfServiceTaint": fencing.RemovalTaints, "ResourceDeletion": fencing.RemovalDeletes,
		"": fencing.RemovalDeletes, "New": fencing.RemovalUnknown,
	} {
		b := newBench(t)
		b.create(farVersion, farKind+"Template", "ipmi", map[string]any{"spec": map[string]any{"template": map[string]any{
			"spec": map[string]any{"remediationStrategy": strategy}}}})
		agent := b.remediation("ipmi")
		agent.Remediation.APIVersion, agent.Remediation.Kind = farVersion, farKind+"Template"
		b.must(b.Start(t.Context(), b.ask(agent)))
		if got := b.state(b.ask(agent), fencing.Running, "is at work."); got.Removal != want {
			t.Errorf("%q: %d, want %d", strategy, got.Removal, want)
		}
	}
	b := newBench(t)
	agent := b.remedy()
	b.must(b.Start(t.Context(), b.ask(agent)))
	if got := b.state(b.ask(agent), fencing.Running, "is at work."); got.Removal != fencing.RemovalUnknown {
		t.Errorf("a remediator of another kind: %d", got.Removal)
	}
}

// The status of an earlier attempt's custom resource does not count, because pods deleted since then are not covered.
func eachAttemptHasItsOwnRemediation(b *bench) {
	agent := b.remedy()
	b.must(b.Start(b.Context(), b.ask(agent)))
	b.answers(answer("Succeeded", "True"))
	finalize(b, "example.com/busy")
	next := b.ask(agent, second)
	b.state(next, fencing.RunAbsent, "is to be deleted.")
	b.must(b.Start(b.Context(), next))
	if o := b.theRemediation(); o != nil && o.GetDeletionTimestamp() != nil { // the cluster in memory keeps nothing
		b.state(next, fencing.RunStopping, "is terminating.")
		b.must(b.Start(b.Context(), next))
		b.state(next, fencing.RunStopping, "is terminating.")
		finalize(b)
	}
	b.state(next, fencing.RunAbsent, "")
	b.must(b.Start(b.Context(), next))
	if o := b.theRemediation(); o.GetAnnotations()[attemptAnnotation] != "2" {
		b.Errorf("%+v", o.Object)
	}
	b.state(next, fencing.Running, "is at work.")
}

// finalize replaces the finalizers of the custom resource.
func finalize(b *bench, finalizers ...string) {
	b.Helper()
	b.update(remediationVersion, "Remediation", b.node, func(o *unstructured.Unstructured) { o.SetFinalizers(finalizers) })
}

func remediationIsUndoneByDeletion(b *bench) {
	agent := b.remedy()
	ask, back := b.ask(agent), b.ask(agent, undo)
	b.must(b.Start(b.Context(), ask))
	b.state(back, fencing.RunAbsent, "is to be deleted.")
	b.must(b.Start(b.Context(), back))
	b.state(back, fencing.RunSucceeded, "is gone.")
	b.must(b.Start(b.Context(), back))
	b.state(ask, fencing.RunAbsent, "")
}

func TestRemediationIsStopped(t *testing.T) {
	b := newBench(t)
	ask := b.ask(b.remedy())
	b.must(b.Start(t.Context(), ask))
	b.update(remediationVersion, "Remediation", b.node, func(o *unstructured.Unstructured) { o.SetUID("this one") })
	b.must(b.Stop(t.Context(), ask))
	if options := b.deletions(); b.theRemediation() != nil || len(options) != 1 ||
		*options[0].Preconditions.UID != "this one" {
		t.Errorf("%+v", options)
	}
	b.state(ask, fencing.RunAbsent, "")
}

func TestTerminatingRemediationIsStopping(t *testing.T) {
	b := newBench(t)
	agent := b.remedy()
	b.must(b.Start(t.Context(), b.ask(agent)))
	b.answers(answer("Succeeded", "True"))
	b.update(remediationVersion, "Remediation", b.node, func(o *unstructured.Unstructured) {
		at := metav1.Now()
		o.SetDeletionTimestamp(&at)
		o.SetFinalizers([]string{"example.com/busy"})
	})
	b.state(b.ask(agent), fencing.RunStopping, "is terminating.")
	b.state(b.ask(agent, undo), fencing.RunStopping, "is terminating.")
}

// The custom resource of a node health check has the same name.
func foreignRemediationIsLeftAlone(b *bench) {
	agent := b.remedy()
	b.create(remediationVersion, "Remediation", b.node, map[string]any{"spec": map[string]any{},
		"status": map[string]any{"conditions": []any{answer("Succeeded", "True")}}})
	b.state(b.ask(agent), fencing.RunUnknown, "it was not created for this NodeFence")
	b.must(b.Start(b.Context(), b.ask(agent)))
	b.must(b.Stop(b.Context(), b.ask(agent)))
	b.state(b.ask(agent, undo), fencing.RunSucceeded, "is gone.")
	b.must(b.Start(b.Context(), b.ask(agent, undo)))
	if o := b.theRemediation(); o == nil || o.GetLabels()[FenceLabel] != "" || o.GetDeletionTimestamp() != nil {
		b.Errorf("%+v", o)
	}
}

func TestRemediationErrors(t *testing.T) {
	b := newBench(t)
	b.fails(b.Start(t.Context(), b.ask(b.remediation("none"))), "read RemediationTemplate fencing/none")
	b.create(remediationVersion, "RemediationTemplate", "empty", map[string]any{"spec": map[string]any{}})
	b.fails(b.Start(t.Context(), b.ask(b.remediation("empty"))), "fencing/empty: it has no spec.template.spec")
	b.create(remediationVersion, "RemediationTemplate", "garbage", map[string]any{"spec": map[string]any{"template": "x"}})
	b.fails(b.Start(t.Context(), b.ask(b.remediation("garbage"))), "RemediationTemplate fencing/garbage: .spec")

	for missing, words := range map[string]string{
		"RemediationTemplate": "find kind RemediationTemplate", "Remediation": "find kind Remediation of",
	} {
		b.mapper = without(missing)
		b.fails(b.Start(t.Context(), b.ask(b.remediation("none"))), words)
	}
	b.mapper = without("")

	ask := b.ask(b.remediation("none"))
	ask.Agent.Remediation.APIVersion = "not/a/version"
	b.state(ask, fencing.RunUnknown, `read agent "medik8s" of NodeFence "node-1": unexpected GroupVersion`)
	b.fails(b.Start(t.Context(), ask), `start agent "medik8s"`)
	b.fails(b.Stop(t.Context(), ask), `stop agent "medik8s"`)

	ask = b.ask(b.remedy())
	b.must(b.Start(t.Context(), ask))
	b.fail("delete", "remediations")
	b.fails(b.Stop(t.Context(), ask), "delete Remediation fencing/node-1")
	b.fails(b.Start(t.Context(), b.ask(ask.Agent, undo)), "delete Remediation fencing/node-1")
	b.fails(b.Start(t.Context(), b.ask(ask.Agent, second)), "delete Remediation fencing/node-1")
	b.fail("get", "remediations")
	b.state(ask, fencing.RunUnknown, "read Remediation node-1")
	b.fails(b.Start(t.Context(), ask), "read Remediation node-1")
	b.fails(b.Stop(t.Context(), ask), "read Remediation node-1")
}

func TestRemediationCreateError(t *testing.T) {
	b := newBench(t)
	ask := b.ask(b.remedy())
	b.fail("create", "remediations")
	b.fails(b.Start(t.Context(), ask), "create Remediation fencing/node-1")
}
