//go:build unix

package operations

import (
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// Each test follows the steps of docs/how-to/migrate.md, in its order.

// stockVersions returns the kinds of external-provisioners, and whether they honour the reclaim policy.
func stockVersions() map[string]bool { return map[string]bool{"5.0 and newer": true, "older": false} }

// stockFlags returns the flags with which the peer acts as external-provisioner.
func stockFlags() []string { return []string{"--provision", "--retry-interval-start=1s"} }

// volumesInEachPhase is a driver's volumes at the moment at which another program takes over, in each phase of their
// life.
type volumesInEachPhase struct {
	*environment
	class string
	// bound are bound volumes, terminating is one with a deleted PV, and released one whose driver fails.
	bound                 [2]*fixture.Provisioned
	terminating, released *fixture.Provisioned
	// inFlight has a volume that only the driver knows.
	inFlight *objects.Claim
	// kept are released PVs that stay.
	kept []*objects.Volume
}

// newVolumesInEachPhase has the current provisioner create them. Unfinished work stays so until the driver's faults are
// cleared.
func (env *environment) newVolumesInEachPhase() *volumesInEachPhase {
	env.T.Helper()
	c := &volumesInEachPhase{environment: env, class: env.CreateStorageClass()}
	var claims [4]*objects.Claim
	for i := range claims {
		claims[i] = env.CreateClaim(c.class)
	}
	c.bound = [2]*fixture.Provisioned{env.WaitBound(claims[0]), env.WaitBound(claims[1])}
	c.terminating, c.released = env.WaitBound(claims[2]), env.WaitBound(claims[3])
	c.failDriver(true)
	env.MustDeleteClaim(c.released.BoundClaim)
	env.WaitDeleteCalls(c.released.Volume, 1)
	env.Must(c.terminating.DeletePV(env.Ctx))
	env.WaitPV(c.terminating.Volume, "terminating",
		func(pv *v1.PersistentVolume) bool { return pv.DeletionTimestamp != nil })
	c.createInFlight()
	return c
}

// failDriver has the driver fail to delete the one volume, and, with creations, not answer that it has made any.
func (c *volumesInEachPhase) failDriver(creations bool) {
	c.T.Helper()
	rules := []faults.Rule{{Method: "DeleteVolume", Volume: c.released.Handle, Action: faults.Fail, Code: "Internal"}}
	if creations {
		rules = append(rules, fixture.DelayCreateVolume(true, time.Minute))
	}
	c.SetFaults(rules...)
}

func (c *volumesInEachPhase) createInFlight() {
	c.T.Helper()
	c.inFlight = c.CreateClaim(c.class)
	c.Eventually("the volume is on the disk", func() bool { return c.volumesOf(c.inFlight) == 1 })
}

// volumesOf counts the volumes that were made for a claim.
func (c *volumesInEachPhase) volumesOf(claim *objects.Claim) (n int) {
	c.T.Helper()
	volumes, err := c.MockDriver.Volumes()
	c.Must(err)
	for _, v := range volumes {
		if v.Name == fixture.PVName(claim) {
			n++
		}
	}
	return n
}

// finishTerminating lets pending deletions end.
func (c *volumesInEachPhase) finishTerminating() {
	c.T.Helper()
	c.Must(c.MockDriver.ClearFaults(c.Ctx))
	c.MustDeleteClaim(c.terminating.BoundClaim)
	for _, vol := range []*fixture.Provisioned{c.terminating, c.released} {
		c.Must(vol.WaitGone(c.WithTimeout()))
	}
	c.terminating = nil
}

// resumeAndExpect has the driver work again. It expects the current provisioner to give claims their volumes, and to
// delete volumes with their deleted objects, and no others. pvFirst means that this includes PVs deleted before their
// claim. reported means that the volume of a PV that was deleted before it could be protected is reported as left
// behind.
func (c *volumesInEachPhase) resumeAndExpect(pvFirst, reported bool) {
	c.T.Helper()
	c.Must(c.MockDriver.ClearFaults(c.Ctx))
	half, more := c.WaitBound(c.inFlight), c.WaitBound(c.CreateClaim(c.class))
	if n := c.volumesOf(c.inFlight); n != 1 {
		c.T.Errorf("%d volumes of claim %s, want that which was there", n, c.inFlight.Name)
	}
	alive := []*fixture.Provisioned{c.bound[0], c.bound[1], half, more}
	if c.terminating != nil {
		alive = append(alive, c.terminating)
	}
	for _, vol := range alive {
		c.ExpectKept(vol.Volume)
	}
	if pvFirst {
		c.WaitPV(c.bound[1].Volume, "protected", func(pv *v1.PersistentVolume) bool {
			return fixture.HasFinalizer(pv) || hasCompanionFinalizer(pv)
		})
		c.Must(c.bound[1].DeletePV(c.Ctx))
	}
	for _, vol := range alive {
		c.MustDeleteClaim(vol.BoundClaim)
	}
	if reported {
		c.WaitPVEvent(c.terminating.Volume, "VolumeLeftBehind", c.terminating.Handle)
		again := c.MakeVolume(objects.Spec{Handle: c.terminating.Handle}) // a PV brings it back
		c.WaitPV(again, "protected", func(pv *v1.PersistentVolume) bool {
			return fixture.HasFinalizer(pv) || hasCompanionFinalizer(pv)
		})
		c.Must(again.DeleteClaim(c.Ctx))
	}
	c.waitNothingLeft()
}

// waitNothingLeft waits until neither claims nor PVs nor volumes are left, except for the kept ones.
func (c *volumesInEachPhase) waitNothingLeft() {
	c.T.Helper()
	c.Eventually("all claims are gone", func() bool { return len(c.Claims().List()) == 0 })
	c.Eventually("all PVs are gone", func() bool { return len(c.PVsOfDriver()) == len(c.kept) })
	c.Eventually("all volumes are gone", func() bool { return len(c.VolumesOnDisk()) == len(c.kept) })
	c.ExpectKept(c.kept...)
}

func TestMigrateFromExternalProvisioner(t *testing.T) {
	fixture.Begin(t, fixture.AboutPeer)
	for kind, honours := range stockVersions() {
		t.Run(kind, func(t *testing.T) {
			if !honours {
				suite.Deep(t, suite.Variant)
			}
			env := begin(t)
			_, stop := env.StartPeerWithStop(honours, append(stockFlags(), "--leader-election-namespace="+env.Namespace)...)
			c := env.newVolumesInEachPhase()
			look := env.StartSidecar("--dry-run") // 1. a first look
			env.Must(look.WaitLog(env.WithTimeout(), "Would do "))
			env.Must(look.Terminate())
			env.expectNoWrites()
			// 2. and 3. as one change of the pod: the old one still holds the Lease of both.
			car := env.StartSidecar(append(fixture.FastRetries(), "--leader-election",
				"--leader-election-namespace="+env.Namespace,
				"--leader-election-identity=new", "--leader-election-retry-period=500ms")...)
			env.Eventually("it waits for the Lease",
				func() bool { return strings.Contains(car.LogTail(1000), `"New leader" identity="peer"`) })
			env.expectNoWrites()
			stop()
			env.Must(car.WaitLog(env.WithTimeout(), "Became the leader"))
			c.resumeAndExpect(true, !honours)
		})
	}
}

func TestMigrateToCompanionAndBack(t *testing.T) {
	fixture.Begin(t, suite.Variant, fixture.AboutPeer)
	env := newForRole(t, "companion", mockdriver.Options{})
	env.StartPeerWithStop(false, stockFlags()...)
	c := env.newVolumesInEachPhase()
	car := env.StartSidecar(append(fixture.FastRetries(), "--role=companion")...) // 1. start it
	for _, vol := range c.bound {
		env.WaitPV(vol.Volume, "protected by the companion", hasCompanionFinalizer)
	}
	c.resumeAndExpect(true, true)

	left, ends := env.WaitBound(env.CreateClaim(c.class)), env.WaitBound(env.CreateClaim(c.class))
	for _, vol := range []*fixture.Provisioned{left, ends} {
		env.WaitPV(vol.Volume, "protected by the companion", hasCompanionFinalizer)
	}
	env.Must(ends.DeletePV(env.Ctx))
	env.MustDeleteClaim(ends.BoundClaim) // 2. let pending deletions end
	env.Must(ends.WaitGone(env.WithTimeout()))
	env.Must(car.Terminate())                           // 3. stop it
	_, err := env.ReleaseFinalizers("--role=companion") // 4. remove the finalizers
	env.Must(err)
	env.WaitPV(left.Volume, "without our finalizer",
		func(pv *v1.PersistentVolume) bool { return !hasCompanionFinalizer(pv) })
	env.ExpectKept(left.Volume)
	env.MustDeleteClaim(left.BoundClaim)
	c.waitNothingLeft()
}

func TestMigrateToObserverAndBack(t *testing.T) {
	fixture.Begin(t, suite.Load, fixture.AboutPeer)
	env := newForRole(t, "observer", mockdriver.Options{})
	env.StartPeerWithStop(true, stockFlags()...)
	c := env.newVolumesInEachPhase()
	car := env.StartSidecar(append(fixture.FastRetries(), "--role=observer")...) // 1. start it
	c.resumeAndExpect(true, false)
	for _, vol := range []*fixture.Provisioned{c.bound[0], c.bound[1], c.terminating, c.released} {
		if events := env.PVEvents(vol.Volume, "VolumeLeftBehind"); len(events) != 0 {
			t.Errorf("a false alarm about %s: %s", vol.Name, events[0].Message)
		}
	}
	env.Must(car.Terminate()) // 2. stop it
	env.expectNoWrites("events")
	left := env.WaitBound(env.CreateClaim(c.class))
	env.MustDeleteClaim(left.BoundClaim)
	c.waitNothingLeft()
}

func TestMigrateBackToExternalProvisioner(t *testing.T) {
	suite.Deep(t, suite.Load)
	fixture.AboutPeer.Require(t)
	for kind, honours := range stockVersions() {
		t.Run(kind, func(t *testing.T) {
			env := begin(t)
			car := env.StartSidecar(append(fixture.FastRetries(), "--shutdown-grace=1s")...)
			c := env.newVolumesInEachPhase()
			finished := c.inFlight
			c.failDriver(false)
			env.Restart(car, "--provision=false") // 1. finish volumes in flight, and begin none
			env.WaitAllSettled()
			env.WaitBound(finished)
			env.MustDeleteClaim(finished)
			if !honours { // 2. let pending deletions end
				c.finishTerminating()
			}
			held := env.MakeVolume(objects.Spec{Dynamic: true})
			env.AnnotatePV(held, volume.HoldAnnotation, "evidence")
			env.Must(held.DeleteClaim(env.Ctx))
			env.WaitPVEvent(held, "Held", "")
			env.Must(held.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimRetain)) // 3. which it would delete
			c.kept = []*objects.Volume{held}
			c.inFlight = env.CreateClaim(c.class) // no provisioner has begun it
			env.Must(car.Terminate())             // 4. stop csi-reclaimer
			if !honours {                         // 5. remove the finalizers
				_, err := env.ReleaseFinalizers()
				env.Must(err)
			}
			env.StartPeerWithStop(honours, stockFlags()...) // 6. start external-provisioner
			c.resumeAndExpect(honours, false)
		})
	}
}

func TestRollbackAndRollForward(t *testing.T) {
	env := begin(t, suite.Variant)
	car := env.StartSidecar(fixture.FastRetries()...)
	restart := func(args ...string) {
		env.Restart(car, args...)
	}
	bound := env.MakeVolumes(8, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} })
	underway := env.MakeVolume(objects.Spec{}) // released and terminating, held by an attachment
	env.WaitAllPVs(append([]*objects.Volume{underway}, bound...), "protected", fixture.IsProtected)
	attachment := env.Attach(underway)
	env.DeletePVFirst(underway)
	env.WaitPVEvent(underway, "Attached", "")

	restart("--honor-reclaim-policy=false")
	env.WaitAllPVs(bound, "without our finalizer", fixture.WithoutFinalizer)
	env.Detach(attachment)
	env.ExpectReclaimed(underway, 1) // a deletion that had begun is finished
	// As before the KEP: claim first deletes, and that is all.
	env.Must(bound[0].DeleteClaim(env.Ctx))
	env.Must(bound[0].WaitGone(env.WithTimeout()))
	env.ExpectDeleted(bound[0], 1)

	restart("--honor-reclaim-policy=true")
	env.WaitAllPVs(bound[1:], "protected again", fixture.IsProtected)
	env.ForEachVolume(bound[1:4], func(vol *objects.Volume) error { return vol.DeletePV(env.Ctx) })
	env.ForEachVolume(bound[1:], func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(bound, "gone", fixture.IsGone)
	env.ExpectDeletedOnce(bound...)
}

func TestReleaseFinalizers(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
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
	env.ExpectKept(vols...)
}

// TestReleaseRefusesWhilePolicyAddsFinalizer installs the admission policy of volume-guard for one driver.
func TestReleaseRefusesWhilePolicyAddsFinalizer(t *testing.T) {
	fixture.From(t, controlplane.V1_36, "MutatingAdmissionPolicy")
	env := begin(t)
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
	env.MutatingAdmissionPolicies().CreateForTest(&admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"persistentvolumes"}, Scope: ptr.To(admissionv1.ClusterScope)},
				},
			}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "ours",
				Expression: `has(object.spec.csi) && object.spec.csi.driver == "` + env.Driver +
					`" && !has(object.metadata.deletionTimestamp)`},
				{Name: "missing", Expression: `!has(object.metadata.finalizers) || !("` +
					volume.Finalizer + `" in object.metadata.finalizers)`}},
			FailurePolicy:      ptr.To(admissionv1.Ignore),
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: ` +
					`has(object.metadata.finalizers) ? "/metadata/finalizers/-" : "/metadata/finalizers", ` +
					`value: has(object.metadata.finalizers) ? dyn("` +
					volume.Finalizer + `") : dyn(["` + volume.Finalizer + `"])}]`},
			}},
		},
	})
	env.MutatingAdmissionPolicyBindings().CreateForTest(&admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	})
}
