//go:build unix

package upgrade

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// creationUnclear has the driver create the volume, and report an error that leaves this open.
func creationUnclear(env *environment) func() {
	claim := env.unclear()
	return func() {
		if !env.IsInFlight(claim) {
			env.T.Errorf("the in-flight log has no entry of claim %s, while its volume is in doubt", claim.Name)
		}
		env.waitRepeated(claim)
		env.faults.heal(claim.Name)
		env.WaitBound(claim)
		env.expectOneRequest(claim)
		env.expectDeletedByClaim(claim)
	}
}

// creationUnclearAndClaimDeleted is creationUnclear with a claim that is deleted.
func creationUnclearAndClaimDeleted(env *environment) func() {
	claim := env.unclear()
	env.MustDeleteClaim(claim)
	env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
	return func() {
		env.waitRepeated(claim)
		env.faults.heal(claim.Name)
		env.Eventually("nothing is in flight of claim "+claim.Name, func() bool { return !env.IsInFlight(claim) })
		env.Eventually("the volume of claim "+claim.Name+" is gone", func() bool {
			_, err := env.Client.CoreV1().PersistentVolumes().Get(env.Ctx, fixture.PVName(claim), metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
		env.expectOneRequest(claim)
		env.ExpectNothingLeft(claim)
	}
}

// unclear creates a claim whose volume is created while the driver answers Internal. Its class is replaced by another
// of the same name, so that a request composed anew would differ.
func (env *environment) unclear() *objects.Claim {
	env.T.Helper()
	class := env.CreateStorageClass(withTier("gold"))
	claim := env.claimThatFails(class)
	env.faults.replace(ofAll, faults.Rule{Name: claim.Name, Method: "CreateVolume", VolumeName: fixture.PVName(claim),
		Action: faults.Fail, AfterWork: true, Code: "Internal"})
	env.waitMade(claim)
	env.Must(env.Client.StorageV1().StorageClasses().Delete(env.Ctx, class, metav1.DeleteOptions{}))
	_, err := env.MakeClass(env.Ctx, objects.Class{Name: class, Parameters: map[string]string{"tier": "silver"}})
	env.Must(err)
	return claim
}

// claimThatFails creates a claim, and returns once the driver was asked for its volume and failed: it does so for all
// volumes, until the rule ofAll is replaced.
func (env *environment) claimThatFails(class string) *objects.Claim {
	env.T.Helper()
	env.faults.add(faults.Rule{Name: ofAll, Method: "CreateVolume", Action: faults.Fail, Code: "Internal"})
	claim := env.CreateClaim(class)
	env.Eventually("the driver is asked for the volume of claim "+claim.Name, func() bool {
		return len(env.CreateCalls(claim)) > 0
	})
	return claim
}

// ofAll is the name of a rule for all volumes.
const ofAll = "all"

// callsCut has the driver create one volume and delete another, and answer neither call before its caller ends.
func callsCut(env *environment) func() {
	const cut = "cut"
	vol, claim := env.protected(), env.claimThatFails(env.CreateStorageClass())
	env.faults.replace(ofAll,
		faults.Rule{Name: cut + "-delete", Method: "DeleteVolume", Volume: vol.Handle, First: 1, Action: faults.Hang,
			AfterWork: true},
		faults.Rule{Name: cut + "-create", Method: "CreateVolume", VolumeName: fixture.PVName(claim), First: 1,
			Action: faults.Hang, AfterWork: true})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.Eventually("volume "+vol.Handle+" is deleted", func() bool { return !env.OnDisk(vol.Handle) })
	env.waitMade(claim)
	return func() {
		env.Must(vol.WaitGone(env.WithTimeout()))
		env.ExpectDeleted(vol, 2)
		env.WaitBound(claim)
		env.expectOneRequest(claim)
		env.faults.heal(cut+"-delete", cut+"-create")
		env.expectDeletedByClaim(claim)
	}
}

func withTier(tier string) func(*objects.Class) {
	return func(class *objects.Class) { class.Parameters = map[string]string{"tier": tier} }
}

// waitMade waits until the driver has made the volume of a claim.
func (env *environment) waitMade(claim *objects.Claim) {
	env.T.Helper()
	env.Eventually("the volume of claim "+claim.Name+" is made", func() bool {
		return slices.ContainsFunc(env.CreateCalls(claim), func(call ledger.Call) bool { return call.Changed })
	})
}

// waitRepeated waits until another process than the first has asked for the volume of a claim.
func (env *environment) waitRepeated(claim *objects.Claim) {
	env.T.Helper()
	env.Eventually("the other version asks for the volume of claim "+claim.Name, func() bool {
		calls := env.CreateCalls(claim)
		return calls[len(calls)-1].PID != calls[0].PID
	})
}

// expectOneRequest checks that each call for the volume of a claim has asked for the same.
func (env *environment) expectOneRequest(claim *objects.Claim) {
	env.T.Helper()
	calls := env.CreateCalls(claim)
	for _, call := range calls {
		if call.Request == "" || call.Request != calls[0].Request {
			env.T.Errorf("volume %s was asked for in two ways: %+v and %+v", call.Name, calls[0], call)
		}
	}
}

// creationOfPVRefused has a volume for which the API server accepts no PV.
func creationOfPVRefused(env *environment) func() {
	name, class := newClaimName(), env.CreateStorageClass()
	allow := env.refusePVs(name)
	claim := env.CreateClaim(class, func(spec *objects.ClaimSpec) { spec.Name = name })
	env.Eventually("the volume of claim "+name+" is made", func() bool {
		calls := env.CreateCalls(claim)
		return len(calls) > 0 && calls[0].Code == "OK"
	})
	return func() {
		if !env.IsInFlight(claim) {
			env.T.Errorf("the in-flight log has no entry of claim %s, which has a volume and no PV", name)
		}
		allow()
		env.WaitBound(claim)
		env.expectOneRequest(claim)
		env.expectDeletedByClaim(claim)
	}
}

// refusePVs has the API server refuse the PVs for a claim of that name, until allow.
func (env *environment) refusePVs(claim string) (allow func()) {
	env.T.Helper()
	name, scope := "refuse-"+claim, admissionv1.ClusterScope
	api := env.Client.AdmissionregistrationV1()
	_, err := api.ValidatingAdmissionPolicies().Create(env.Ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"persistentvolumes"}, Scope: &scope},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: `!has(object.spec.claimRef) || object.spec.claimRef.name != "` + claim + `"`}},
		},
	}, metav1.CreateOptions{})
	env.Must(err)
	_, err = api.ValidatingAdmissionPolicyBindings().Create(env.Ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	env.Must(err)
	allow = func() {
		_ = api.ValidatingAdmissionPolicyBindings().Delete(env.CleanupContext(), name, metav1.DeleteOptions{})
		_ = api.ValidatingAdmissionPolicies().Delete(env.CleanupContext(), name, metav1.DeleteOptions{})
	}
	env.T.Cleanup(allow)
	probe := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
		Capacity:    v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		ClaimRef:    &v1.ObjectReference{Namespace: env.Namespace, Name: claim},
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: env.Driver,
			VolumeHandle: "probe"}},
	}}
	env.Eventually("PVs for claim "+claim+" are refused", func() bool {
		_, err := env.Client.CoreV1().PersistentVolumes().Create(env.Ctx, probe,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	})
	return allow
}
