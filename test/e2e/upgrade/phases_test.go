//go:build unix

package upgrade

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// phase brings volumes to one moment of their life, under one version. The returned function lets them continue under
// another version, and checks their end.
type phase func(*environment) (end func())

// phases returns the moments. Moments that cut calls to the driver come last.
func phases() []phase {
	return []phase{
		waitingForConsumer, bound, boundUnprotected, terminatingBound, attached, deletionFails, deletedAndKeptByAnother,
		retained, heldVolume, companions, creationUnclear, creationUnclearAndClaimDeleted, creationOfPVRefused, callsCut,
	}
}

// waitingForConsumer has a claim that waits for a pod, before any call.
func waitingForConsumer(env *environment) func() {
	claim := env.CreateClaim(env.CreateStorageClass(fixture.WithWaitForFirstConsumer))
	return func() {
		node := env.CreateNode(nil)
		env.Claims().Annotate(claim.Name, objects.SelectedNode, node)
		env.WaitBound(claim)
		env.expectDeletedByClaim(claim)
	}
}

// bound has one volume that stays in use, and another whose claim is deleted.
func bound(env *environment) func() {
	class := env.CreateStorageClass()
	used, done := env.WaitBound(env.CreateClaim(class)), env.WaitBound(env.CreateClaim(class))
	return func() {
		env.expectDeletedByClaim(done.BoundClaim)
		env.ExpectKept(used.Volume)
		pv, err := used.PV(env.Ctx)
		env.Must(err)
		if !fixture.IsProtected(pv) || pv.Status.Phase != v1.VolumeBound {
			env.T.Errorf("PV %s is %s, want bound and protected", used.Name, objects.Describe(pv))
		}
	}
}

// boundUnprotected has a static PV without a finalizer, because its policy is Retain. The policy is changed to Delete
// later.
func boundUnprotected(env *environment) func() {
	vol := env.MakeVolume(objects.Spec{Policy: v1.PersistentVolumeReclaimRetain})
	return func() {
		env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete))
		env.WaitProtected(vol)
		env.DeletePVFirst(vol)
		env.expectDeletedOnce(vol)
	}
}

// terminatingBound has a PV that was deleted before its claim.
func terminatingBound(env *environment) func() {
	vol := env.protected()
	env.Must(vol.DeletePV(env.Ctx))
	return func() {
		env.ExpectKept(vol)
		env.Must(vol.DeleteClaim(env.Ctx))
		env.expectDeletedOnce(vol)
	}
}

// attached has a released PV that is attached to a node.
func attached(env *environment) func() {
	vol := env.protected()
	attachment := env.Attach(vol)
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPVEvent(vol, "Attached", "")
	return func() {
		env.ExpectKept(vol)
		env.Detach(attachment)
		env.expectDeletedOnce(vol)
	}
}

// deletionFails has a driver that refuses to delete the volume for the time being.
func deletionFails(env *environment) func() {
	vol := env.protected()
	env.faults.add(faults.Rule{Name: vol.Name, Method: "DeleteVolume", Volume: vol.Handle, Action: faults.Fail,
		Code: "Internal"})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitDeleteCalls(vol, 2)
	return func() {
		tried := len(env.DeleteCalls(vol.Handle))
		env.WaitDeleteCalls(vol, tried+1)
		if !env.OnDisk(vol.Handle) {
			env.T.Errorf("volume %s is gone, and the driver has not deleted it", vol.Handle)
		}
		env.faults.heal(vol.Name)
		env.Must(vol.WaitGone(env.WithTimeout()))
		calls := env.DeleteCalls(vol.Handle)
		succeeded := 0
		for _, call := range calls {
			if call.Code == "OK" {
				succeeded++
			}
		}
		if succeeded != 1 || env.OnDisk(vol.Handle) {
			env.T.Errorf("volume %s: on disk %v, deleted %d times, want 1: %+v", vol.Handle, env.OnDisk(vol.Handle), succeeded,
				calls)
		}
	}
}

// deletedAndKeptByAnother has a PV with a deleted volume that stays because of another program's finalizer.
func deletedAndKeptByAnother(env *environment) func() {
	const finalizer = "example.com/backup"
	vol := env.MakeProtected(objects.Spec{Dynamic: true,
		Change: func(pv *v1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, finalizer) }})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPV(vol, "kept by the other finalizer alone", func(pv *v1.PersistentVolume) bool {
		return pv.DeletionTimestamp != nil && !fixture.HasFinalizer(pv)
	})
	return func() {
		env.PVs().Patch(vol.Name, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+finalizer+`"]}}`)
		env.expectDeletedOnce(vol)
	}
}

// retained has a released PV with policy Retain.
func retained(env *environment) func() {
	vol := env.MakeVolume(objects.Spec{Dynamic: true, Policy: v1.PersistentVolumeReclaimRetain})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPV(vol, "released", fixture.IsReleased)
	return func() { env.ExpectKept(vol) }
}

// heldVolume has a released PV that an administrator holds.
func heldVolume(env *environment) func() {
	vol := env.protected()
	env.AnnotatePV(vol, volume.HoldAnnotation, "evidence")
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPVEvent(vol, "Held", "evidence")
	return func() {
		env.Barrier()
		env.ExpectKept(vol)
		env.AnnotatePV(vol, volume.HoldAnnotation, "")
		env.expectDeletedOnce(vol)
	}
}

// companions has PVs with the finalizer of a companion. One of them is deleted before its claim. An owner replaces the
// companion.
func companions(env *environment) func() {
	companion := func() *objects.Volume {
		return env.MakeVolume(objects.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) {
			pv.Finalizers = append(pv.Finalizers, volume.CompanionFinalizer)
		}})
	}
	seen := companion()
	env.WaitProtected(seen)
	env.Must(seen.DeletePV(env.Ctx))
	return func() {
		unseen := companion()
		env.WaitProtected(unseen)
		env.WaitPV(unseen, "without the companion's finalizer", func(pv *v1.PersistentVolume) bool {
			return !slices.Contains(pv.Finalizers, volume.CompanionFinalizer)
		})
		for _, vol := range []*objects.Volume{seen, unseen} {
			env.Must(vol.DeleteClaim(env.Ctx))
			env.expectDeletedOnce(vol)
		}
	}
}

// protected makes a volume that is bound and has the finalizer.
func (env *environment) protected() *objects.Volume {
	env.T.Helper()
	return env.MakeProtected(objects.Spec{Dynamic: true})
}

// expectDeletedOnce waits until a PV is gone, and checks that exactly one call has deleted its volume.
func (env *environment) expectDeletedOnce(vol *objects.Volume) {
	env.T.Helper()
	env.ExpectReclaimed(vol, 1)
}

// expectDeletedByClaim deletes a claim that is bound, and checks that its volume goes with it.
func (env *environment) expectDeletedByClaim(claim *objects.Claim) {
	env.T.Helper()
	vol := env.WaitBound(claim)
	env.MustDeleteClaim(claim)
	env.expectDeletedOnce(vol.Volume)
	env.ExpectNothingLeft(claim)
}

// newClaimName is the name of a claim that is not there yet.
func newClaimName() string { return "claim-" + rand.String(8) }

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
			return env.PVs().Find(fixture.PVName(claim)) == nil
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
	env.StorageClasses().Delete(class)
	env.CreateClass(objects.Class{Name: class, Parameters: map[string]string{"tier": "silver"}})
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
		env.ExpectReclaimed(vol, 2)
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
	env.ValidatingAdmissionPolicies().Create(&admissionv1.ValidatingAdmissionPolicy{
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
	})
	env.ValidatingAdmissionPolicyBindings().Create(&admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	})
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
		_, err := env.PVs().DryRun(probe)
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err)
	})
	return allow
}
