//go:build unix

package operations

import (
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/locks"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// lockClaim writes the lock of a claim for a pod, as volume-guard does. No volume-guard runs in these tests.
func (env *environment) lockClaim(claim string, uid types.UID, pod string) {
	env.T.Helper()
	claims := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"csi-reclaimer.io/used-by":"%s %s"},`+
		`"finalizers":["csi-reclaimer.io/single-node","kubernetes.io/pvc-protection"]}}`, uid, pod)
	_, err := claims.Patch(env.Ctx, claim, types.MergePatchType, patch, metav1.PatchOptions{})
	env.Must(err)
	env.T.Cleanup(func() {
		_, _ = claims.Patch(env.CleanupContext(), claim, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"csi-reclaimer.io/used-by":null},"finalizers":null}}`), metav1.PatchOptions{})
	})
}

// listLocks returns the list of "kubectl reclaim locks" for the environment's namespace.
func (env *environment) listLocks() (list locks.List) {
	env.T.Helper()
	output := env.RunPlugin("locks", "-o", "json")
	if err := json.Unmarshal([]byte(output), &list); err != nil {
		env.T.Fatalf("%v in\n%s", err, output)
	}
	return list
}

// TestPluginLocks has a pod wait for the lock of a claim, whose holder is deleted on a node that is cut off.
func TestPluginLocks(t *testing.T) {
	t.Parallel()
	env := &environment{newEnvironment(t).InOtherNamespace()}
	_, err := env.Client.CoreV1().Namespaces().Patch(env.Ctx, env.Namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"csi-reclaimer.io/pod-safety":"enforce","csi-reclaimer.io/single-node":"all"}}}`),
		metav1.PatchOptions{})
	env.Must(err)
	vol := env.MakeVolume(objects.Spec{})
	node, silence := env.node()
	env.ExpectOutput(env.RunPlugin("locks"), "No claim in namespace "+env.Namespace+" has a lock")
	holder := env.runPod("holder", vol.ClaimName, node.Name(), true)
	env.lockClaim(vol.ClaimName, holder.UID, "holder")
	_, err = env.MakePod(env.Ctx, objects.PodSpec{Name: "waits", Claims: []string{vol.ClaimName}, Change: func(o *v1.Pod) {
		o.Finalizers = []string{podFinalizer}
		o.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "csi-reclaimer.io/volume"}}
	}})
	env.Must(err)
	t.Cleanup(func() { env.releasePod("waits") })

	l := env.listLocks()
	if len(l.Locks) != 1 || l.Locks[0].Holder != "holder" || l.Locks[0].Node != node.Name() ||
		l.Locks[0].Reason != "HolderRuns" || l.Locks[0].Since == nil || len(l.Locks[0].Waiting) != 1 ||
		len(l.GatedPods) != 1 || l.GatedPods[0].Reason != "ClaimInUse" || len(l.Warnings) != 1 || len(l.Unread) != 0 {
		t.Errorf("it lists %+v", l)
	}
	env.ExpectOutput(env.RunPlugin("explain", "pod/waits"), "(ClaimInUse)", "the lock of claim "+vol.ClaimName,
		"Start volume-guard with the controller single-node")
	output, err := env.WaitExit(env.StartPlugin("confirm", "pvc/"+vol.ClaimName, "--yes"))
	if err == nil {
		t.Errorf("nobody has deleted the pod, and it is confirmed:\n%s", output)
	}
	env.ExpectOutput(output, "is not being deleted", "next: delete the pod",
		"kubectl delete pod holder -n "+env.Namespace)

	env.cutOff(node, silence)
	env.Must(holder.Delete(env.Ctx))
	env.ExpectOutput(env.RunPlugin("explain", "pvc/"+vol.ClaimName), "(HolderUnreachable)",
		"Lock         pod holder, node "+node.Name(), "Waiting      pod waits", "No evidence  Finished",
		"kubectl reclaim confirm pvc/"+vol.ClaimName+" -n "+env.Namespace)
	env.ExpectOutput(env.RunPlugin("confirm", "pvc/"+vol.ClaimName, "--yes"), "Pod holder has the lock of claim "+
		vol.ClaimName, "Force risks", "was confirmed and force-deleted")
	pod, err := holder.Get(env.Ctx)
	env.Must(err)
	if pod == nil || pod.Annotations[pods.ConfirmAnnotation] != string(holder.UID) ||
		*pod.DeletionGracePeriodSeconds != 0 {
		t.Errorf("it is not confirmed, or not force-deleted: %+v", pod)
	}
}
