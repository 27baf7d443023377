package agents

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// jobs are the agents that run as Jobs, whose names derive from the run.
type jobs struct{ clients kubernetes.Interface }

func (j jobs) read(ctx context.Context, ask fencing.Ask) (fencing.RunFacts, error) {
	o, err := j.get(ctx, ask)
	switch {
	case err != nil:
		return unknown, err
	case o == nil:
		return notStarted, nil
	case !owns(ask, o):
		return unknown, fmt.Errorf("job %s/%s: %w", o.Namespace, o.Name, errForeign)
	}
	about := "Job " + o.Namespace + "/" + o.Name
	for _, c := range o.Status.Conditions {
		switch {
		case c.Status != v1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return facts(fencing.RunSucceeded, about+" is complete.")
		case c.Type == batchv1.JobFailed:
			return fencing.RunFacts{State: fencing.RunFailed, Message: about + " has failed: " + c.Reason + ": " + c.Message,
				EndedAt: c.LastTransitionTime.Time}, nil
		}
	}
	if o.DeletionTimestamp != nil {
		return facts(fencing.RunStopping, about+" is terminating.")
	}
	return facts(fencing.Running, about+" runs.")
}

// name returns the name of the Job of a run. The first undo keeps the name from versions that had one Job for all
// tries.
func (jobs) name(ask fencing.Ask) string {
	if ask.Run.Try > 1 {
		return hashed(action(ask), ask, fmt.Sprintf("%d/%d", ask.Run.Attempt, ask.Run.Try))
	}
	return hashed(action(ask), ask, ask.Run.Attempt)
}

// get reads the Job of a run. It returns nil with an error, and nil without an error if the Job does not exist.
func (j jobs) get(ctx context.Context, ask fencing.Ask) (*batchv1.Job, error) {
	name := j.name(ask)
	o, err := j.clients.BatchV1().Jobs(ask.Agent.Job.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case kube.Absent(err, batchv1.Resource("jobs"), name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read Job %s/%s: %w", ask.Agent.Job.Namespace, name, err)
	}
	return o, nil
}

// start creates the Job, whose pods run on any node except the fenced one. The Job of the previous try is deleted
// without waiting, because its pod may be on a lost node.
func (j jobs) start(ctx context.Context, ask fencing.Ask) error {
	of := ask.Agent.Job
	if before := ask; ask.Run.Try > 1 {
		before.Run.Try--
		if err := j.stop(ctx, before); err != nil {
			return err
		}
	}
	template, err := j.clients.CoreV1().PodTemplates(of.Namespace).Get(ctx, of.PodTemplateName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read PodTemplate %s/%s: %w", of.Namespace, of.PodTemplateName, err)
	}
	node, err := j.clients.CoreV1().Nodes().Get(ctx, ask.Node, metav1.GetOptions{})
	switch {
	case kube.Absent(err, v1.Resource("nodes"), ask.Node):
		node = &v1.Node{}
	case err != nil:
		return fmt.Errorf("read node %q: %w", ask.Node, err)
	}
	job := jobOf(ask, template.Template, node)
	_, err = j.clients.BatchV1().Jobs(of.Namespace).Create(ctx, job, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return nil
}

// keepJobs is the time in seconds for which an ended Job is kept for its log.
const keepJobs = 24 * 60 * 60

// jobOf returns the Job of a run, with pods of this template.
func jobOf(ask fencing.Ask, template v1.PodTemplateSpec, node *v1.Node) *batchv1.Job {
	template = *template.DeepCopy()
	seconds, keep, retries := int64(ask.Agent.Timeout.Seconds()), int32(keepJobs), int32(2)
	spec := &template.Spec
	if spec.RestartPolicy == "" || spec.RestartPolicy == v1.RestartPolicyAlways {
		spec.RestartPolicy = v1.RestartPolicyNever
	}
	avoid(spec, ask.Node)
	variables := []v1.EnvVar{
		{Name: "FENCE_ACTION", Value: action(ask)}, {Name: "FENCE_NODE", Value: ask.Node},
		{Name: "FENCE_NODE_UID", Value: string(node.UID)}, {Name: "FENCE_NODE_PROVIDER_ID", Value: node.Spec.ProviderID},
		{Name: "FENCE_ATTEMPT", Value: attempt(ask)},
	}
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].Env = append(containers[i].Env, variables...)
		}
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: jobs{}.name(ask), Namespace: ask.Agent.Job.Namespace, Labels: labelsOf(ask),
			Annotations: annotationsOf(ask), OwnerReferences: []metav1.OwnerReference{owner(ask)}},
		Spec: batchv1.JobSpec{Template: template, ActiveDeadlineSeconds: &seconds, BackoffLimit: &retries,
			TTLSecondsAfterFinished: &keep},
	}
}

// avoid keeps pods off a node, which the scheduler may still consider healthy.
func avoid(spec *v1.PodSpec, node string) {
	if spec.Affinity == nil {
		spec.Affinity = &v1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &v1.NodeAffinity{}
	}
	required := &spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{}}}
	}
	for i := range (*required).NodeSelectorTerms {
		term := &(*required).NodeSelectorTerms[i]
		term.MatchFields = append(term.MatchFields, v1.NodeSelectorRequirement{
			Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpNotIn, Values: []string{node}})
	}
}

// stop deletes the Job once its pods have ended.
func (j jobs) stop(ctx context.Context, ask fencing.Ask) error {
	o, err := j.get(ctx, ask)
	if o == nil || !owns(ask, o) {
		return err
	}
	options, policy := only(o), metav1.DeletePropagationForeground
	options.PropagationPolicy = &policy
	err = j.clients.BatchV1().Jobs(o.Namespace).Delete(ctx, o.Name, options)
	if err != nil && !kube.Absent(err, batchv1.Resource("jobs"), o.Name) {
		return fmt.Errorf("delete Job %s/%s: %w", o.Namespace, o.Name, err)
	}
	return nil
}
