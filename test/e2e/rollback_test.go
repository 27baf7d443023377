//go:build unix

package e2e

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

func isFree(pv *v1.PersistentVolume) bool { return pv == nil || !protected(pv) }

func TestBackToWhatProvisionersDidAndForwardAgain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(eager()...)
	restart := func(args ...string) {
		s.must(car.Terminate())
		s.must(car.Restart(args...))
		s.must(car.WaitReady(s.soon()))
	}
	bound := s.makeMany(8, func(i int) storage.Spec { return storage.Spec{Dynamic: i%2 == 0} })
	underway := s.make(storage.Spec{}) // released and terminating, held by an attachment
	s.waitAll(append([]*storage.Volume{underway}, bound...), "protected", isProtected)
	attachment := s.attach(underway)
	s.must(underway.DeletePV(s.ctx))
	s.must(underway.DeleteClaim(s.ctx))
	s.waitEvent(underway, "Attached", "")

	restart("--honor-reclaim-policy=false")
	s.waitAll(bound, "without our finalizer", isFree)
	s.detach(attachment)
	s.must(underway.WaitGone(s.soon()))
	s.expectDeleted(underway, 1) // what the finalizer had begun is finished
	// As before the KEP: claim first deletes, and that is all.
	s.must(bound[0].DeleteClaim(s.ctx))
	s.must(bound[0].WaitGone(s.soon()))
	s.expectDeleted(bound[0], 1)

	restart("--honor-reclaim-policy=true")
	s.waitAll(bound[1:], "protected again", isProtected)
	s.all(bound[1:4], func(vol *storage.Volume) error { return vol.DeletePV(s.ctx) })
	s.all(bound[1:], func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll(bound, "gone", isGone)
	for _, vol := range bound {
		s.expectDeleted(vol, 1)
	}
}

// release runs csi-reclaimer --release-finalizers to its end.
func (s *stage) release(args ...string) (stdout string, err error) {
	s.t.Helper()
	var out strings.Builder
	p, err := process.Start(process.Command{Path: program, Stdout: &out, Env: []string{"POD_NAMESPACE=" + s.home}, Args: append([]string{
		"--csi-address=" + s.driver.Socket(), "--kubeconfig=" + s.kube, "--release-finalizers",
	}, args...)})
	s.must(err)
	defer p.Close()
	select {
	case <-p.Done():
	case <-s.soon().Done():
		s.t.Fatalf("--release-finalizers does not end:\n%s", p.LogTail(20))
	}
	return out.String() + p.LogTail(3), p.Err()
}

func TestTheFinalizersAreReleased(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(eager()...)
	vols := s.makeMany(40, func(i int) storage.Spec { return storage.Spec{Dynamic: i%2 == 0} })
	s.waitAll(vols, "protected", isProtected)
	s.must(vols[0].DeletePV(s.ctx)) // its volume is abandoned, and that is said
	s.must(car.Terminate())
	said, err := s.release()
	s.must(err)
	if !strings.Contains(said, "40 PVs were released") || !strings.Contains(said, "PV "+vols[0].Name+" was being deleted") {
		t.Errorf("said %q", said)
	}
	s.waitAll(vols, "without our finalizer", isFree)
	if said, err = s.release(); err != nil || !strings.Contains(said, "0 PVs were released") {
		t.Errorf("the second time: %v, %q", err, said)
	}
	for _, vol := range vols {
		s.expectKept(vol)
	}
}

// TestAnAdmissionPolicyThatPutsTheFinalizerBack is what volume-guard installs, for one driver.
func TestAnAdmissionPolicyThatPutsTheFinalizerBack(t *testing.T) {
	if version == controlplane.V1_30 {
		t.Skip("MutatingAdmissionPolicy is served from 1.36 on")
	}
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(eager()...)
	vols := s.makeMany(4, func(int) storage.Spec { return storage.Spec{Dynamic: true} })
	s.waitAll(vols, "protected", isProtected)
	s.must(car.Terminate())
	s.putBack()
	s.eventually("the policy is in force", func() bool {
		s.strip(vols[0])
		pv, err := vols[0].PV(s.ctx)
		s.must(err)
		return protected(pv)
	})

	said, err := s.release()
	if err == nil || !strings.Contains(said, "admission policy") || !strings.Contains(said, "0 PVs were released") {
		t.Errorf("--release-finalizers ended with %v and said %q, want it to refuse and to say why", err, said)
	}
	s.waitAll(vols, "still protected", isProtected)

	s.must(car.Restart("--honor-reclaim-policy=false"))
	s.must(car.WaitReady(s.soon()))
	for _, vol := range vols {
		s.waitEvent(vol, "Unwritable", "admission policy")
		s.expectKept(vol)
	}
}

// putBack has the API server put the finalizer on in every write to the stage's PVs.
func (s *stage) putBack() {
	s.t.Helper()
	name := "put-back-" + s.Namespace
	scope, ignore, never := admissionv1.ClusterScope, admissionv1.Ignore, admissionv1.NeverReinvocationPolicy
	_, err := s.client.AdmissionregistrationV1().MutatingAdmissionPolicies().Create(s.ctx, &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"}, Scope: &scope},
				},
			}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "ours", Expression: `has(object.spec.csi) && object.spec.csi.driver == "` + s.Driver + `" && !has(object.metadata.deletionTimestamp)`},
				{Name: "missing", Expression: `!has(object.metadata.finalizers) || !("` + volume.Finalizer + `" in object.metadata.finalizers)`}},
			FailurePolicy:      &ignore,
			ReinvocationPolicy: never,
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch,
				JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: has(object.metadata.finalizers) ? "/metadata/finalizers/-" : "/metadata/finalizers", value: has(object.metadata.finalizers) ? dyn("` +
					volume.Finalizer + `") : dyn(["` + volume.Finalizer + `"])}]`},
			}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(s.ctx, &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		_ = s.client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Delete(s.clean(), name, metav1.DeleteOptions{})
		_ = s.client.AdmissionregistrationV1().MutatingAdmissionPolicies().Delete(s.clean(), name, metav1.DeleteOptions{})
	})
}
