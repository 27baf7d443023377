//go:build unix

package statefulset

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

// TestWrites counts volume-guard's writes to the objects of a namespace.
func TestWrites(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	live := func(env *environment, p policy) {
		s := env.runningSet(2, p)
		first, second := s.write(0), s.write(1)
		s.waitPods(0, 2, s.deletePod(1))
		s.scale(1)
		s.waitPods(0, 1)
		if p.WhenScaled == remove {
			s.expectDeleted(second)
		}
		s.scale(2)
		s.waitPods(0, 2)
		s.waitPrepared(p)
		s.delete(metav1.DeletePropagationBackground)
		s.waitGone()
		if p.WhenDeleted == remove {
			s.expectDeleted(first)
		}
	}
	env.run([]scenario{
		{"Retain", func(env *environment) {
			live(env, keepAll)
			env.expectWrites(map[string]int{})
		}},
	},
		scenario{"without a policy", func(env *environment) {
			s := env.makeSet("web", 2, keepAll, withoutPolicy)
			s.waitPods(0, 2)
			s.scale(1)
			s.waitPods(0, 1)
			s.delete(metav1.DeletePropagationBackground)
			s.waitGone()
			env.expectWrites(map[string]int{})
		}},
		scenario{"DeleteOnScaledownAndStatefulSetDeletion", func(env *environment) {
			live(env, onBoth)
			// A mark for each of the three claims.
			want := map[string]int{"patch persistentvolumeclaims": 3}
			if !env.field {
				// Its owner comes with the mark. The owner of the claim that is scaled away becomes its pod, and the claim ends
				// with the pod, if it is not deleted before.
				want = map[string]int{"patch persistentvolumeclaims": 4, "delete persistentvolumeclaims": 1}
			}
			env.expectWrites(want)
		}},
		scenario{"a claim that has lost its pod", func(env *environment) {
			s := env.runningSet(2, onScaledown)
			d := s.write(1)
			s.abandon()
			s.expectDeleted(d)
			env.expectWrites(map[string]int{"patch persistentvolumeclaims": 2, "delete persistentvolumeclaims": 1})
		}},
	)
}

// expectWrites checks that volume-guard has written no more than this in the namespace, after it could have written
// more. Events count only if no write is expected. On a busy machine the StatefulSet controller can be so slow that
// volume-guard wakes a set whose policy deletes claims: an annotation is added and removed.
func (env *environment) expectWrites(want map[string]int) {
	env.T.Helper()
	env.barrier()
	got := map[string]int{}
	events, err := env.Plane.AuditEventsOf(env.guard, func(e controlplane.AuditEvent) bool {
		return e.Namespace == env.Namespace && !slices.Contains([]string{"get", "list", "watch"}, e.Verb) &&
			(len(want) == 0 || e.Resource != "events") && e.Code < 300
	})
	env.Must(err)
	for _, e := range events {
		got[e.Verb+" "+e.Resource]++
	}
	if len(want) > 0 {
		want["patch statefulsets"] = 2 * len(env.Events(v1.ObjectReference{Kind: "StatefulSet", Name: "web"}, "Woken"))
	}
	for what, n := range got {
		if n > want[what] {
			env.T.Errorf("%d times %s, want %d", n, what, want[what])
		}
	}
	env.T.Logf("writes %v", got)
}
