//go:build unix

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

const (
	// labelPolicy is the name of the policy that labels namespaces.
	labelPolicy = "conformance-labels"
	// specLabel is on each namespace that Kubernetes' end-to-end suite makes (test/e2e/framework.CreateTestingNS).
	specLabel = "e2e-run"
)

// labelNamespaces has the suite's labels on each namespace of a spec from its creation. It returns once that is in
// force.
func (c *cluster) labelNamespaces(ctx context.Context) error {
	if len(c.suite.Labels) == 0 {
		return nil
	}
	labels, err := json.Marshal(c.suite.Labels) // which is a map of CEL, too
	if err != nil {
		return err
	}
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: labelPolicy},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"namespaces"}},
				}}},
			},
			MatchConditions: []admissionv1.MatchCondition{{Name: "spec",
				Expression: fmt.Sprintf("has(object.metadata.labels) && %q in object.metadata.labels", specLabel)}},
			Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{
					Expression: fmt.Sprintf("Object{metadata: Object.metadata{labels: %s}}", labels)}}},
			FailurePolicy:      ptr.To(admissionv1.Fail),
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		},
	}
	api := c.client.AdmissionregistrationV1()
	if _, err := api.MutatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: labelPolicy},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: labelPolicy}}
	if _, err := api.MutatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, c.labelled)
}

// labelled reports whether a namespace of a spec would get the labels.
func (c *cluster) labelled(ctx context.Context) (bool, error) {
	made, err := c.client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "probe-", Labels: map[string]string{specLabel: "probe"}}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return false, err
	}
	for key, value := range c.suite.Labels {
		if made.Labels[key] != value {
			return false, nil
		}
	}
	return true, nil
}
