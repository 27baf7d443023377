package claims

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

// explainThird explains the claim of ordinal 2.
func explainThird(env environment) string {
	f := env.read()
	claim, pv := env.claims[2], env.pvs[2]
	facts := ClaimFacts{Sets: f.Sets, Pods: f.Pods,
		ClaimFacts: volumes.ClaimFacts{ClusterFacts: f.ClusterFacts, Claim: claim, Pods: explain.Found[[]pvc.Pod](nil),
			Events: explain.Found[[]v1.Event](nil)}}
	its := volumes.PVFacts{ClusterFacts: f.ClusterFacts, PV: pv, Claim: explain.Found(claim),
		Events: explain.Found[[]v1.Event](nil)}
	facts.PV = explain.Found(&its)
	if env.unread != nil {
		env.unread(&facts)
	}
	return Explain(facts).Wrapped(false, 0)
}

func TestExplainClaimOfSet(t *testing.T) {
	base := func() environment { return *newEnvironment() }
	explained.Table(t, base, explainThird, map[string]explained.Row[environment]{
		"in use": {func(*environment) {}, []string{"Claim shop/data-db-2 is bound, with PV pv-data-db-2.\n",
			"StatefulSet  db, ordinal 2, in range (the set has 3 replicas)",
			"Retention    whenDeleted Retain, whenScaled Retain (spec.persistentVolumeClaimRetentionPolicy)",
			"Scaled away  kept (Retained)\n", "Set deleted  kept (RetainedWhenDeleted)\n", "!Mark", "!statefulset-claims",
			"kubectl reclaim preview statefulset/db -n shop --replicas=2"}},
		"in use, under Delete": {func(env *environment) {
			env.policy(deletes, deletes)
			mark(env.claims[2], "set", 2, statefulset.Delete)
		}, []string{"Scaled away  deleted (ScaledDown). Its volume then: deleted\n",
			"Set deleted  deleted (SetDeleted). Its volume then: deleted\n",
			"Mark         it had pod db-2 of the set with UID set, and whenScaled was Delete then"}},
		"scaled away under Retain": {func(env *environment) { env.scaled(2) }, []string{
			"is bound, with PV pv-data-db-2 (Retained): The replica of the claim was scaled away",
			"ordinal 2, scaled away (the set has 2 replicas)", "Decision     Wait, Retained (by volume-guard",
			"If the data is not needed: kubectl delete pvc data-db-2 -n shop", "!preview"}},
		"scaled away under Retain, and pods cannot be read": {func(env *environment) {
			env.scaled(2)
			env.unread = func(f *ClaimFacts) { explained.Forbid(&f.Pods) }
		}, []string{"(Retained)", "Do not delete the claim before it is clear", "!kubectl delete pvc"}},
		"scaled away under Retain, and another object owns it": {func(env *environment) {
			env.scaled(2)
			env.claims[2].OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Db", Name: "x", UID: "x"}}
		}, []string{"(Retained)", "Ask the owner of the claim, Db x, whether", "!kubectl delete pvc"}},
		"scaled away under Retain, and an object owns it whose name looks like a command": {func(env *environment) {
			env.scaled(2)
			env.claims[2].OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Db", UID: "x",
				Name: "x. kubectl delete ns a, b"}}
		}, []string{"Ask the owner of the claim, Db x. kubectl_delete ns a, b, whether"}},
		"condemned": {func(env *environment) {
			env.condemned()
			env.guard()
		}, []string{"Wait, ScaleDownGrace", "how much of it is left is not visible from outside",
			"The grace period is 60s",
			"Scaled away  deleted (ScaledDown), after a grace period of 60s (the default of volume-guard); kept if " +
				"volume-guard does not run. Its volume then: deleted",
			"kubectl annotate pvc data-db-2 -n shop csi-reclaimer.io/hold=keep",
			"!no replica holds"}},
		"condemned, and volume-guard does not run": {func(env *environment) { env.condemned() },
			[]string{"Wait, ScaleDownGrace", "no replica holds its Lease"}},
		"condemned, and it cannot be read whether volume-guard runs": {func(env *environment) {
			env.condemned()
			explained.Forbid(&env.facts.Leases)
		}, []string{"Wait, ScaleDownGrace", "!no replica holds its Lease"}},
		"held": {func(env *environment) {
			env.condemned()
			env.claims[2].Annotations[volume.HoldAnnotation] = "audit"
		}, []string{"Wait, ClaimHeld", "Held         by the annotation csi-reclaimer.io/hold",
			"Scaled away  kept (ClaimHeld)",
			"kubectl annotate pvc data-db-2 -n shop csi-reclaimer.io/hold-"}},
		"a mark that is not valid": {func(env *environment) {
			env.policy(retains, deletes)
			env.scaled(2)
			env.claims[2].Annotations[statefulset.MarkAnnotation] = "set/2"
		}, []string{"Mark         the annotation csi-reclaimer.io/statefulset is not valid"}},
		"a mark of another claim": {func(env *environment) {
			env.policy(retains, deletes)
			env.scaled(2)
			env.claims[2].Annotations[statefulset.MarkAnnotation] = "db/set/2/Delete/before"
		}, []string{"Mark         the annotation csi-reclaimer.io/statefulset was copied from another claim"}},
		"by annotation": {func(env *environment) { env.annotate(both) }, []string{
			"whenScaled Delete (annotation csi-reclaimer.io/claim-retention)",
			"Scaled away  deleted (ScaledDown); kept if volume-guard does not run"}},
		"terminating": {func(env *environment) {
			at := ago(0)
			env.claims[2].DeletionTimestamp = &at
		}, []string{"has been terminating", "!(by volume-guard, controller"}},
		"of a set that is being deleted": {func(env *environment) { at := ago(0); env.set.DeletionTimestamp = &at },
			[]string{"ordinal 2, the set is being deleted"}},
		"with ordinals from 1": {func(env *environment) { env.set.Spec.Ordinals = setStart(1) },
			[]string{"(the set has 3 replicas from ordinal 1)", "--replicas=1"}},
		"of a set that is gone": {func(env *environment) {
			mark(env.claims[2], "gone", 2, statefulset.Delete)
			env.set = nil
		}, []string{"StatefulSet  db, which is gone", "Mark ", "!Retention"}},
		"of no set": {func(env *environment) { env.set = nil }, []string{"!StatefulSet"}},
		"its mark names another set": {func(env *environment) {
			env.set.Spec.VolumeClaimTemplates = nil
			mark(env.claims[2], "set", 2, statefulset.Delete)
		}, []string{"StatefulSet  db, whose templates do not give the claim its name"}},
		"sets cannot be read": {func(env *environment) {
			mark(env.claims[2], "set", 2, statefulset.Delete)
			env.unread = func(f *ClaimFacts) { explained.Forbid(&f.Sets) }
		}, []string{"StatefulSets: forbidden. So it is not known whether one has the claim", "db, which could not be read"}},
		"pods cannot be read": {func(env *environment) {
			env.policy(retains, deletes)
			env.unread = func(f *ClaimFacts) { explained.Forbid(&f.Pods) }
		}, []string{"Retention ", "!Scaled away", "!Set deleted"}},
		"scaled away, and pods cannot be read": {func(env *environment) {
			env.condemned()
			env.unread = func(f *ClaimFacts) { explained.Forbid(&f.Pods) }
		}, []string{"(APIReadFailed): The replica of the claim was scaled away", "may be deleted at any time",
			"To keep the claim: kubectl annotate pvc data-db-2", "!its pod is not gone"}},
		"scaled away, with its pod, where a hold has no effect": {func(env *environment) {
			env.policy(retains, deletes)
			env.set.Spec.Replicas = ptr.To[int32](2)
			mark(env.claims[2], "set", 2, statefulset.Delete)
			env.claims[2].Annotations[statefulset.HoldAnnotation] = "why"
		}, []string{"(PodRemains)", "To keep the claim, before its pod is gone: kubectl patch statefulset db",
			`"whenScaled":"Retain"`, "!(ClaimHeld)", "!kubectl annotate pvc"}},
		"another controller owns it": {func(env *environment) {
			env.policy(retains, deletes)
			env.scaled(2)
			yes := true
			env.claims[2].OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Db", Name: "x",
				UID: "x", Controller: &yes}}
		}, []string{"Scaled away  kept (ConflictingController)"}},
	})
}
