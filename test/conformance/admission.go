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

// specLabel is on each namespace that Kubernetes' end-to-end suite makes (test/e2e/framework.CreateTestingNS).
const specLabel = "e2e-run"

// mutation changes objects at their creation.
type mutation struct {
	name string
	// resource is of the core group.
	resource string
	// condition and configuration are in CEL: the objects that are changed, and their change.
	condition, configuration string
	// inForce reports whether an object was changed: the API server reads policies some time after their creation.
	inForce func(context.Context) (bool, error)
}

// mutate returns once the mutation is in force.
func (c *cluster) mutate(ctx context.Context, m mutation) error {
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{m.resource}},
				}}},
			},
			MatchConditions: []admissionv1.MatchCondition{{Name: "matches", Expression: m.condition}},
			Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: m.configuration}}},
			FailurePolicy:      ptr.To(admissionv1.Fail),
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		},
	}
	api := c.client.AdmissionregistrationV1()
	if _, err := api.MutatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: m.name},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: m.name}}
	if _, err := api.MutatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, m.inForce)
}

// labelNamespaces has the suite's labels on each namespace of a spec from its creation.
func (c *cluster) labelNamespaces(ctx context.Context) error {
	if len(c.suite.Labels) == 0 {
		return nil
	}
	labels, err := json.Marshal(c.suite.Labels) // which is a map of CEL, too
	if err != nil {
		return err
	}
	return c.mutate(ctx, mutation{name: "conformance-labels", resource: "namespaces",
		condition:     fmt.Sprintf("has(object.metadata.labels) && %q in object.metadata.labels", specLabel),
		configuration: fmt.Sprintf("Object{metadata: Object.metadata{labels: %s}}", labels),
		inForce:       c.labelled})
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

// keepImages has kubelets start each container with the image that its node has, since there is no registry. Some of
// the suite's manifests ask for a pull before each start.
func (c *cluster) keepImages(ctx context.Context) error {
	return c.mutate(ctx, mutation{name: "conformance-images", resource: "pods",
		condition: "object.spec.containers.exists(c, c.imagePullPolicy == 'Always')",
		configuration: "Object{spec: Object.spec{containers: object.spec.containers.map(c, " +
			"Object.spec.containers{name: c.name, imagePullPolicy: 'IfNotPresent'})}}",
		inForce: func(ctx context.Context) (bool, error) {
			made, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "probe", Image: "probe",
					ImagePullPolicy: v1.PullAlways}}, AutomountServiceAccountToken: ptr.To(false)}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err == nil && made.Spec.Containers[0].ImagePullPolicy == v1.PullIfNotPresent, err
		}})
}
