//go:build unix

package statefulset

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
)

// gateEnvironment is a control plane on which the test enables and disables the policy.
type gateEnvironment struct{ *environment }

// TestFeatureGate plays the proposal's tests of upgrade, downgrade, enablement and disablement: the built-in policy is
// disabled and enabled again while claims are in every phase, and no claim that must stay is lost.
func TestFeatureGate(t *testing.T) {
	if builtIn() {
		t.Skip("from Kubernetes 1.32 on, it cannot be disabled")
	}
	t.Parallel()
	env := &gateEnvironment{newEnvironmentWith(t, controlplane.Options{Scheduler: true})}
	env.field = true
	env.Start("--leader-election=false")
	p := env.phases()
	env.enable(false)
	env.testDisabled(p)
	fresh := env.annotatedSets()
	env.enable(true)
	env.testEnabledAgain(p, fresh)
	env.finish()
}

// enable restarts the API server and the controller manager with the policy enabled or disabled.
func (env *gateEnvironment) enable(is bool) {
	env.T.Helper()
	env.Must(env.Plane.APIServer.Restart(env.Ctx, gate(is)))
	env.Must(env.Plane.ControllerManager.Restart(env.Ctx, gate(is)))
	env.field = is
}

// named is a set with the disks of its two replicas.
type named struct {
	*set
	disks []disk
}

func (env *gateEnvironment) named(name string, p policy, annotations ...string) named {
	env.T.Helper()
	// A copy, so that the set's view of the cluster does not change with the gate.
	sub := *env.environment
	s := sub.makeSet(name, 2, p)
	for i := 0; i < len(annotations); i += 2 {
		s.annotate(annotations[i], annotations[i+1])
	}
	return named{set: s}
}

// running waits until the set runs, and writes to its volumes.
func (n *named) running(p policy) {
	n.T.Helper()
	n.waitPods(0, 2)
	n.waitPrepared(p)
	n.disks = []disk{n.write(0), n.write(1)}
}

// phases are sets with claims in each of the phases.
type phases struct {
	inRange, later, ending, lost, retained, terminating, deleted named
}

func (env *gateEnvironment) phases() phases {
	env.T.Helper()
	p := phases{
		inRange: env.named("in-range", onBoth), later: env.named("later", onBoth), ending: env.named("ending", onBoth),
		lost:     env.named("lost", onScaledown, graceAnnotation, "1h"),
		retained: env.named("retained", keepAll), terminating: env.named("terminating", onBoth),
		deleted: env.named("deleted", onSetDeletion),
	}
	for _, n := range []*named{&p.inRange, &p.later, &p.ending, &p.terminating} {
		n.running(onBoth)
	}
	p.lost.running(onScaledown)
	p.retained.running(keepAll)
	p.deleted.running(onSetDeletion)

	// Condemned with a pod, which does not end.
	p.ending.hold(1)
	p.ending.scale(1)
	p.ending.waitOwnedByPod(1)
	// Condemned without a pod, and in its grace.
	p.lost.abandon()
	p.lost.waitEvent("PersistentVolumeClaim", p.lost.disks[1].claim.Name, "ScaleDownGrace", "")
	// Retained.
	p.retained.scale(1)
	p.retained.waitPods(0, 1)
	// Terminating, while its pod runs.
	env.MustDeleteClaim(p.terminating.disks[1].claim)
	return p
}

// testDisabled shows the kept and the deleted claims while Kubernetes has no policy. The API still shows the field of
// sets that were stored with it, and volume-guard carries out its policy for scale-downs.
func (env *gateEnvironment) testDisabled(p phases) {
	env.T.Helper()
	for _, n := range []named{p.inRange, p.later, p.lost, p.retained, p.deleted} {
		for _, d := range n.disks {
			d.isKept()
		}
	}
	if stored := p.inRange.object().Spec.PersistentVolumeClaimRetentionPolicy; stored == nil || *stored != onBoth {
		env.T.Fatalf("the stored field is %v", stored)
	}
	// The proposal: "the others with set policies before upgrade gets deleted based on if the references were already
	// set".
	p.ending.unhold(1)
	env.expectDeleted(p.ending.disks[1])
	p.deleted.delete(metav1.DeletePropagationBackground)
	env.expectDeleted(p.deleted.disks...)
	env.expectKept(p.ending.disks[0], p.retained.disks[0], p.retained.disks[1])

	p.lost.annotate(graceAnnotation, "0s")
	env.expectDeleted(p.lost.disks[1])
	env.expectKept(p.lost.disks[0])
	p.later.scale(1)
	env.expectDeleted(p.later.disks[1])
	p.later.disks[0].isKept()

	p.terminating.deletePod(1)
	env.expectDeleted(p.terminating.disks[1])
	p.terminating.waitPods(0, 2)
	p.terminating.expectEmpty(1, p.terminating.disks[1])
	env.expectKept(p.terminating.disks[0])

	// The way out of a stored field.
	p.inRange.field = false
	p.inRange.patch(`{"spec":{"persistentVolumeClaimRetentionPolicy":null},"metadata":{"annotations":{"` +
		policyAnnotation + `":` + quoted(annotated(keepAll)) + `}}}`)
	if stored := p.inRange.object().Spec.PersistentVolumeClaimRetentionPolicy; stored != nil {
		env.T.Fatalf("the stored field is still %v", stored)
	}
}

// annotatedSets are created while Kubernetes has no policy: the annotation of one deletes claims, the other's keeps
// them.
func (env *gateEnvironment) annotatedSets() []named {
	env.T.Helper()
	deletes, keeps := env.named("annotated", onBoth), env.named("annotated-keeps", keepAll)
	deletes.running(onBoth)
	keeps.running(keepAll)
	return []named{deletes, keeps}
}

// testEnabledAgain expects the field Retain on all sets that do not have it stored, and expects the field to win.
func (env *gateEnvironment) testEnabledAgain(p phases, annotatedSets []named) {
	env.T.Helper()
	for _, n := range append(annotatedSets, p.inRange) {
		n.field = true
		if now := n.object().Spec.PersistentVolumeClaimRetentionPolicy; now == nil || *now != keepAll {
			env.T.Fatalf("the field of %s is %v", n.name, now)
		}
		n.waitPrepared(keepAll) // the owners added for the annotation are removed
	}
	fresh := annotatedSets[0]
	fresh.scale(1)
	fresh.waitPods(0, 1)
	// A watch that goes on over the restart shows the field of a set once something writes to the set.
	fresh.waitEvent("StatefulSet", fresh.name, "ClaimRetentionIgnored", annotated(keepAll))
	env.expectKept(fresh.disks...)
	fresh.scale(2)
	fresh.waitPods(0, 2)
	for _, n := range append(annotatedSets, p.inRange) {
		n.delete(metav1.DeletePropagationBackground)
		n.waitGone()
		env.expectKept(n.disks...)
	}
	// A policy that was stored all the time is in force again.
	p.later.field = true
	p.later.waitPrepared(onBoth)
	p.later.delete(metav1.DeletePropagationForeground)
	p.later.waitGone()
	env.expectDeleted(p.later.disks[0])
}
