//go:build unix

package provision

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestProvisionForScheduledPods lets the scheduler select the nodes; the volumes follow.
func TestProvisionForScheduledPods(t *testing.T) {
	t.Parallel()
	name := "zonal-" + rand.String(8) + ".csi-reclaimer.io"
	zone := name + "/zone" // of this driver alone: other tests have nodes too
	env := newForRole(t, "owner", mockdriver.Options{Name: name,
		Args: []string{"--place=" + zone + "=tiny@1Mi", "--place=" + zone + "=large"}})
	_, err := env.MakeDriver(env.Ctx, nil)
	env.Must(err)
	t.Cleanup(func() {
		_ = env.Client.StorageV1().CSIDrivers().Delete(env.CleanupContext(), name, metav1.DeleteOptions{})
	})
	env.StartSidecar(fixture.FastRetries()...)
	class := env.CreateStorageClass(fixture.WithWaitForFirstConsumer)
	join := func(place string) string {
		node := "node-" + place + "-" + rand.String(8)
		fakenode.ForTest(t, env.Plane, node,
			fakenode.Config{Drivers: map[string]fakenode.Driver{name: {Place: map[string]string{zone: place}}}})
		return node
	}
	// runs waits until the pod runs on the node, with its volume in that place.
	runs := func(env *environment, pod *objects.Pod, node string, claim *objects.Claim, place string) {
		env.T.Helper()
		got, err := pod.WaitRunning(env.WithTimeout())
		env.Must(err)
		vol := env.WaitBound(claim)
		there := env.volumeOnDisk(vol).Topology
		if got != node || len(there) != 1 || there[0][zone] != place {
			env.T.Errorf("the pod runs on %s, its volume is in %v; want %s and %s", got, there, node, place)
		}
		terms := vol.BoundPV.Spec.NodeAffinity.Required.NodeSelectorTerms
		if len(terms) != 1 || len(terms[0].MatchExpressions) != 1 || terms[0].MatchExpressions[0].Key != zone ||
			terms[0].MatchExpressions[0].Values[0] != place {
			env.T.Errorf("PV %s is reachable from %+v", vol.Name, terms)
		}
	}
	tiny, large := join("tiny"), ""

	t.Run("a full topology segment leads to another node", func(t *testing.T) {
		env := env.forSubtest(t)
		claim := env.CreateClaim(class, withSize("2Mi"))
		pod, err := env.MakePod(env.Ctx, objects.PodSpec{Name: "large", Claims: []string{claim.Name},
			Change: func(pod *v1.Pod) {
				pod.Spec.Affinity = preferNode(zone, "large") // in a zone without a node so far
			}})
		env.Must(err)
		env.waitCreateCall(claim)
		large = join("large")
		runs(env, pod, large, claim, "large")
		calls := env.CreateCalls(claim)
		for _, call := range calls[:len(calls)-1] {
			if call.Code != "ResourceExhausted" {
				t.Errorf("CreateVolume for the place that is full was answered %s", call.Code)
			}
		}
		t.Logf("%d calls for the place that is full", len(calls)-1)
	})
	t.Run("the volume is created where the pod is scheduled", func(t *testing.T) {
		env := env.forSubtest(t)
		claim := env.CreateClaim(class)
		pod, err := env.MakePod(env.Ctx,
			objects.PodSpec{Name: "tiny", Claims: []string{claim.Name}, Selector: map[string]string{zone: "tiny"}})
		env.Must(err)
		runs(env, pod, tiny, claim, "tiny")
		if n := len(env.CreateCalls(claim)); n != 1 {
			t.Errorf("%d CreateVolume calls", n)
		}
	})
	t.Run("a pod deleted meanwhile leaves no volume", func(t *testing.T) {
		env := env.forSubtest(t)
		env.Must(env.MockDriver.SetFaults(env.Ctx, fixture.BlockCreateVolume(true)))
		const name = "brief"
		pod, err := env.MakePod(env.Ctx,
			objects.PodSpec{Name: name, Claims: []string{name}, Selector: map[string]string{zone: "large"}})
		env.Must(err)
		claim, err := env.MakeClaim(env.Ctx,
			objects.ClaimSpec{Name: name, Class: class, Change: func(claim *v1.PersistentVolumeClaim) {
				// As the claim of a generic ephemeral volume, it is deleted with its pod.
				claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
			}})
		env.Must(err)
		env.waitCreateCall(claim)
		env.Must(pod.Delete(env.Ctx))
		env.Must(pod.WaitGone(env.WithTimeout()))
		env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
		env.Must(env.MockDriver.ClearFaults(env.Ctx))
		env.waitSettled(claim)
		env.waitVolumeGone(claim)
	})
}

// preferNode has a pod prefer nodes with a label, and take others.
func preferNode(label, value string) *v1.Affinity {
	return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{
			Weight: 100,
			Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: label, Operator: v1.NodeSelectorOpIn, Values: []string{value}},
			}},
		}}}}
}
