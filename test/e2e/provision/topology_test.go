//go:build unix

package provision

import (
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestProvisionInTopologyOfSelectedNode uses a driver with volumes that are accessible in one topology segment.
func TestProvisionInTopologyOfSelectedNode(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	zone := map[string]string{"zone": "a"}
	zoned := mockdriver.Options{Args: []string{"--topology=zone=a"}}
	t.Run("late and immediate binding", func(t *testing.T) {
		t.Parallel()
		env := newForRole(t, "owner", zoned)
		env.StartSidecar(fixture.FastRetries()...)
		immediate := env.CreateClaim(env.CreateStorageClass())
		env.WaitClaimEvent(immediate, "ProvisioningFailed", "the driver is on no node yet")
		node := env.CreateNode(zone) // joins while the sidecar runs
		late := env.CreateClaim(env.CreateStorageClass(fixture.WithWaitForFirstConsumer), fixture.WithSelectedNode(node))
		for _, vol := range []*fixture.Provisioned{env.WaitBound(late), env.WaitBound(immediate)} {
			terms := vol.BoundPV.Spec.NodeAffinity.Required.NodeSelectorTerms
			if len(terms) != 1 || terms[0].MatchExpressions[0].Key != "zone" || terms[0].MatchExpressions[0].Values[0] != "a" {
				t.Errorf("PV %s is reachable from %+v", vol.BoundPV.Name, terms)
			}
			if n := len(env.CreateCalls(vol.BoundClaim)); n != 1 {
				t.Errorf("%d CreateVolume calls", n)
			}
		}
	})
	t.Run("a deleted node blocks no claim", func(t *testing.T) {
		t.Parallel()
		env := newForRole(t, "owner", zoned)
		car := env.StartSidecar(fixture.FastRetries()...)
		node := env.CreateNode(zone)
		env.SetFaults(fixture.DelayCreateVolume(true, 30*time.Second))
		claim := env.CreateClaim(env.CreateStorageClass(fixture.WithWaitForFirstConsumer), fixture.WithSelectedNode(node))
		env.waitOneVolume()
		car.Kill()
		env.removeNode(node)
		env.MustDeleteClaim(claim)
		env.Must(env.MockDriver.ClearFaults(env.Ctx))
		env.Must(car.Restart())
		env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
		env.waitSettled(claim)
		env.waitVolumeGone(claim)
	})
}

// TestProvisionForScheduledPods lets the scheduler select the nodes; the volumes follow.
func TestProvisionForScheduledPods(t *testing.T) {
	t.Parallel()
	name := "zonal-" + rand.String(8) + ".csi-reclaimer.io"
	zone := name + "/zone" // of this driver alone: other tests have nodes too
	env := newForRole(t, "owner", mockdriver.Options{Name: name,
		Args: []string{"--place=" + zone + "=tiny@1Mi", "--place=" + zone + "=large"}})
	env.InstallDriver(nil)
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
		got := env.WaitRunning(pod)
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
		pod := env.CreatePod(objects.PodSpec{Name: "large", Claims: []string{claim.Name},
			Change: func(pod *v1.Pod) {
				pod.Spec.Affinity = preferNode(zone, "large") // in a zone without a node so far
				// The nodes of tests beside this one have no driver to call.
				pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &v1.NodeSelector{
					NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
						{Key: zone, Operator: v1.NodeSelectorOpExists},
					}}},
				}
			}})
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
		pod := env.CreatePod(objects.PodSpec{Name: "tiny", Claims: []string{claim.Name},
			Selector: map[string]string{zone: "tiny"}})
		runs(env, pod, tiny, claim, "tiny")
		if n := len(env.CreateCalls(claim)); n != 1 {
			t.Errorf("%d CreateVolume calls", n)
		}
	})
	t.Run("a pod deleted meanwhile leaves no volume", func(t *testing.T) {
		env := env.forSubtest(t)
		env.SetFaults(fixture.BlockCreateVolume(true))
		const name = "brief"
		pod := env.CreatePod(objects.PodSpec{Name: name, Claims: []string{name}, Selector: map[string]string{zone: "large"}})
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

// Without --strict-topology each request lists all nodes. Still no claim waits for room in the in-flight log.
func TestTopologySegmentForEachNode(t *testing.T) {
	fixture.Begin(t, fixture.AboutProgram, suite.Load)
	const nodes, claims = 1500, 30
	name := "nodes-" + rand.String(8) + ".csi-reclaimer.io"
	key := name + "/node"
	at := func(i int) string {
		return fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i%4, i/7%256, i%251)
	}
	selected := []string{at(0), at(nodes / 2), at(nodes - 1)}
	options := mockdriver.Options{Name: name}
	for _, node := range selected {
		options.Args = append(options.Args, "--place="+key+"="+node)
	}
	env := newForRole(t, "owner", options)
	env.createNodes(nodes, key, at)
	env.StartSidecar()
	class := env.CreateStorageClass(fixture.WithWaitForFirstConsumer)
	var all []*objects.Claim
	for i := range claims {
		all = append(all, env.CreateClaim(class, withSize("1Mi"), fixture.WithSelectedNode(selected[i%len(selected)])))
	}
	for _, claim := range all {
		env.WaitBound(claim)
	}
	for _, claim := range all {
		env.waitSettled(claim)
	}
	for _, e := range env.Events(v1.ObjectReference{}, "") {
		switch e.Reason {
		case "InFlightLogFull", "InFlightLogShareUsed", "RequestTooLarge":
			t.Errorf("claim %s: %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

// createNodes creates nodes with the driver, each with a topology segment of its own.
func (env *environment) createNodes(count int, key string, name func(int) string) {
	env.T.Helper()
	labels := map[string]string{"nodes-of": env.Driver}
	env.T.Cleanup(func() {
		of := metav1.ListOptions{LabelSelector: "nodes-of=" + env.Driver}
		_ = env.Client.CoreV1().Nodes().DeleteCollection(env.CleanupContext(), metav1.DeleteOptions{}, of)
		_ = env.Client.StorageV1().CSINodes().DeleteCollection(env.CleanupContext(), metav1.DeleteOptions{}, of)
	})
	create := func(i int) error {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name(i),
			Labels: map[string]string{"nodes-of": env.Driver, key: name(i)}}}
		if _, err := env.Client.CoreV1().Nodes().Create(env.Ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := env.Client.StorageV1().CSINodes().Create(env.Ctx, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: name(i), Labels: labels},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: env.Driver, NodeID: name(i),
				TopologyKeys: []string{key}}}},
		}, metav1.CreateOptions{})
		return err
	}
	const workers = 16
	var each sync.WaitGroup
	failed := make([]error, workers)
	for w := range workers {
		each.Go(func() {
			for i := w; i < count && failed[w] == nil; i += workers {
				failed[w] = create(i)
			}
		})
	}
	each.Wait()
	for _, err := range failed {
		env.Must(err)
	}
}
