//go:build unix

package operations

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

func TestRollbackAndRollForward(t *testing.T) {
	suite.Deep(t, suite.Variant)
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar(fixture.FastRetries()...)
	restart := func(args ...string) {
		env.Must(car.Terminate())
		env.Must(car.Restart(args...))
		env.Must(car.WaitReady(env.WithTimeout()))
	}
	bound := env.MakeVolumes(8, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} })
	underway := env.MakeVolume(objects.Spec{}) // released and terminating, held by an attachment
	env.WaitAllPVs(append([]*objects.Volume{underway}, bound...), "protected", fixture.IsProtected)
	attachment := env.Attach(underway)
	env.Must(underway.DeletePV(env.Ctx))
	env.Must(underway.DeleteClaim(env.Ctx))
	env.WaitPVEvent(underway, "Attached", "")

	restart("--honor-reclaim-policy=false")
	env.WaitAllPVs(bound, "without our finalizer", fixture.WithoutFinalizer)
	env.Detach(attachment)
	env.Must(underway.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(underway, 1) // a deletion that had begun is finished
	// As before the KEP: claim first deletes, and that is all.
	env.Must(bound[0].DeleteClaim(env.Ctx))
	env.Must(bound[0].WaitGone(env.WithTimeout()))
	env.ExpectDeleted(bound[0], 1)

	restart("--honor-reclaim-policy=true")
	env.WaitAllPVs(bound[1:], "protected again", fixture.IsProtected)
	env.ForEachVolume(bound[1:4], func(vol *objects.Volume) error { return vol.DeletePV(env.Ctx) })
	env.ForEachVolume(bound[1:], func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(bound, "gone", fixture.IsGone)
	for _, vol := range bound {
		env.ExpectDeleted(vol, 1)
	}
}

func TestReleaseFinalizers(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar(fixture.FastRetries()...)
	vols := env.MakeVolumes(40, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	env.Must(vols[0].DeletePV(env.Ctx)) // its volume is abandoned, and that is reported
	env.Must(car.Terminate())
	output, err := env.ReleaseFinalizers()
	env.Must(err)
	if !strings.Contains(output, "40 PVs were released") || !strings.Contains(output,
		"PV "+vols[0].Name+" was being deleted") {
		t.Errorf("output %q", output)
	}
	env.WaitAllPVs(vols, "without our finalizer", fixture.WithoutFinalizer)
	if output, err = env.ReleaseFinalizers(); err != nil || !strings.Contains(output, "0 PVs were released") {
		t.Errorf("the second time: %v, %q", err, output)
	}
	for _, vol := range vols {
		env.ExpectKept(vol)
	}
}

// TestReleaseRefusesWhilePolicyAddsFinalizer installs the admission policy of volume-guard for one driver.
func TestReleaseRefusesWhilePolicyAddsFinalizer(t *testing.T) {
	fixture.From(t, controlplane.V1_36, "MutatingAdmissionPolicy")
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar(fixture.FastRetries()...)
	vols := env.MakeVolumes(4, func(int) objects.Spec { return objects.Spec{Dynamic: true} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	env.Must(car.Terminate())
	env.addFinalizerBack()
	env.Eventually("the policy is in force", func() bool {
		env.RemoveFinalizers(vols[0])
		pv, err := vols[0].PV(env.Ctx)
		env.Must(err)
		return fixture.HasFinalizer(pv)
	})

	output, err := env.ReleaseFinalizers()
	if err == nil || !strings.Contains(output, "admission policy") || !strings.Contains(output, "0 PVs were released") {
		t.Errorf("--release-finalizers ended with %v and output %q, want a refusal with its reason", err, output)
	}
	env.WaitAllPVs(vols, "still protected", fixture.IsProtected)

	env.Must(car.Restart("--honor-reclaim-policy=false"))
	env.Must(car.WaitReady(env.WithTimeout()))
	for _, vol := range vols {
		env.WaitPVEvent(vol, "APIWriteFailed", "admission policy")
		env.ExpectKept(vol)
	}
}

// addFinalizerBack has the API server add the finalizer in every write to the environment's PVs.
func (env *environment) addFinalizerBack() {
	env.T.Helper()
	name := "put-back-" + env.Namespace
	scope, ignore, never := admissionv1.ClusterScope, admissionv1.Ignore, admissionv1.NeverReinvocationPolicy
	_, err := env.Client.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(env.Ctx,
		&admissionv1.MutatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.MutatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Update},
						Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
							Resources: []string{"persistentvolumes"}, Scope: &scope},
					},
				}}},
				MatchConditions: []admissionv1.MatchCondition{{Name: "ours",
					Expression: `has(object.spec.csi) && object.spec.csi.driver == "` + env.Driver +
						`" && !has(object.metadata.deletionTimestamp)`},
					{Name: "missing", Expression: `!has(object.metadata.finalizers) || !("` +
						volume.Finalizer + `" in object.metadata.finalizers)`}},
				FailurePolicy:      &ignore,
				ReinvocationPolicy: never,
				Mutations: []admissionv1.Mutation{{
					PatchType: admissionv1.PatchTypeJSONPatch,
					JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: ` +
						`has(object.metadata.finalizers) ? "/metadata/finalizers/-" : "/metadata/finalizers", ` +
						`value: has(object.metadata.finalizers) ? dyn("` +
						volume.Finalizer + `") : dyn(["` + volume.Finalizer + `"])}]`},
				}},
			},
		}, metav1.CreateOptions{})
	env.Must(err)
	_, err = env.Client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(env.Ctx,
		&admissionv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
		}, metav1.CreateOptions{})
	env.Must(err)
	env.T.Cleanup(func() {
		_ = env.Client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Delete(env.CleanupContext(), name,
			metav1.DeleteOptions{})
		_ = env.Client.AdmissionregistrationV1().MutatingAdmissionPolicies().Delete(env.CleanupContext(), name,
			metav1.DeleteOptions{})
	})
}
