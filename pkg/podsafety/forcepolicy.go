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
	// forcePolicy is the ValidatingAdmissionPolicy that refuses force deletions, and evictPolicy refuses force evictions,
	// for which no admission sees a DELETE. A binding whose name ends with enforced binds each to namespaces with enforced
	// pod safety.
	forcePolicy, evictPolicy, enforced = "csi-reclaimer-pod-force-delete", "csi-reclaimer-pod-force-evict", "-enforce"
	// mountCondition is the match condition that extends the refusal from the end of a pod to its unmount; earlier
	// versions of forcePolicy have another one. evictCondition is that of evictPolicy.
	mountCondition, evictCondition = "may-run-or-be-mounted", "no-grace"

	// forcePolicyEvery is the interval at which they are read.
	forcePolicyEvery = 10 * time.Second
	// forcePolicyDelay is the longest time in which all API servers enforce a policy. Each compiles the policies of its
	// own watch once a second (policySource in k8s.io/apiserver/pkg/admission/plugin/policy/generic).
	forcePolicyDelay = 10 * time.Second
)

// refusesForce reads whether the API server refuses unconfirmed force deletions and evictions. The result identifies
// the objects that do, in their present versions, and is empty if one of them does not. If one does not exist, an error
// explains the result.
func (a apiServer) refusesForce(ctx context.Context) (by string, err error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	for _, p := range []struct{ name, condition string }{{forcePolicy, mountCondition}, {evictPolicy, evictCondition}} {
		policy, err := a.clients.Admission.ValidatingAdmissionPolicies().Get(ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("read ValidatingAdmissionPolicy %q: %w", p.name, err)
		}
		bound := p.name + enforced
		binding, err := a.clients.Admission.ValidatingAdmissionPolicyBindings().Get(ctx, bound, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("read ValidatingAdmissionPolicyBinding %q: %w", bound, err)
		}
		if !refuses(policy, binding, p.condition) {
			return "", nil
		}
		by += fmt.Sprintf("%s/%d %s/%d ", policy.UID, policy.Generation, binding.UID, binding.Generation)
	}
	return by, nil
}

// refuses reports whether a policy and its binding refuse force deletions in namespaces that enforce pod safety. It
// recognizes both only in their shipped form, the policy by a match condition.
func refuses(policy *admissionv1.ValidatingAdmissionPolicy,
	binding *admissionv1.ValidatingAdmissionPolicyBinding, condition string) bool {
	knows := func(c admissionv1.MatchCondition) bool { return c.Name == condition }
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
		by, err := c.cluster.refusesForce(ctx)
		if ctx.Err() != nil {
			return
		}
		if changed := c.observer.forceRefused(by, c.cfg.Clock.Now()); (changed || first) && by == "" {
			klog.FromContext(ctx).Info("Nothing shows the unmount of the volumes of held pods, because no policy refuses "+
				"force deletions; each pod is held for longer", "policies", []string{forcePolicy, evictPolicy}, "err", err)
		}
		first = false
	})
}

// forceRefused records by which objects force deletions are refused, and reports whether that has changed. Between two
// reads, an object may have been deleted and created again, or changed and changed back.
func (o *observer) forceRefused(by string, now time.Time) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if by == o.forceRefusedBy {
		return false
	}
	o.forceRefusedBy, o.forceRefusedSince = by, time.Time{}
	if by != "" {
		o.forceRefusedSince = now.Add(forcePolicyDelay)
	}
	return true
}

// sawMode records that the watch shows another mode of a namespace. The policies judge by its label, so nothing was
// refused while it had another value.
func (o *observer) sawMode(before string, now namespace) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.enforcedSince, before)
	if now.Mode == podsafety.ModeEnforce {
		o.enforcedSince[now.Name] = o.clock.Now().Add(forcePolicyDelay)
	}
}

// forceRefusedIn returns the time since which force deletions are refused in a namespace, zero if they are not. The
// caller holds mu.
func (o *observer) forceRefusedIn(namespace string) time.Time {
	enforced, found := o.enforcedSince[namespace]
	switch {
	case !found || o.forceRefusedSince.IsZero():
		return time.Time{}
	case enforced.After(o.forceRefusedSince):
		return enforced
	}
	return o.forceRefusedSince
}
