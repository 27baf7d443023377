//go:build unix

package statefulset

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// TestGapsOfKubernetes stops volume-guard, brings sets into the states that Kubernetes does not resolve, and shows that
// it does not. Then volume-guard resolves them as soon as it runs.
func TestGapsOfKubernetes(t *testing.T) {
	t.Parallel()
	env := newOwnEnvironment(t)
	g := env.Start("--leader-election=false")
	t.Run("a condemned claim without a pod", func(t *testing.T) { testCondemned(env.scenario(t), g) })
	t.Run("a set that stays without a pod", func(t *testing.T) {
		if !env.field {
			t.Skip("where Kubernetes does not delete the claim, its StatefulSet controller has no reason to wait")
		}
		testStuck(env.scenario(t), g)
	})
}

// testCondemned has the pod be deleted by hand before the scale-down. The claims of a policy that was turned to Delete
// after the scale-down, and of a set that was created again with fewer replicas, are not condemned: see TestPolicy.
func testCondemned(env *environment, g *program.Program) {
	s := env.runningSet(2, onScaledown)
	first, second := s.write(0), s.write(1)
	env.Must(g.Terminate())
	s.abandon()
	s.setFirstReady(true)
	// A controller manager that starts works on all sets again.
	env.Must(env.Plane.ControllerManager.Restart(env.Ctx))
	s.patch(`{"spec":{"minReadySeconds":1}}`)
	s.waitSynced(1)
	second.isKept()
	if ref := owner(s.claim(1), "Pod"); ref != nil {
		env.T.Errorf("Kubernetes has given the claim an owner: %+v", ref)
	}
	env.T.Log("Kubernetes alone leaves the claim there")
	env.Must(g.Restart())
	began := time.Now()
	s.expectDeleted(second)
	env.T.Logf("volume-guard has deleted it %s after its start", time.Since(began).Round(100*time.Millisecond))
	first.isKept()
	s.scale(2)
	s.waitPods(0, 2)
	s.expectEmpty(1, second)
	first.isKept()
}

// testStuck scales sets 2 -> 1 -> 2 while a pod ends, until the StatefulSet controller forgets one of them.
func testStuck(env *environment, g *program.Program) {
	const sets, rounds = 4, 5
	for round := range rounds {
		var all []*set
		var old []disk
		for range sets {
			other := *env
			other.Environment = env.InOtherNamespace()
			all = append(all, other.makeSet("web", 2, onScaledown, slowly))
		}
		for _, s := range all {
			s.waitPods(0, 2)
			s.waitPrepared(onScaledown)
			old = append(old, s.write(1))
		}
		env.Must(g.Terminate())
		for _, s := range all {
			s.ends()
			s.scale(2)
		}
		env.expectDeleted(old...)
		stuck := env.stuck(all)
		env.T.Logf("round %d: of %d sets, %d have neither the pod nor the claim", round+1, sets, len(stuck))
		env.Must(g.Restart())
		began, woken := time.Now(), 0
		for i, s := range all {
			s.waitPods(0, 2)
			took := time.Since(began).Round(100 * time.Millisecond)
			s.expectEmpty(1, old[i])
			s.Eventually("the annotation is removed", func() bool { return s.object().Annotations[wokenAnnotation] == "" })
			if !slices.Contains(stuck, s) {
				continue
			}
			is := len(s.Events(v1.ObjectReference{Kind: "StatefulSet", Name: s.name}, "Woken")) > 0
			env.T.Logf("a set that seemed stuck has its pod %s after the start of volume-guard, woken: %t", took, is)
			if is {
				woken++
			}
		}
		if woken > 0 {
			return
		}
	}
	env.T.Errorf("no set was stuck, and woken, in %d rounds", rounds)
}

// stuck returns the sets that have neither the pod nor its claim after the StatefulSet controller has worked on a later
// set. They include sets in the pause before a retry. volume-guard wakes none of those, because it waits for a quiet
// time longer than the pause.
func (env *environment) stuck(all []*set) (stuck []*set) {
	env.T.Helper()
	other := *env
	other.Environment = env.InOtherNamespace()
	other.makeSet("canary", 1, onScaledown).waitPods(0, 1)
	for _, s := range all {
		if s.claim(1) == nil && s.pods()[s.podName(1)] == nil {
			stuck = append(stuck, s)
		}
	}
	return stuck
}
