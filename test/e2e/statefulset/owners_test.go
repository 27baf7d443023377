//go:build unix

package statefulset

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOtherOwners plays claims with another owner.
func TestOtherOwners(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	quick := []scenario{{"a claim that another controller owns is kept", testOtherController}}
	deep := []scenario{
		{"a scaled-down claim is kept while its other owner lives", testOtherOwnerWhenScaled},
		{"a reference to a set of that name that is gone", testFormerOwner},
	}
	for _, how := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	} {
		deep = append(deep,
			scenario{"the set is deleted, " + string(how), func(env *environment) { testCascade(env, how) }},
			scenario{"the set is deleted while another owner lives, " + string(how),
				func(env *environment) { testOtherOwnerWhenDeleted(env, how) }})
	}
	env.run(quick, deep...)
}

// configMap creates a ConfigMap, and returns a reference to it.
func (env *environment) configMap() metav1.OwnerReference {
	env.T.Helper()
	made := env.ConfigMaps().Create(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: made.Name, UID: made.UID}
}

// own adds a reference to a claim.
func (s *set) own(ordinal int, ref metav1.OwnerReference) {
	s.T.Helper()
	s.Eventually("the reference is added", func() bool {
		claim := s.claim(ordinal)
		claim.OwnerReferences = append(claim.OwnerReferences, ref)
		_, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Update(s.Ctx, claim, metav1.UpdateOptions{})
		return err == nil
	})
}

func testOtherOwnerWhenScaled(env *environment) {
	s := env.runningSet(2, onScaledown)
	d := s.write(1)
	s.own(1, env.configMap())
	s.scale(1)
	s.waitPods(0, 1)
	s.waitEvent("PersistentVolumeClaim", d.claim.Name, "OtherOwner", "ConfigMap other")
	s.barrier()
	d.isKept()
	s.ConfigMaps().Delete("other")
	s.expectDeleted(d)
}

func testOtherController(env *environment) {
	s := env.runningSet(2, keepAll)
	first, second := s.write(0), s.write(1)
	ref, yes := env.configMap(), true
	ref.Controller = &yes
	s.own(0, ref)
	s.own(1, ref)
	s.setPolicy(onBoth)
	s.waitClaim(1, "marked", func(claim *v1.PersistentVolumeClaim) bool {
		return claim.Annotations[markAnnotation] != ""
	})
	s.scale(1)
	s.waitPods(0, 1)
	s.waitEvent("PersistentVolumeClaim", second.claim.Name, "ConflictingController", "ConfigMap other")
	if claim := s.claim(1); owner(claim, "Pod") != nil || owner(claim, "StatefulSet") != nil {
		s.T.Errorf("owners %+v", claim.OwnerReferences)
	}
	s.barrier()
	second.isKept()
	s.delete(metav1.DeletePropagationBackground)
	s.waitGone()
	s.expectKept(first, second)
}

// testFormerOwner has a claim be owned by a ConfigMap and by a set of the name that is gone: garbage collection removes
// the latter.
func testFormerOwner(env *environment) {
	s := env.runningSet(2, keepAll)
	d := s.write(1)
	s.own(1, env.configMap())
	s.own(1, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: s.name, UID: "gone"})
	s.waitClaim(1, "free of the former owner", func(claim *v1.PersistentVolumeClaim) bool {
		return owner(claim, "StatefulSet") == nil
	})
	s.setPolicy(onSetDeletion)
	s.waitPrepared(onSetDeletion)
	s.expectKept(d)
}

func testCascade(env *environment, how metav1.DeletionPropagation) {
	s := env.runningSet(2, onBoth)
	first, second := s.write(0), s.write(1)
	s.delete(how)
	s.waitGone()
	if how != metav1.DeletePropagationOrphan {
		s.expectDeleted(first, second)
		return
	}
	for n, d := range []disk{first, second} {
		s.waitClaim(n, "free", func(claim *v1.PersistentVolumeClaim) bool {
			return len(claim.OwnerReferences) == 0 && claim.Annotations[markAnnotation] == ""
		})
		s.expectKept(d)
	}
}

// testOtherOwnerWhenDeleted expects two owners to keep a claim until both are gone, or one of them has orphaned it.
func testOtherOwnerWhenDeleted(env *environment, how metav1.DeletionPropagation) {
	s := env.runningSet(2, onSetDeletion)
	first, second := s.write(0), s.write(1)
	s.own(1, env.configMap())
	s.delete(how)
	s.waitGone()
	if how == metav1.DeletePropagationOrphan {
		s.expectKept(first)
	} else {
		s.expectDeleted(first)
	}
	s.waitClaim(1, "owned by the ConfigMap alone", func(claim *v1.PersistentVolumeClaim) bool {
		return len(claim.OwnerReferences) == 1 && owner(claim, "ConfigMap") != nil
	})
	second.isKept()
	s.ConfigMaps().Delete("other")
	if how == metav1.DeletePropagationOrphan {
		s.waitClaim(1, "terminating", func(claim *v1.PersistentVolumeClaim) bool { return claim.DeletionTimestamp != nil })
		s.deletePod(1)
	}
	s.expectDeleted(second)
}

// TestBadInput plays common mistakes. Each has an Event, and no claim is deleted.
func TestBadInput(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	quick, deep := []scenario{{"a forged mark", testForgedMark}}, []scenario{
		{"a grace that is no duration", func(env *environment) {
			s := env.runningSet(2, onScaledown, withAnnotation(graceAnnotation, "a while"))
			s.waitEvent("StatefulSet", s.name, "InvalidClaimRetention", "a while")
		}},
		{"templates that give the same names", testNamesCollide},
	}
	if env.field {
		env.run(quick, append(deep, scenario{"an annotation beside the field", testIgnoredAnnotation})...)
		return
	}
	for what, value := range map[string]string{
		"no JSON":             "Delete",
		"another type":        `["Delete"]`,
		"an unknown word":     `{"whenDeleted":"Delete","whenScaled":"delete"}`,
		"an unknown name":     `{"whenDeleted":"Delete","whenscaled_":"Delete"}`,
		"more than one value": `{"whenDeleted":"Delete","whenScaled":"Delete"} {}`,
		"nothing":             "",
	} {
		deep = append(deep, scenario{"an annotation with " + what, func(env *environment) { testInvalid(env, value) }})
	}
	env.run(quick, append(deep, scenario{"a set without templates", testNoTemplates})...)
}

// testInvalid has a policy that deletes become invalid.
func testInvalid(env *environment, value string) {
	s := env.runningSet(2, onBoth)
	first, second := s.write(0), s.write(1)
	s.patch(fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, policyAnnotation, quoted(value)))
	s.waitEvent("StatefulSet", s.name, "InvalidClaimRetention", policyAnnotation)
	s.waitPrepared(keepAll)
	s.scale(1)
	s.waitPods(0, 1)
	s.delete(metav1.DeletePropagationBackground)
	s.waitGone()
	s.expectKept(first, second)
}

func testNoTemplates(env *environment) {
	s := env.makeSet("web", 1, onBoth, func(o *appsv1.StatefulSet) { o.Spec.VolumeClaimTemplates = nil })
	s.waitPods(0, 1)
	s.waitEvent("StatefulSet", s.name, "NoVolumeClaimTemplates", "")
}

// testIgnoredAnnotation sets an annotation on a set whose field is Retain.
func testIgnoredAnnotation(env *environment) {
	s := env.runningSet(2, keepAll, withAnnotation(policyAnnotation, annotated(onBoth)))
	first, second := s.write(0), s.write(1)
	s.waitEvent("StatefulSet", s.name, "ClaimRetentionIgnored", annotated(keepAll))
	s.scale(1)
	s.waitPods(0, 1)
	s.delete(metav1.DeletePropagationBackground)
	s.waitGone()
	s.expectKept(first, second)
}

// testNamesCollide has two sets with templates that name the same claims, so that their pods share the volumes.
func testNamesCollide(env *environment) {
	named := func(template string) func(*appsv1.StatefulSet) {
		return func(o *appsv1.StatefulSet) { o.Spec.VolumeClaimTemplates[0].Name = template }
	}
	p := onBoth
	if env.field {
		p = keepAll // or kube-controller-manager deletes the claims of one set while pods of the other use them
	}
	one := env.makeSet("a-b", 2, p, named("c"))
	one.waitPods(0, 2)
	other := env.makeSet("b", 2, p, named("c-a"))
	other.waitPods(0, 2)
	d := env.writeTo(env.claimNamed("c-a-b-1"))
	if env.field {
		for _, s := range []*set{one, other} {
			s.setPolicy(onScaledown)
		}
	}
	for _, s := range []*set{one, other} {
		s.waitEvent("StatefulSet", s.name, "NamesCollide", "")
	}
	if !env.field {
		one.scale(1)
		one.waitPods(0, 1)
		other.scale(1)
		other.waitPods(0, 1)
	}
	env.expectKept(d)
}

// testForgedMark shows that permission to annotate a claim is no permission to delete it.
func testForgedMark(env *environment) {
	s := env.runningSet(1, onScaledown)
	o := s.object()
	var kept []disk
	for _, name := range []string{"other", "data-web-7", "data-other-0"} {
		claim := env.template(name)
		made := env.Claims().Create(&claim)
		env.Claims().Annotate(name, markAnnotation, s.mark(o, 0, onScaledown, made.UID))
		kept = append(kept, env.writeTo(env.claimNamed(name)))
	}
	s.scale(0)
	s.waitPods(0, 0)
	s.expectKept(kept...)
}
