package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// PolicyName is the name of the policy and of its binding for drivers whose csi-reclaimer runs in role owner, and
// CompanionPolicyName is the name for role companion.
const (
	PolicyName          = "csi-reclaimer-protect-pvs"
	CompanionPolicyName = PolicyName + "-companion"
)

// Drivers are the names of CSI drivers whose PVs are protected in the write that binds them, by the role of their
// csi-reclaimer: RoleOwner or RoleCompanion. Other roles add no finalizer and are ignored.
type Drivers map[volume.Role][]string

// roles are the roles that add a finalizer, in the order of their additions.
func roles() []volume.Role { return []volume.Role{volume.RoleOwner, volume.RoleCompanion} }

// finalizerOf returns the finalizer of a role, empty for a role that adds none.
func finalizerOf(role volume.Role) string {
	switch role {
	case volume.RoleOwner:
		return volume.Finalizer
	case volume.RoleCompanion:
		return volume.CompanionFinalizer
	case volume.RoleObserver, volume.RoleUnknown:
	}
	return ""
}

// policyName returns the name of a role's policy, and of its binding.
func policyName(role volume.Role) string {
	if role == volume.RoleCompanion {
		return CompanionPolicyName
	}
	return PolicyName
}

// driverCondition is the name of the match condition that lists the drivers, which are listed nowhere else.
const driverCondition = "driver"

// The condition that lists the drivers, before and after its list. It finds the same drivers of a PV as driversOf.
const (
	beforeDrivers = `((has(object.metadata.annotations) && "` + volume.AnnMigratedTo + `" in object.metadata.annotations
  ? [object.metadata.annotations["` + volume.AnnMigratedTo + `"]] : []) +
 (has(object.metadata.annotations) && "` + volume.AnnProvisionedBy + `" in object.metadata.annotations
  ? [object.metadata.annotations["` + volume.AnnProvisionedBy + `"]]
  : has(object.spec.csi) ? [object.spec.csi.driver] : []))
.exists(d, d in `
	afterDrivers = `)`
)

// conditions returns the conditions, in CEL, under which a PV gets the finalizer of a role in the write that is being
// admitted. [missingFinalizers] has the same rule; the policy and the webhook for older API servers share the
// conditions.
func conditions(role volume.Role, drivers []string) []admissionv1.MatchCondition {
	return []admissionv1.MatchCondition{
		{Name: "claimed", Expression: `has(object.spec.claimRef) && has(object.spec.claimRef.uid) && object.spec.claimRef.uid != ""`},
		{Name: "policy-delete", Expression: `has(object.spec.persistentVolumeReclaimPolicy) && object.spec.persistentVolumeReclaimPolicy == "Delete"`},
		{Name: "not-terminating", Expression: `!has(object.metadata.deletionTimestamp)`},
		{Name: "no-twin", Expression: `!has(object.metadata.labels) || !("` + volume.TwinLabel +
			`" in object.metadata.labels)`},
		{Name: driverCondition, Expression: beforeDrivers + listOf(drivers) + afterDrivers},
		{Name: "unprotected", Expression: `!has(object.metadata.finalizers) || !("` + finalizerOf(role) +
			`" in object.metadata.finalizers)`},
	}
}

// listOf returns a CEL list of strings, one a line, sorted and without duplicates. It is JSON, whose strings are all
// valid CEL strings (CEL specification, "String and Bytes Values"), so that a name cannot end its literal.
func listOf(drivers []string) string {
	drivers = slices.Compact(slices.Sorted(slices.Values(drivers)))
	if len(drivers) == 0 {
		return "[]"
	}
	list, err := json.MarshalIndent(drivers, "", "  ")
	if err != nil {
		panic(err) // a list of strings is always valid JSON
	}
	return string(list)
}

// errUnknownCondition means that csi-reclaimer did not write the match conditions, so their drivers are unknown.
var errUnknownCondition = errors.New("match condition " + driverCondition +
	" was not written by csi-reclaimer")

// driversIn is a pure function that returns the drivers listed by match conditions.
func driversIn(conditions []admissionv1.MatchCondition) ([]string, error) {
	for _, c := range conditions {
		if c.Name != driverCondition {
			continue
		}
		list, begins := strings.CutPrefix(strings.TrimSpace(c.Expression), beforeDrivers)
		list, ends := strings.CutSuffix(list, afterDrivers)
		if !begins || !ends {
			return nil, errUnknownCondition
		}
		var drivers []string
		if err := json.Unmarshal([]byte(list), &drivers); err != nil {
			return nil, fmt.Errorf("%w: %w", errUnknownCondition, err)
		}
		return drivers, nil
	}
	return nil, errUnknownCondition
}

// Policy returns the policy with which the API server (1.36 and newer) adds the finalizer of a role to a PV of these
// drivers, in the same write after which the PV needs protection. On any failure the write passes unchanged, because a
// failing policy would refuse every write to a PV in the cluster. role is RoleOwner or RoleCompanion.
func Policy(role volume.Role, drivers ...string) *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: policyName(role)},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
				{RuleWithOperations: onPVs()},
			}},
			MatchConditions: conditions(role, drivers),
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{
					// A list of finalizers is a set, so the existing entries stay.
					Expression: `Object{metadata: Object.metadata{finalizers: ["` + finalizerOf(role) + `"]}}`,
				},
			}},
			FailurePolicy: ptr.To(admissionv1.Ignore),
			// Another policy or webhook may change the PV after this one.
			ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
		},
	}
}

// Binding returns the binding that puts the policy of a role in force. It has no parameter, because an API server that
// has seen the deletion of the last binding with a parameter of a kind ignores changes of that kind until its restart
// (kubernetes/kubernetes#130887).
func Binding(role volume.Role) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: policyName(role)},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policyName(role)},
	}
}

func onPVs() admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule: admissionv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"},
			Scope: ptr.To(admissionv1.ClusterScope),
		},
	}
}
