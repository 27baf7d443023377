//go:build unix

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// mute is a node that nobody runs: what is deleted there ends by force alone.
const mute = "mute"

// podWith makes a pod that uses a claim, on a node, or on none.
func (s *stage) podWith(claim *storage.Claim, node string) *storage.Pod {
	s.t.Helper()
	pod, err := s.MakePod(s.ctx, storage.PodSpec{Name: "pod-" + rand.String(8), Claims: []string{claim.Name}, Node: node})
	s.must(err)
	return pod
}

// end has a pod end by itself, as its kubelet would say.
func (s *stage) end(pod *storage.Pod, phase v1.PodPhase) {
	s.t.Helper()
	_, err := s.client.CoreV1().Pods(s.Namespace).Patch(s.ctx, pod.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{}, "status")
	s.must(err)
}

// force deletes a pod by force.
func (s *stage) force(name string) {
	s.t.Helper()
	s.must(s.client.CoreV1().Pods(s.Namespace).Delete(s.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
}

// goes deletes a claim and waits for its end.
func (s *stage) goes(claim *storage.Claim) {
	s.t.Helper()
	s.deleteClaim(claim)
	s.waitClaim(claim, "gone", noClaim)
}

// expectHeld checks that a claim that is being deleted is there after all that was decided before was carried out.
func (s *stage) expectHeld(claim *storage.Claim) {
	s.t.Helper()
	s.goes(s.claim("none"))
	now, err := claim.Get(s.ctx)
	if s.must(err); now == nil || now.DeletionTimestamp == nil {
		s.t.Errorf("WRONG END: claim %s is in use and %s", claim.Name, storage.DescribeClaim(now))
	}
}

// TestProtectClaims where kube-controller-manager's own controller is off: what a pod uses stays, what none uses goes.
func TestProtectClaims(t *testing.T) {
	t.Parallel()
	s := newGuardStage(t, version, unprotected())
	fakenode.ForTest(t, s.plane, "node", fakenode.Config{})
	_, err := s.client.CoreV1().Nodes().Create(s.ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: mute}}, metav1.CreateOptions{})
	s.must(err)
	flags := append(protecting(), "--leader-election=false", "--retry-interval-start=50ms", "--retry-interval-max=500ms")
	g := s.guard(flags...)
	run := func(sentence string, test func(*stage)) {
		t.Run(sentence, func(t *testing.T) { test(s.in(t)) })
	}
	run("a claim gets the finalizer", func(s *stage) {
		claim := s.claim("none")
		_, err := s.client.CoreV1().PersistentVolumeClaims(s.Namespace).Patch(s.ctx, claim.Name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		s.must(err)
		s.waitClaim(claim, "protected", func(now *v1.PersistentVolumeClaim) bool {
			return now != nil && slices.Contains(now.Finalizers, pvc.Finalizer)
		})
	})
	run("nobody uses it", func(s *stage) { s.goes(s.claim("none")) })
	run("a pod without a node does not hold it", func(s *stage) {
		claim := s.claim("none")
		s.podWith(claim, "")
		s.goes(claim)
	})
	run("a pod that is being deleted holds it, until it is forced", func(s *stage) {
		claim := s.claim("none")
		pod := s.podWith(claim, mute)
		s.deleteClaim(claim)
		s.waitTold(claim, "InUse", "Pod "+pod.Name)
		s.must(pod.Delete(s.ctx))
		s.must(pod.Wait(s.soon(), "terminating", func(pod *v1.Pod) bool { return pod != nil && pod.DeletionTimestamp != nil }))
		s.expectHeld(claim)
		s.force(pod.Name)
		s.waitClaim(claim, "gone", noClaim)
	})
	run("the next pod of the name holds it if it uses it", func(s *stage) {
		claim := s.claim("none")
		pod := s.podWith(claim, mute)
		again := func(claims ...string) {
			s.force(pod.Name)
			_, err := s.MakePod(s.ctx, storage.PodSpec{Name: pod.Name, Claims: claims, Node: mute})
			s.must(err)
		}
		again(claim.Name)
		s.deleteClaim(claim)
		s.waitTold(claim, "InUse", "Pod "+pod.Name)
		s.expectHeld(claim)
		again()
		s.waitClaim(claim, "gone", noClaim)
	})
	run("a generic ephemeral volume goes with its pod", func(s *stage) {
		pod, err := s.MakePod(s.ctx, storage.PodSpec{Name: "pod-" + rand.String(8), Node: "node", Change: ephemeral})
		s.must(err)
		var claim *storage.Claim
		s.eventually("the claim of the volume is there", func() bool {
			made, err := s.client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(s.ctx, pod.Name+"-cache", metav1.GetOptions{})
			if err == nil {
				claim = s.ClaimOf(made)
			}
			return err == nil
		})
		_, err = pod.WaitRunning(s.soon())
		s.must(err)
		s.deleteClaim(claim)
		s.waitTold(claim, "InUse", "Pod "+pod.Name)
		s.expectHeld(claim)
		s.must(pod.Delete(s.ctx))
		s.waitClaim(claim, "gone", noClaim)
		s.must(pod.WaitGone(s.soon()))
	})
	run("a list that fails means in use", func(s *stage) {
		claim := s.claim("none")
		allow := s.withoutPodLists()
		s.deleteClaim(claim)
		s.waitTold(claim, "Unreadable", "forbidden")
		if now, err := claim.Get(s.ctx); err != nil || now == nil {
			s.t.Errorf("WRONG END: %v: nobody knows who used claim %s", err, claim.Name)
		}
		allow()
		s.waitClaim(claim, "gone", noClaim)
	})
	run("a pod that has ended lets it go", func(s *stage) {
		for _, phase := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} {
			claim := s.claim("none")
			pod := s.podWith(claim, mute)
			s.deleteClaim(claim)
			s.waitTold(claim, "InUse", "Pod "+pod.Name)
			s.end(pod, phase)
			s.waitClaim(claim, "gone", noClaim)
		}
	})
	s.must(g.Terminate())
	s.must(g.Restart("--terminated-pods=hold"))
	s.must(g.WaitReady(s.soon()))
	run("with --terminated-pods=hold it stays until the pod is deleted", func(s *stage) {
		claim := s.claim("none")
		pod := s.podWith(claim, mute)
		s.end(pod, v1.PodSucceeded)
		s.deleteClaim(claim)
		s.waitTold(claim, "InUseByEndedPod", "Pod "+pod.Name)
		s.expectHeld(claim)
		s.force(pod.Name)
		s.waitClaim(claim, "gone", noClaim)
	})
}

// held is a finalizer of the test's own, which keeps a claim there whatever others do.
const held = "e2e.csi-reclaimer.io/held"

func keepThere(claim *storage.ClaimSpec) {
	claim.Change = func(claim *v1.PersistentVolumeClaim) { claim.Finalizers = []string{held} }
}

// unhold takes it off.
func (s *stage) unhold(claim *storage.Claim) {
	s.t.Helper()
	_, err := s.client.CoreV1().PersistentVolumeClaims(s.Namespace).Patch(s.ctx, claim.Name, types.StrategicMergePatchType,
		[]byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+held+`"]}}`), metav1.PatchOptions{})
	s.must(err)
}

// ephemeral gives a pod a generic ephemeral volume "cache".
func ephemeral(pod *v1.Pod) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "cache", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
		VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("none"), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		}},
	}}})
}

// withoutPodLists takes volume-guard the right to list pods, while its watch goes on, until allow is called.
func (s *stage) withoutPodLists() (allow func()) {
	s.t.Helper()
	roles := s.client.RbacV1().ClusterRoles()
	all, err := roles.List(s.ctx, metav1.ListOptions{})
	s.must(err)
	var before []rbacv1.ClusterRole
	for _, role := range all.Items {
		if !strings.Contains(role.Name, guardName) {
			continue
		}
		before = append(before, *role.DeepCopy())
		for i := range role.Rules {
			if slices.Contains(role.Rules[i].Resources, "pods") {
				role.Rules[i].Verbs = slices.DeleteFunc(role.Rules[i].Verbs, func(verb string) bool { return verb == "list" })
			}
		}
		_, err := roles.Update(s.ctx, &role, metav1.UpdateOptions{})
		s.must(err)
	}
	return func() {
		for _, role := range before {
			role.ResourceVersion = ""
			_, err := roles.Update(s.ctx, &role, metav1.UpdateOptions{})
			s.must(err)
		}
	}
}

// TestProtectManyClaims has thousands of claims of one namespace be deleted at once.
func TestProtectManyClaims(t *testing.T) {
	t.Parallel()
	many := size(10_000, 500)
	s := newGuardStage(t, version, unprotected())
	s.ctx = t.Context() // all of them may take longer than other tests
	s.guard(protecting()...)
	claims := s.client.CoreV1().PersistentVolumeClaims(s.Namespace)
	made := make([]*storage.Claim, many)
	each := func(do func(i int) error) {
		var users errgroup.Group
		users.SetLimit(atOnce)
		for i := range made {
			users.Go(func() error { return do(i) })
		}
		s.must(users.Wait())
	}
	each(func(i int) (err error) { made[i], err = s.tryClaim("none"); return err })
	each(func(i int) error { return made[i].Delete(s.ctx) })
	for left := 1; left > 0; time.Sleep(100 * time.Millisecond) {
		list, err := claims.List(s.ctx, metav1.ListOptions{Limit: 1})
		s.must(err)
		left = len(list.Items)
	}
	lists, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Resource == "pods" && e.Verb == "list" && e.Namespace == s.Namespace
	})
	s.must(err)
	writes := s.settledWritesTo(many, "persistentvolumeclaims")
	t.Logf("%d claims: %d lists of pods, %d writes", many, len(lists), len(writes))
	if len(lists) == 0 || len(lists) > 100 || len(writes) != many {
		t.Errorf("%d lists of pods for %d claims, want at most 100; %d writes", len(lists), many, len(writes))
	}
}

// TestProtectNothingThatOthersDo has Kubernetes' own controllers protect claims and PVs, which cannot be seen but by what they do.
func TestProtectNothingThatOthersDo(t *testing.T) {
	t.Parallel()
	s := newGuardStage(t, version, controlplane.Options{})
	fakenode.ForTest(t, s.plane, "node", fakenode.Config{})
	// Above what the built-in controllers take, also on a busy machine.
	beside := []string{"--controllers=*,pvc-protection,pv-protection", "--protection-patience=20s"}
	g := s.guard(beside...)
	for i := range size(200, 40) {
		vol := s.make(storage.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain})
		claim := s.claimOf(vol)
		var pod *storage.Pod
		if i%4 == 0 {
			pod = s.podWith(claim, "node")
		}
		s.must(vol.DeletePV(s.ctx))
		s.deleteClaim(claim)
		if pod != nil {
			s.waitTold(claim, "InUse", pod.Name)
			s.must(pod.Delete(s.ctx))
		}
		s.waitClaim(claim, "gone", noClaim)
		s.must(vol.WaitGone(s.soon()))
	}
	for _, kind := range []string{"PersistentVolume", "PersistentVolumeClaim"} {
		s.metric(g, `csi_reclaimer_protection_alone{kind="`+kind+`"}`, "0")
	}
	if writes := s.settledWritesTo(0, "persistentvolumeclaims", "persistentvolumes"); len(writes) != 0 {
		t.Errorf("%d writes where others do the work, such as %+v", len(writes), writes[0])
	}
	s.must(g.Terminate())
	s.releaseNothing(beside...)
}

// claimOf returns the claim of a volume.
func (s *stage) claimOf(vol *storage.Volume) *storage.Claim {
	s.t.Helper()
	claim, err := vol.Claim(s.ctx)
	s.must(err)
	return s.ClaimOf(claim)
}
