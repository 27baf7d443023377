package podsafety

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

const (
	// forcePolicy is the ValidatingAdmissionPolicy that refuses force deletions, and forceBinding binds it to namespaces
	// with enforced pod safety. mountCondition is the match condition that extends the refusal from the end of a pod to
	// its unmount; earlier versions of the policy have another one.
	forcePolicy    = "csi-reclaimer-pod-force-delete"
	forceBinding   = forcePolicy + "-enforce"
	mountCondition = "may-run-or-be-mounted"

	// forcePolicyEvery is the interval at which both are read.
	forcePolicyEvery = 10 * time.Second
)

// refusesForce reads whether the API server refuses unconfirmed force deletions. If one of the objects does not exist,
// the result is false, with an error as its explanation.
func (a apiServer) refusesForce(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	policy, err := a.clients.Admission.ValidatingAdmissionPolicies().Get(ctx, forcePolicy, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read ValidatingAdmissionPolicy %q: %w", forcePolicy, err)
	}
	binding, err := a.clients.Admission.ValidatingAdmissionPolicyBindings().Get(ctx, forceBinding, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read ValidatingAdmissionPolicyBinding %q: %w", forceBinding, err)
	}
	return refuses(policy, binding), nil
}

// refuses reports whether a policy and its binding refuse force deletions in namespaces that enforce pod safety. It
// recognizes both only in their shipped form.
func refuses(policy *admissionv1.ValidatingAdmissionPolicy,
	binding *admissionv1.ValidatingAdmissionPolicyBinding) bool {
	knows := func(c admissionv1.MatchCondition) bool { return c.Name == mountCondition }
	fails := policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy == admissionv1.Fail
	if !fails || !slices.ContainsFunc(policy.Spec.MatchConditions, knows) || len(policy.Spec.Validations) == 0 ||
		binding.Spec.PolicyName != policy.Name || policy.DeletionTimestamp != nil || binding.DeletionTimestamp != nil ||
		!slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) || binding.Spec.MatchResources == nil {
		return false
	}
	namespaces, err := metav1.LabelSelectorAsSelector(binding.Spec.MatchResources.NamespaceSelector)
	return err == nil && namespaces.Matches(labels.Set{podsafety.NamespaceLabel: podsafety.EnforceValue})
}

// watchForcePolicy polls whether force deletions are refused, until ctx ends.
func (c *Controller) watchForcePolicy(ctx context.Context) {
	first := true
	controller.Repeat(ctx, c.cfg.Clock, forcePolicyEvery, func(ctx context.Context) {
		refused, err := c.cluster.refusesForce(ctx)
		if ctx.Err() != nil {
			return
		}
		if changed := c.observer.forceRefused(refused, c.cfg.Clock.Now()); (changed || first) && !refused {
			klog.FromContext(ctx).Info("Nothing shows the unmount of the volumes of held pods, because no policy refuses "+
				"force deletions; each pod is held for longer", "policy", forcePolicy, "binding", forceBinding,
				"err", err)
		}
		first = false
	})
}

// forceRefused records whether force deletions are refused, and reports whether that has changed.
func (o *observer) forceRefused(refused bool, now time.Time) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if changed = refused == o.forceRefusedSince.IsZero(); !changed {
		return false
	}
	o.forceRefusedSince = time.Time{}
	if refused {
		o.forceRefusedSince = now
	}
	return true
}
