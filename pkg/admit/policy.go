package admit

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// PolicyName is the name of the policy, of its binding, and of the ConfigMap that says which
// driver's PVs get which finalizer.
const PolicyName = "csi-reclaimer-protect-pvs"

// The conditions on a PV alone, as CEL: they go before everything else, for they are cheap. The
// webhook for older API servers has the same.
func conditions() []admissionv1.MatchCondition {
	return []admissionv1.MatchCondition{
		{Name: "claimed", Expression: `has(object.spec.claimRef) && has(object.spec.claimRef.uid) && object.spec.claimRef.uid != ""`},
		{Name: "policy-delete", Expression: `has(object.spec.persistentVolumeReclaimPolicy) && object.spec.persistentVolumeReclaimPolicy == "Delete"`},
		{Name: "not-terminating", Expression: `!has(object.metadata.deletionTimestamp)`},
		{Name: "no-twin", Expression: `!has(object.metadata.labels) || !("` + twinLabel + `" in object.metadata.labels)`},
	}
}

// The PV's drivers that are listed, as CEL, and that a finalizer of theirs is missing.
const (
	listed = `((has(object.metadata.annotations) && "` + annMigratedTo + `" in object.metadata.annotations
  ? [object.metadata.annotations["` + annMigratedTo + `"]] : []) +
 (has(object.metadata.annotations) && "` + annProvisionedBy + `" in object.metadata.annotations
  ? [object.metadata.annotations["` + annProvisionedBy + `"]]
  : has(object.spec.csi) ? [object.spec.csi.driver] : []))
.filter(d, has(params.data) && d in params.data &&
  params.data[d] in ["` + reclaim.Finalizer + `", "` + reclaim.CompanionFinalizer + `"])`
	unprotected = listed + `
.exists(d, !(has(object.metadata.finalizers) && params.data[d] in object.metadata.finalizers))`
)

// Policy returns the policy that has the API server (1.36 and newer) protect a PV in the same write
// that makes it one to be protected. A failure of any kind lets the write through unchanged: a policy
// that fails it would refuse every write to a PV in the cluster.
func Policy() *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			ParamKind: &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
				{RuleWithOperations: onPVs()},
			}},
			MatchConditions: append(conditions(), admissionv1.MatchCondition{Name: "unprotected", Expression: unprotected}),
			Variables: []admissionv1.Variable{
				{Name: "listed", Expression: listed},
			},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{
					// A list of finalizers is a set: what is there stays.
					Expression: `Object{metadata: Object.metadata{finalizers: [params.data[variables.listed[0]]]}}`,
				},
			}},
			FailurePolicy: ptr.To(admissionv1.Ignore),
			// Another policy or webhook may turn the PV after ours has looked.
			ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
		},
	}
}

// Binding returns what puts the policy in force, with the ConfigMap of [Parameters] in the namespace.
// Without the ConfigMap nothing is changed, and no write is refused.
func Binding(namespace string) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: PolicyName,
			ParamRef: &admissionv1.ParamRef{
				Name: PolicyName, Namespace: namespace, ParameterNotFoundAction: ptr.To(admissionv1.AllowAction),
			},
		},
	}
}

// Parameters returns the ConfigMap that says which finalizer each driver's PVs get. To release a
// driver its key is to go first, or the finalizer comes back in the write that takes it off.
func Parameters(namespace string, finalizers map[string]string) *v1.ConfigMap {
	return &v1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName, Namespace: namespace},
		Data:       finalizers,
	}
}

func onPVs() admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule: admissionv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"}, Scope: ptr.To(admissionv1.ClusterScope),
		},
	}
}
