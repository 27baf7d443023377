package agents

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

// remediations are agents that are custom resources of a remediation template. medik8s has these kinds:
// self-node-remediation, fence-agents-remediation and machine-deletion-remediation.
//
// The custom resource has the node's name, by which remediators find the node. All attempts of a fence therefore use
// the same name, and the status of the resource counts only for the attempt that has created it.
type remediations struct{ *Runner }

// find reads the custom resource of the fence, which is nil if it does not exist.
func (a remediations) find(ctx context.Context, ask fencing.Ask) (custom, *unstructured.Unstructured, error) {
	of := ask.Agent.Remediation
	return a.object(ctx, of.APIVersion, strings.TrimSuffix(of.Kind, "Template"), of.Namespace, ask.Node)
}

func (a remediations) read(ctx context.Context, ask fencing.Ask) (fencing.RunFacts, error) {
	of, o, err := a.find(ctx, ask)
	if err != nil {
		return unknown, err
	}
	about := of.kind + " " + ask.Agent.Remediation.Namespace + "/" + ask.Node
	switch gone := o == nil || !owns(ask, o); {
	case gone && ask.Run.Undo:
		return facts(fencing.RunSucceeded, about+" is gone.")
	case o == nil:
		return notStarted, nil
	case gone:
		return unknown, fmt.Errorf("%s: %w", about, errForeign)
	case o.GetDeletionTimestamp() != nil:
		return facts(fencing.RunStopping, about+" is terminating.")
	case ask.Run.Undo, !ofAttempt(ask, o):
		return facts(fencing.RunAbsent, about+" is to be deleted.")
	}
	status, message := conditionOf(o, "Succeeded")
	switch status {
	case metav1.ConditionTrue:
		return facts(fencing.RunSucceeded, about+" has succeeded. "+message)
	case metav1.ConditionFalse:
		return facts(fencing.RunFailed, about+" has failed: "+message)
	case metav1.ConditionUnknown:
	}
	group := schema.FromAPIVersionAndKind(o.GetAPIVersion(), o.GetKind())
	return fencing.RunFacts{State: fencing.Running, Message: about + " is at work. " + message,
		Removal: fencing.RemovalOf(group.Group, group.Kind, text(o, "spec", "remediationStrategy"))}, nil
}

// ofAttempt reports whether the object was created by this attempt and not by an earlier one.
func ofAttempt(ask fencing.Ask, o metav1.Object) bool {
	return o.GetAnnotations()[attemptAnnotation] == attempt(ask)
}

// conditionOf returns the status and message of a condition in a custom resource, Unknown if the condition is missing.
func conditionOf(o *unstructured.Unstructured, kind string) (status metav1.ConditionStatus, message string) {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, one := range conditions {
		c, _ := one.(map[string]any)
		if c["type"] != kind {
			continue
		}
		word, _ := c["status"].(string)
		message, _ = c["message"].(string)
		return metav1.ConditionStatus(word), message
	}
	return metav1.ConditionUnknown, ""
}

var errNoTemplate = errors.New("it has no spec.template.spec")

func (a remediations) start(ctx context.Context, ask fencing.Ask) error {
	if ask.Run.Undo {
		return a.stop(ctx, ask)
	}
	of, o, err := a.find(ctx, ask)
	switch {
	case err != nil:
		return err
	case o != nil && !ofAttempt(ask, o):
		return a.stop(ctx, ask) // the deletion is followed by another call
	}
	spec, err := a.template(ctx, ask)
	if err != nil {
		return err
	}
	o = newObject(ask, ask.Agent.Remediation.APIVersion, of.kind, ask.Node, spec)
	if _, err = of.Create(ctx, o, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %s %s/%s: %w", of.kind, ask.Agent.Remediation.Namespace, ask.Node, err)
	}
	return nil
}

func (a remediations) template(ctx context.Context, ask fencing.Ask) (spec map[string]any, err error) {
	of := ask.Agent.Remediation
	templates, err := a.custom(of.APIVersion, of.Kind, of.Namespace)
	if err != nil {
		return nil, err
	}
	o, err := templates.Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", of.Kind, of.Namespace, of.Name, err)
	}
	spec, found, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err == nil && !found {
		err = errNoTemplate
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", of.Kind, of.Namespace, of.Name, err)
	}
	return spec, nil
}

func (a remediations) stop(ctx context.Context, ask fencing.Ask) error {
	of, o, err := a.find(ctx, ask)
	if o == nil || !owns(ask, o) {
		return err
	}
	if err := of.Delete(ctx, ask.Node, only(o)); err != nil && !kube.Absent(err, of.resource, ask.Node) {
		return fmt.Errorf("delete %s %s/%s: %w", of.kind, o.GetNamespace(), ask.Node, err)
	}
	return nil
}
