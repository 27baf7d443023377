//go:build unix

package statefulset

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
		claims := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace)
		made, err := claims.Create(env.Ctx, &claim, metav1.CreateOptions{})
		env.Must(err)
		_, err = claims.Patch(env.Ctx, name, types.MergePatchType,
			[]byte(annotationPatch(markAnnotation, s.mark(o, 0, onScaledown, made.UID))), metav1.PatchOptions{})
		env.Must(err)
		kept = append(kept, env.writeTo(env.claimNamed(name)))
	}
	s.scale(0)
	s.waitPods(0, 0)
	s.expectKept(kept...)
}
