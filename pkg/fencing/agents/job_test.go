package agents

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

func (b *bench) job(name string) v1alpha1.Agent {
	return v1alpha1.Agent{Name: name, Job: &v1alpha1.JobAgent{Namespace: b.namespace, PodTemplateName: name, Undo: true}}
}

// template creates a PodTemplate.
func (b *bench) template(name string, alter func(*v1.PodSpec)) {
	b.Helper()
	o := &v1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}, Template: v1.PodTemplateSpec{
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "fence", Image: "none"}}}}}
	alter(&o.Template.Spec)
	_, err := b.clients.CoreV1().PodTemplates(b.namespace).Create(b.Context(), o, metav1.CreateOptions{})
	b.must(err)
}

// theJobs returns all Jobs.
func (b *bench) theJobs() []batchv1.Job {
	b.Helper()
	list, err := b.clients.BatchV1().Jobs(b.namespace).List(b.Context(), metav1.ListOptions{})
	b.must(err)
	return list.Items
}

// says sets the status of a Job.
func (b *bench) says(o batchv1.Job, conditions ...batchv1.JobCondition) {
	b.Helper()
	// The API server refuses another start of a Job that runs.
	start := o.Status.StartTime
	if start == nil {
		at := metav1.NewTime(time.Now().Add(-time.Second))
		start = &at
	}
	o.Status = batchv1.JobStatus{StartTime: start, Conditions: conditions}
	for _, c := range conditions {
		if c.Type == batchv1.JobComplete && c.Status == v1.ConditionTrue {
			end := metav1.Now()
			o.Status.CompletionTime = &end
		}
	}
	_, err := b.clients.BatchV1().Jobs(b.namespace).UpdateStatus(b.Context(), &o, metav1.UpdateOptions{})
	b.must(err)
}

func saying(kind batchv1.JobConditionType, status v1.ConditionStatus) batchv1.JobCondition {
	return batchv1.JobCondition{Type: kind, Status: status, Reason: "Why", Message: "words",
		LastTransitionTime: metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))}
}

func jobIsStartedOnceAndStopped(b *bench) {
	ask := b.ask(b.job("power"))
	b.state(ask, fencing.RunAbsent, "")
	b.must(b.Stop(b.Context(), ask))
	b.must(b.Start(b.Context(), ask))
	b.must(b.Start(b.Context(), ask))
	all := b.theJobs()
	if len(all) != 1 {
		b.Fatalf("%d Jobs", len(all))
	}
	b.state(ask, fencing.Running, "Job "+b.namespace+"/"+all[0].Name+" runs.")
	b.state(b.ask(b.job("power"), second), fencing.RunAbsent, "")
	b.state(b.ask(b.job("power"), undo), fencing.RunAbsent, "")
	b.must(b.Start(b.Context(), b.ask(b.job("power"), undo)))
	b.must(b.Stop(b.Context(), b.ask(b.job("power"), second)))
	if all := b.theJobs(); len(all) != 2 || !slices.ContainsFunc(all, func(o batchv1.Job) bool {
		return strings.HasPrefix(o.Name, "unfence-")
	}) {
		b.Fatalf("%d Jobs", len(all))
	}
	b.must(b.Stop(b.Context(), ask))
	for _, o := range b.theJobs() {
		if strings.HasPrefix(o.Name, "fence-") && o.DeletionTimestamp == nil {
			b.Error("the Job is not stopped")
		}
	}
}

func nextUndoDoesNotWaitForPrevious(b *bench) {
	b.must(b.Start(b.Context(), b.ask(b.job("power"), undo)))
	first := b.theJobs()[0]
	first.Finalizers = []string{"example.com/pods-on-a-lost-node"}
	_, err := b.clients.BatchV1().Jobs(b.namespace).Update(b.Context(), &first, metav1.UpdateOptions{})
	b.must(err)
	b.state(b.ask(b.job("power"), again), fencing.RunAbsent, "")
	b.must(b.Start(b.Context(), b.ask(b.job("power"), again)))
	b.must(b.Start(b.Context(), b.ask(b.job("power"), again)))
	b.state(b.ask(b.job("power"), again), fencing.Running, "runs.")
	for _, o := range b.theJobs() {
		if o.Name == first.Name && o.DeletionTimestamp == nil {
			b.Error("the Job of the try before is not deleted")
		}
	}
}

func jobStates(b *bench) {
	ask := b.ask(b.job("power"))
	b.must(b.Start(b.Context(), ask))
	job := func() batchv1.Job { return b.theJobs()[0] }
	b.says(job(), saying(batchv1.JobSuspended, v1.ConditionTrue))
	b.state(ask, fencing.Running, "runs.")
	b.says(job(), saying(batchv1.JobSuspended, v1.ConditionFalse), saying(batchv1.JobFailureTarget, v1.ConditionTrue))
	b.state(ask, fencing.Running, "runs.")
	b.says(job(), saying(batchv1.JobFailureTarget, v1.ConditionTrue), saying(batchv1.JobFailed, v1.ConditionTrue))
	if got := b.state(ask, fencing.RunFailed, "has failed: Why: words"); !got.EndedAt.Equal(
		time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)) {
		b.Errorf("it failed at %s", got.EndedAt)
	}

	ask = b.ask(b.job("power"), second)
	b.must(b.Start(b.Context(), ask))
	for _, o := range b.theJobs() {
		if o.Annotations[attemptAnnotation] == "2" {
			b.says(o, saying(batchv1.JobSuccessCriteriaMet, v1.ConditionTrue), saying(batchv1.JobComplete, v1.ConditionTrue))
		}
	}
	b.state(ask, fencing.RunSucceeded, "is complete.")
}

func TestFalseJobConditionsAreIgnored(t *testing.T) {
	b := newBench(t)
	ask := b.ask(b.job("power"))
	b.must(b.Start(t.Context(), ask))
	b.says(b.theJobs()[0], saying(batchv1.JobComplete, v1.ConditionFalse), saying(batchv1.JobFailed, v1.ConditionUnknown))
	b.state(ask, fencing.Running, "runs.")
}

func TestTerminatingJobIsStopping(t *testing.T) {
	b := newBench(t)
	ask := b.ask(b.job("power"))
	b.must(b.Start(t.Context(), ask))
	o := b.theJobs()[0]
	at := metav1.Now()
	o.DeletionTimestamp, o.Finalizers = &at, []string{metav1.FinalizerDeleteDependents}
	_, err := b.clients.BatchV1().Jobs(b.namespace).Update(t.Context(), &o, metav1.UpdateOptions{})
	b.must(err)
	b.state(ask, fencing.RunStopping, "is terminating.")
	b.must(b.Stop(t.Context(), ask))
	options := b.deletions()
	if len(options) != 1 || *options[0].PropagationPolicy != metav1.DeletePropagationForeground ||
		*options[0].Preconditions.UID != o.UID {
		t.Errorf("%+v", options)
	}
}

// A Job with this name belongs to another owner.
func foreignJobIsLeftAlone(b *bench) {
	ask := b.ask(b.job("power"))
	job := jobOf(ask, v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "none"}}}},
		&v1.Node{})
	job.Labels[FenceLabel] = "another"
	_, err := b.clients.BatchV1().Jobs(b.namespace).Create(b.Context(), job, metav1.CreateOptions{})
	b.must(err)
	b.state(ask, fencing.RunUnknown, "it was not created for this NodeFence")
	b.must(b.Start(b.Context(), ask))
	b.state(ask, fencing.RunUnknown, job.Name)
	b.must(b.Stop(b.Context(), ask))
	if all := b.theJobs(); len(all) != 1 || all[0].DeletionTimestamp != nil {
		b.Errorf("%+v", all)
	}
}

func TestJobErrors(t *testing.T) {
	b := newBench(t)
	b.fails(b.Start(t.Context(), b.ask(b.job("none"))), "read PodTemplate fencing/none")
	ask := b.ask(b.job("power"))
	b.must(b.Start(t.Context(), ask))
	b.must(b.Start(t.Context(), b.ask(b.job("power"), undo)))
	b.fail("delete", "jobs")
	b.fails(b.Stop(t.Context(), ask), "delete Job fencing/fence-")
	b.fails(b.Start(t.Context(), b.ask(b.job("power"), again)), "delete Job fencing/unfence-")
	b.fail("create", "jobs")
	b.fails(b.Start(t.Context(), ask), "create Job fencing/fence-")
	b.fail("get", "nodes")
	b.fails(b.Start(t.Context(), ask), `read node "node-1"`)
	b.fail("get", "jobs")
	b.state(ask, fencing.RunUnknown, `read agent "power"`)
	b.state(ask, fencing.RunUnknown, "read Job fencing/fence-")
	b.fails(b.Stop(t.Context(), ask), "read Job fencing/fence-")
}

// The Job has the variables that its program needs, and its pods avoid the node that it fences.
func TestJobSpec(t *testing.T) {
	b := newBench(t)
	term := func(key string) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key,
			Operator: v1.NodeSelectorOpExists}}}
	}
	b.template("own", func(s *v1.PodSpec) {
		s.RestartPolicy = v1.RestartPolicyOnFailure
		s.InitContainers = []v1.Container{{Name: "init", Image: "none", Env: []v1.EnvVar{{Name: "MINE", Value: "1"}}}}
		s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{term("a"), term("b")}}}}
	})
	b.template("always", func(s *v1.PodSpec) {
		s.RestartPolicy, s.Affinity = v1.RestartPolicyAlways, &v1.Affinity{PodAffinity: &v1.PodAffinity{}}
	})
	for name, want := range map[string]v1.RestartPolicy{
		"power": v1.RestartPolicyNever, "always": v1.RestartPolicyNever, "own": v1.RestartPolicyOnFailure,
	} {
		t.Run(name, func(t *testing.T) {
			ask := b.ask(b.job(name),
				func(a *fencing.Ask) { a.UID = "of-" + a.UID; a.Agent.Timeout.Duration = 90 * time.Second })
			b.must(b.Start(t.Context(), ask))
			o, err := jobs{b.clients}.get(t.Context(), ask)
			b.must(err)
			b.must(b.clients.BatchV1().Jobs(b.namespace).Delete(t.Context(), o.Name, metav1.DeleteOptions{}))
			if *o.Spec.ActiveDeadlineSeconds != 90 || *o.Spec.BackoffLimit != 2 || *o.Spec.TTLSecondsAfterFinished != 86400 ||
				o.Spec.Template.Spec.RestartPolicy != want {
				t.Errorf("%+v", o.Spec)
			}
			if o.Labels[kube.NoBackup] != "true" || o.Labels[FenceLabel] != "of-fence-uid" ||
				o.Annotations[nodeAnnotation] != "node-1" ||
				o.Annotations[attemptAnnotation] != "1" {
				t.Errorf("%+v", o.ObjectMeta)
			}
			if refs := o.OwnerReferences; len(refs) != 1 || refs[0].UID != "of-fence-uid" || refs[0].Name != "node-1" ||
				refs[0].Kind != "NodeFence" || refs[0].APIVersion != "csi-reclaimer.io/v1alpha1" || refs[0].Controller != nil {
				t.Errorf("%+v", refs)
			}
			checkAffinity(t, o.Spec.Template.Spec.Affinity, name == "own")
			for _, c := range append(o.Spec.Template.Spec.InitContainers, o.Spec.Template.Spec.Containers...) {
				checkEnv(t, c, "fence")
			}
		})
	}
	template, err := b.clients.CoreV1().PodTemplates(b.namespace).Get(t.Context(), "own", metav1.GetOptions{})
	b.must(err)
	job := jobOf(b.ask(b.job("own"), undo), template.Template, &v1.Node{})
	checkEnv(t, job.Spec.Template.Spec.Containers[0], "unfence", "FENCE_NODE_UID", "FENCE_NODE_PROVIDER_ID")
	if len(template.Template.Spec.Containers[0].Env) != 0 || len(template.Template.Spec.InitContainers[0].Env) != 1 {
		t.Error("the template was changed")
	}
}

func checkAffinity(t *testing.T, a *v1.Affinity, own bool) {
	t.Helper()
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if want := map[bool]int{true: 2, false: 1}[own]; len(terms) != want {
		t.Errorf("%d terms", len(terms))
	}
	for _, term := range terms {
		if f := term.MatchFields; len(f) != 1 || f[0].Key != "metadata.name" || f[0].Operator != v1.NodeSelectorOpNotIn ||
			!slices.Equal(f[0].Values, []string{"node-1"}) || own != (len(term.MatchExpressions) == 1) {
			t.Errorf("%+v", term)
		}
	}
}

// checkEnv checks the variables of a container. The names in empty belong to a node that does not exist.
func checkEnv(t *testing.T, c v1.Container, action string, empty ...string) {
	t.Helper()
	want := map[string]string{"FENCE_ACTION": action, "FENCE_NODE": "node-1", "FENCE_NODE_UID": "",
		"FENCE_NODE_PROVIDER_ID": "cloud://1", "FENCE_ATTEMPT": "1"}
	for _, name := range empty {
		want[name] = ""
	}
	for _, e := range c.Env {
		if e.Name == "MINE" {
			continue
		}
		if value, found := want[e.Name]; !found || e.Value != value {
			t.Errorf("%s: %s is %q, want %q", c.Name, e.Name, e.Value, value)
		}
		delete(want, e.Name)
	}
	if len(want) != 0 {
		t.Errorf("%s lacks %v", c.Name, want)
	}
}

// A node without a Node can be fenced, because its machine may run.
func TestJobForDeletedNode(t *testing.T) {
	b := newBench(t)
	b.must(b.clients.CoreV1().Nodes().Delete(t.Context(), b.node, metav1.DeleteOptions{}))
	b.must(b.Start(t.Context(), b.ask(b.job("power"))))
	checkEnv(t, b.theJobs()[0].Spec.Template.Spec.Containers[0], "fence", "FENCE_NODE_PROVIDER_ID")
}
