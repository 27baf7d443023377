package podsafety

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
)

const (
	// forcePolicy is the ValidatingAdmissionPolicy that refuses force deletions, and evictPolicy refuses force evictions,
	// for which no admission sees a DELETE. A binding whose name ends with enforced binds each to namespaces with enforced
	// pod safety.
	forcePolicy, evictPolicy, enforced = "csi-reclaimer-pod-force-delete", "csi-reclaimer-pod-force-evict", "-enforce"

	// forcePolicyEvery is the interval at which they are read.
	forcePolicyEvery = 10 * time.Second
	// forcePolicyDelay is the longest time in which all API servers enforce a policy. Each compiles the policies of its
	// own watch once a second (policySource in k8s.io/apiserver/pkg/admission/plugin/policy/generic).
	forcePolicyDelay = 10 * time.Second
)

// refusal is one of the policies as shipped.
type refusal struct {
	policy    string
	operation admissionv1.OperationType
	resource  string
	// conditions are the names of its match conditions. Each exempts something, so another one may exempt more.
	conditions []string
}

// may-run-or-be-mounted extends the refusal from the end of a pod to its unmount; earlier versions have another
// condition.
var refusals = []refusal{
	{forcePolicy, admissionv1.Delete, "pods",
		[]string{"no-grace", "not-admitted-before", "may-run-or-be-mounted", "not-exempt"}},
	{evictPolicy, admissionv1.Create, "pods/eviction", []string{"no-grace", "not-exempt"}},
}

// refusesForce reads whether the API server refuses unconfirmed force deletions and evictions. The result identifies
// the objects that do, in their present versions, and is empty if one of them does not. If one does not exist, an error
// explains the result.
func (a apiServer) refusesForce(ctx context.Context) (by string, err error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	for _, r := range refusals {
		policy, err := a.clients.Admission.ValidatingAdmissionPolicies().Get(ctx, r.policy, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("read ValidatingAdmissionPolicy %q: %w", r.policy, err)
		}
		bound := r.policy + enforced
		binding, err := a.clients.Admission.ValidatingAdmissionPolicyBindings().Get(ctx, bound, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("read ValidatingAdmissionPolicyBinding %q: %w", bound, err)
		}
		if !r.by(policy, binding) {
			return "", nil
		}
		by += fmt.Sprintf("%s/%d %s/%d ", policy.UID, policy.Generation, binding.UID, binding.Generation)
	}
	return by, nil
}

// by reports whether a policy and its binding carry out the refusal in all namespaces that enforce pod safety. It
// recognizes exemptions by selectors, rules, conditions and parameters. It trusts the expressions, because installers
// write service accounts into them.
func (r refusal) by(policy *admissionv1.ValidatingAdmissionPolicy,
	binding *admissionv1.ValidatingAdmissionPolicyBinding) bool {
	p, b := policy.Spec, binding.Spec
	if !denies(policy, binding) || p.MatchConstraints == nil || b.MatchResources == nil {
		return false
	}
	conditions := sets.New[string]()
	for _, c := range p.MatchConditions {
		conditions.Insert(c.Name)
	}
	covers := func(rule admissionv1.NamedRuleWithOperations) bool {
		return slices.Contains(rule.Operations, r.operation) && slices.Contains(rule.Resources, r.resource) &&
			slices.Contains(rule.APIGroups, "") && slices.Contains(rule.APIVersions, "v1") && len(rule.ResourceNames) == 0
	}
	enforcing := metav1.LabelSelector{MatchLabels: map[string]string{podsafety.NamespaceLabel: podsafety.EnforceValue}}
	return conditions.Equal(sets.New(r.conditions...)) && p.ParamKind == nil &&
		slices.ContainsFunc(p.MatchConstraints.ResourceRules, covers) &&
		selects(p.MatchConstraints, metav1.LabelSelector{}) && len(b.MatchResources.ResourceRules) == 0 &&
		selects(b.MatchResources, enforcing)
}

// denies reports whether a policy and its binding deny the requests that match, and neither is being deleted.
func denies(policy *admissionv1.ValidatingAdmissionPolicy, binding *admissionv1.ValidatingAdmissionPolicyBinding) bool {
	return policy.DeletionTimestamp == nil && binding.DeletionTimestamp == nil &&
		binding.Spec.PolicyName == policy.Name && len(policy.Spec.Validations) > 0 &&
		ptr.Deref(policy.Spec.FailurePolicy, admissionv1.Fail) == admissionv1.Fail &&
		slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny)
}

// selects reports whether the namespaces are selected by this selector, and all objects in them.
func selects(m *admissionv1.MatchResources, namespaces metav1.LabelSelector) bool {
	is := func(s *metav1.LabelSelector, want metav1.LabelSelector) bool {
		return equality.Semantic.DeepEqual(ptr.Deref(s, metav1.LabelSelector{}), want)
	}
	return is(m.NamespaceSelector, namespaces) && is(m.ObjectSelector, metav1.LabelSelector{}) &&
		len(m.ExcludeResourceRules) == 0
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
				"force deletions as shipped; each pod is held for longer", "policies", []string{forcePolicy, evictPolicy},
				"err", err)
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
