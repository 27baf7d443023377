//go:build unix

package volumeguard

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	protectpv "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// newWithVolumeGuard starts a separate control plane for this test, because volume-guard works on the whole cluster,
// and grants a service account volume-guard's permissions from deploy/. The environment has no driver.
func newWithVolumeGuard(t *testing.T, v controlplane.Version, options controlplane.Options) *environment {
	t.Helper()
	env := newWithControlPlane(t, v, options)
	env.Must(rbac.GrantGuard(env.Ctx, env.Client, env.Namespace, fixture.VolumeGuardName))
	return env
}

// unprotected has a controller manager run without its own controllers for the protection of claims and PVs.
func unprotected() controlplane.Options {
	return controlplane.Options{
		Controllers: []string{"*", "-persistentvolumeclaim-protection-controller", "-persistentvolume-protection-controller"},
	}
}

// protecting returns flags with which volume-guard protects claims and PVs, and quickly finds out that no other program
// does.
func protecting() []string {
	return []string{"--controllers=*,pvc-protection,pv-protection", "--protection-patience=2s"}
}

// TestInUseClaimIsKeptWithoutKubernetesController disables the controller of kube-controller-manager.
func TestInUseClaimIsKeptWithoutKubernetesController(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newWithVolumeGuard(t, controlplane.Newest, unprotected())
	fakenode.ForTest(t, env.Plane, "node", fakenode.Config{})
	env.Start(protecting()...)
	claim := env.CreateClaim("none")
	pod := env.CreatePod(objects.PodSpec{Name: "user", Claims: []string{claim.Name}, Node: "node"})
	env.WaitRunning(pod)
	env.MustDeleteClaim(claim)
	env.WaitClaimEvent(claim, "InUse", "Pod user")
	env.Must(pod.Delete(env.Ctx))
	env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
}

// unresponsiveNode is a node without a kubelet: deleted pods there end only by force.
const unresponsiveNode = "mute"

func (env *environment) createUnresponsiveNode() {
	env.T.Helper()
	env.Nodes().Create(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: unresponsiveNode}})
}

// createPodWithClaim makes a pod that uses a claim, on a node, or on none.
func (env *environment) createPodWithClaim(claim *objects.Claim, node string) *objects.Pod {
	env.T.Helper()
	pod := env.CreatePod(objects.PodSpec{Name: "pod-" + rand.String(8), Claims: []string{claim.Name},
		Node: node})
	return pod
}

// setPodPhase has a pod end by itself, as its kubelet would say.
func (env *environment) setPodPhase(pod *objects.Pod, phase v1.PodPhase) {
	env.T.Helper()
	env.Pods().Merge(pod.Name, fmt.Sprintf(`{"status":{"phase":%q}}`, phase), "status")
}

// deletePodNow deletes a pod by force.
func (env *environment) deletePodNow(name string) {
	env.T.Helper()
	env.Pods().Delete(name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
}

// expectDeletedAtOnce deletes a claim and waits for its end.
func (env *environment) expectDeletedAtOnce(claim *objects.Claim) {
	env.T.Helper()
	env.MustDeleteClaim(claim)
	env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
}

// expectHeld checks that a claim that is being deleted is there after all that was decided before was carried out. It
// needs a volume-guard that protects claims, which alone ends another claim for it.
func (env *environment) expectHeld(claim *objects.Claim) {
	env.T.Helper()
	env.expectDeletedAtOnce(env.CreateClaim("none"))
	now, err := claim.Get(env.Ctx)
	if env.Must(err); now == nil || now.DeletionTimestamp == nil {
		env.T.Errorf("WRONG END: claim %s is in use and %s", claim.Name, objects.DescribeClaim(now))
	}
}

// TestInUseClaims disables the controller of kube-controller-manager: claims that a pod uses stay, claims that no pod
// uses are deleted.
func TestInUseClaims(t *testing.T) {
	t.Parallel()
	env := newWithVolumeGuard(t, fixture.Version(), unprotected())
	fakenode.ForTest(t, env.Plane, "node", fakenode.Config{})
	env.createUnresponsiveNode()
	flags := append(protecting(), "--leader-election=false", "--retry-interval-start=50ms", "--retry-interval-max=500ms")
	g := env.Start(flags...)
	run := func(sentence string, test func(*environment)) {
		t.Run(sentence, func(t *testing.T) { test(env.forSubtest(t)) })
	}
	run("a claim gets the finalizer", func(env *environment) {
		claim := env.CreateClaim("none")
		env.Claims().Merge(claim.Name, `{"metadata":{"finalizers":null}}`)
		env.WaitClaim(claim, "protected", func(now *v1.PersistentVolumeClaim) bool {
			return now != nil && slices.Contains(now.Finalizers, pvc.Finalizer)
		})
	})
	run("no pod uses it", func(env *environment) { env.expectDeletedAtOnce(env.CreateClaim("none")) })
	run("a pod without a node does not hold it", func(env *environment) {
		claim := env.CreateClaim("none")
		env.createPodWithClaim(claim, "")
		env.expectDeletedAtOnce(claim)
	})
	run("a pod that is being deleted holds it, until it is forced", func(env *environment) {
		claim := env.CreateClaim("none")
		pod := env.createPodWithClaim(claim, unresponsiveNode)
		env.MustDeleteClaim(claim)
		env.WaitClaimEvent(claim, "InUse", "Pod "+pod.Name)
		env.Must(pod.Delete(env.Ctx))
		env.Must(pod.Wait(env.WithTimeout(), "terminating", func(pod *v1.Pod) bool {
			return pod != nil && pod.DeletionTimestamp != nil
		}))
		env.expectHeld(claim)
		env.deletePodNow(pod.Name)
		env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
	})
	run("the next pod of the name holds it if it uses it", func(env *environment) {
		claim := env.CreateClaim("none")
		pod := env.createPodWithClaim(claim, unresponsiveNode)
		again := func(claims ...string) {
			env.deletePodNow(pod.Name)
			env.CreatePod(objects.PodSpec{Name: pod.Name, Claims: claims, Node: unresponsiveNode})
		}
		again(claim.Name)
		env.MustDeleteClaim(claim)
		env.WaitClaimEvent(claim, "InUse", "Pod "+pod.Name)
		env.expectHeld(claim)
		again()
		env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
	})
	run("a generic ephemeral volume is deleted with its pod", func(env *environment) {
		pod := env.CreatePod(objects.PodSpec{Name: "pod-" + rand.String(8), Node: "node", Change: ephemeral})
		var claim *objects.Claim
		env.Eventually("the claim of the volume is there", func() bool {
			made := env.Claims().Find(pod.Name + "-cache")
			if made != nil {
				claim = env.ClaimOf(made)
			}
			return made != nil
		})
		env.WaitRunning(pod)
		env.MustDeleteClaim(claim)
		env.WaitClaimEvent(claim, "InUse", "Pod "+pod.Name)
		env.expectHeld(claim)
		env.Must(pod.Delete(env.Ctx))
		env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
		env.Must(pod.WaitGone(env.WithTimeout()))
	})
	run("a list that fails means in use", func(env *environment) {
		claim := env.CreateClaim("none")
		allow := env.denyPodLists()
		env.MustDeleteClaim(claim)
		env.WaitClaimEvent(claim, "APIReadFailed", "forbidden")
		if now, err := claim.Get(env.Ctx); err != nil || now == nil {
			env.T.Errorf("WRONG END: %v: nobody knows who used claim %s", err, claim.Name)
		}
		allow()
		env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
	})
	run("a terminated pod does not hold it", func(env *environment) {
		for _, phase := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} {
			claim := env.CreateClaim("none")
			pod := env.createPodWithClaim(claim, unresponsiveNode)
			env.MustDeleteClaim(claim)
			env.WaitClaimEvent(claim, "InUse", "Pod "+pod.Name)
			env.setPodPhase(pod, phase)
			env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
		}
	})
	env.Restart(g, "--terminated-pods=hold")
	run("with --terminated-pods=hold it stays until the pod is deleted", func(env *environment) {
		claim := env.CreateClaim("none")
		pod := env.createPodWithClaim(claim, unresponsiveNode)
		env.setPodPhase(pod, v1.PodSucceeded)
		env.MustDeleteClaim(claim)
		env.WaitClaimEvent(claim, "InUseByEndedPod", "Pod "+pod.Name)
		env.expectHeld(claim)
		env.deletePodNow(pod.Name)
		env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
	})
}

// holdFinalizer is the test's own finalizer, which keeps a claim regardless of other programs.
const holdFinalizer = "e2e.csi-reclaimer.io/held"

func withHoldFinalizer(claim *objects.ClaimSpec) {
	claim.Change = func(claim *v1.PersistentVolumeClaim) { claim.Finalizers = []string{holdFinalizer} }
}

// removeHold removes that finalizer.
func (env *environment) removeHold(claim *objects.Claim) {
	env.T.Helper()
	env.Claims().Patch(claim.Name, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+holdFinalizer+`"]}}`)
}

// ephemeral gives a pod a generic ephemeral volume "cache".
func ephemeral(pod *v1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, objects.EphemeralVolume("cache", "none"))
}

// denyPodLists denies volume-guard to list pods, while its watch stays open, until allow is called.
func (env *environment) denyPodLists() (allow func()) {
	env.T.Helper()
	var before []*rbacv1.ClusterRole
	for _, role := range env.ClusterRoles().List() {
		if !strings.Contains(role.Name, fixture.VolumeGuardName) {
			continue
		}
		before = append(before, role.DeepCopy())
		for i := range role.Rules {
			if slices.Contains(role.Rules[i].Resources, "pods") {
				role.Rules[i].Verbs = slices.DeleteFunc(role.Rules[i].Verbs, func(verb string) bool { return verb == "list" })
			}
		}
		// A rule without a verb is invalid.
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return len(rule.Verbs) == 0 })
		env.ClusterRoles().Update(role)
	}
	env.Eventually("lists of pods are denied", func() bool { return !env.IsAllowed("list", "", "pods") })
	return func() {
		for _, role := range before {
			role.ResourceVersion = ""
			env.ClusterRoles().Update(role)
		}
	}
}

// TestInUseManyClaims deletes thousands of claims of one namespace at once.
func TestInUseManyClaims(t *testing.T) {
	fixture.Begin(t, fixture.AboutLoad)
	many := fixture.Size(10_000, 500)
	env := newWithVolumeGuard(t, fixture.Version(), unprotected())
	env.Ctx = t.Context() // all of them may take longer than other tests
	env.Start(protecting()...)
	claims := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace)
	made := make([]*objects.Claim, many)
	each := func(do func(i int) error) {
		var users errgroup.Group
		users.SetLimit(fixture.Concurrency)
		for i := range made {
			users.Go(func() error { return do(i) })
		}
		env.Must(users.Wait())
	}
	each(func(i int) (err error) { made[i], err = env.TryCreateClaim("none"); return err })
	each(func(i int) error { return made[i].Delete(env.Ctx) })
	for {
		list, err := claims.List(env.Ctx, metav1.ListOptions{Limit: 1})
		if env.Must(err); len(list.Items) == 0 {
			break
		}
		env.Must(env.ClaimOf(&list.Items[0]).WaitGone(env.Ctx))
	}
	canary := env.CreateClaim("none") // behind the writes for the others
	env.MustDeleteClaim(canary)
	env.WaitClaim(canary, "gone", fixture.ClaimIsGone)
	lists := env.AuditEvents(env.User, func(e controlplane.AuditEvent) bool {
		return e.Resource == "pods" && e.Verb == "list" && e.Namespace == env.Namespace
	})
	writes := slices.DeleteFunc(env.WritesTo(many+1, "persistentvolumeclaims"),
		func(e controlplane.AuditEvent) bool { return e.Name == canary.Name })
	t.Logf("%d claims: %d lists of pods, %d writes", many, len(lists), len(writes))
	if len(lists) == 0 || len(lists) > 100 || len(writes) != many {
		t.Errorf("%d lists of pods for %d claims, want at most 100; %d writes", len(lists), many, len(writes))
	}
}

// In TestInUseControllersYieldToKubernetes, Kubernetes' own controllers protect claims and PVs. volume-guard can notice
// them only by their effects.
func TestInUseControllersYieldToKubernetes(t *testing.T) {
	fixture.Begin(t, fixture.OwnVersions)
	env := newWithVolumeGuard(t, fixture.Version(), controlplane.Options{})
	fakenode.ForTest(t, env.Plane, "node", fakenode.Config{})
	env.createUnresponsiveNode()
	// Above the time of the built-in controllers, even on a machine that delays them for half of it.
	beside := []string{"--controllers=*,pvc-protection,pv-protection", "--protection-patience=1m"}
	g := env.Start(beside...)
	for i := range fixture.Size(200, 40) {
		vol := env.MakeVolume(objects.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain})
		claim := env.claimOf(vol)
		var pod *objects.Pod
		if i%4 == 0 {
			pod = env.createPodWithClaim(claim, "node")
		}
		env.Must(vol.DeletePV(env.Ctx))
		env.MustDeleteClaim(claim)
		if pod != nil {
			env.WaitClaimEvent(claim, "InUse", pod.Name)
			env.Must(pod.Delete(env.Ctx))
		}
		env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
		env.Must(vol.WaitGone(env.WithTimeout()))
	}
	for _, kind := range []string{"PersistentVolume", "PersistentVolumeClaim"} {
		env.WaitMetric(g, `csi_reclaimer_protection_alone{kind="`+kind+`"}`, "0")
	}
	env.Must(g.Terminate())
	// The program has ended: no more come.
	if writes := env.WritesTo(0, "persistentvolumeclaims", "persistentvolumes"); len(writes) != 0 {
		t.Errorf("%d writes where others do the work, such as %+v", len(writes), writes[0])
	}
	env.expectNothingToRelease(beside...)
}

// claimOf returns the claim of a volume.
func (env *environment) claimOf(vol *objects.Volume) *objects.Claim {
	env.T.Helper()
	claim, err := vol.Claim(env.Ctx)
	env.Must(err)
	return env.ClaimOf(claim)
}

// TestInUsePVs disables the controller of kube-controller-manager: bound PVs stay, others are deleted.
func TestInUsePVs(t *testing.T) {
	t.Parallel()
	env := newWithVolumeGuard(t, fixture.Version(), unprotected())
	env.Start(protecting()...)
	vol := func(change func(*v1.PersistentVolume), unclaimed bool) *objects.Volume {
		return env.MakeVolume(objects.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain, Unclaimed: unclaimed,
			Change: change})
	}
	bare := func(vol *objects.Volume) {
		env.PVs().Merge(vol.Name, `{"metadata":{"finalizers":null}}`)
	}
	kept := func(pv *v1.PersistentVolume) bool { return slices.Contains(pv.Finalizers, protectpv.Finalizer) }

	free, bound := vol(nil, true), vol(nil, false)
	twin := vol(func(pv *v1.PersistentVolume) { pv.Labels = map[string]string{"csi-reclaimer.io/twin-of": "x"} }, true)
	bare(twin)
	for _, each := range []*objects.Volume{free, bound} {
		bare(each)
		env.WaitPV(each, "protected", kept)
	}
	env.Must(bound.DeletePV(env.Ctx))
	env.WaitPVEvent(bound, "Bound", "bound to a claim")
	env.Must(free.DeletePV(env.Ctx))
	env.Must(free.WaitGone(env.WithTimeout()))
	env.WaitPV(bound, "there", func(pv *v1.PersistentVolume) bool { return kept(pv) && pv.Status.Phase == v1.VolumeBound })
	env.WaitPV(twin, "unprotected", func(pv *v1.PersistentVolume) bool { return !kept(pv) })
	env.Must(bound.DeleteClaim(env.Ctx))
	env.Must(bound.WaitGone(env.WithTimeout()))
	env.Must(twin.DeletePV(env.Ctx))
	env.Must(twin.WaitGone(env.WithTimeout()))
}
