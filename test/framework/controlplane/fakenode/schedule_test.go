//go:build unix

package fakenode_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

const (
	driver  = "zonal.test"
	zoneKey = "zonal.test/zone"
)

// A claim that waits for its first consumer passes between the scheduler, the provisioner, the PV controller and the
// kubelet. Here the kubelet is a fake node, the provisioner is this test, and the others are real.
func TestPodsAndVolumesShareZone(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Newest, controlplane.Options{Scheduler: true})
	p := newProvisioner(t, cp)
	silence := map[string]func(){}
	for node, zone := range map[string]string{"node-a": "a", "node-b": "b"} {
		_, silence[node] = fakenode.ForTest(t, cp, node, fakenode.Config{
			Drivers: map[string]fakenode.Driver{driver: {Place: map[string]string{zoneKey: zone}}},
		})
	}

	t.Run("the scheduler names the node of the pod, then waits for the volume", func(t *testing.T) {
		claim, pod := p.order(t, "data", map[string]string{zoneKey: "b"})
		if node := p.selected(t, claim); node != "node-b" {
			t.Errorf("the claim is for node %q, want node-b", node)
		}
		p.provision(t, claim, "b")
		if node := p.running(t, pod); node != "node-b" {
			t.Errorf("the pod runs on %q, want node-b", node)
		}
		vol := must.Get(claim.WaitBound(p.soon(t)))(t)
		if vol.Handle != "data" || vol.ClaimName != "data" || vol.Name != "pv-data" {
			t.Errorf("volume %+v", vol)
		}
		p.end(t, pod)
	})
	t.Run("the next pod goes to where the volume is", func(t *testing.T) {
		pod := must.Get(p.MakePod(t.Context(), objects.PodSpec{Name: "next", Claims: []string{"data"}}))(t)
		if node := p.running(t, pod); node != "node-b" {
			t.Errorf("the pod runs on %q, want node-b", node)
		}
		p.end(t, pod)
	})
	t.Run("the name of a node that is gone stays until the provisioner removes it", func(t *testing.T) {
		claim, pod := p.order(t, "moved", nil)
		first := p.selected(t, claim)
		silence[first]()
		must.OK(t, fakenode.Remove(t.Context(), p.Client, first))
		// The scheduler tries the pod by itself and finds no node, because the claim is for a node that is gone.
		if err := pod.Wait(p.soon(t), "found to fit nowhere", func(pod *corev1.Pod) bool {
			return unschedulable(pod, "0/1 nodes") // an attempt before the removal would count two
		}); err != nil {
			t.Fatal(err)
		}
		if node := p.selected(t, claim); node != first {
			t.Fatalf("the claim is for node %q, want still %q", node, first)
		}

		p.reschedule(t, claim)
		second := p.selected(t, claim)
		if second == first {
			t.Fatalf("the claim is for the node that is gone, %q, again", first)
		}
		p.provision(t, claim, second[len("node-"):])
		if node := p.running(t, pod); node != second {
			t.Errorf("the pod runs on %q, want %q", node, second)
		}
	})
}

// unschedulable reports whether the scheduler has found no node, with a message that begins like this.
func unschedulable(pod *corev1.Pod, message string) bool {
	return pod != nil && pod.Spec.NodeName == "" && slices.ContainsFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable &&
				strings.HasPrefix(c.Message, message)
		})
}

// provisioner plays a provisioner, and its users.
type provisioner struct{ objects.Maker }

func newProvisioner(t *testing.T, cp *controlplane.ControlPlane) provisioner {
	t.Helper()
	client := must.Get(kubernetes.NewForConfig(cp.Admin()))(t)
	namespace := must.Get(cp.CreateNamespace(t.Context(), "schedule"))(t)
	p := provisioner{objects.Maker{Client: client, Driver: driver, Namespace: namespace}}
	if _, err := p.MakeDriver(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := p.MakeClass(t.Context(), objects.Class{Name: "zonal", WaitForPod: true}); err != nil {
		t.Fatal(err)
	}
	return p
}

// order makes a claim, and a pod of the same name that uses it.
func (p provisioner) order(t *testing.T, name string, selector map[string]string) (*objects.Claim, *objects.Pod) {
	t.Helper()
	claim := must.Get(p.MakeClaim(t.Context(), objects.ClaimSpec{Name: name, Class: "zonal"}))(t)
	pod := must.Get(p.MakePod(t.Context(), objects.PodSpec{Name: name, Claims: []string{name}, Selector: selector}))(t)
	return claim, pod
}

// provision creates the PV of a claim, for a volume in one zone. The volume does not exist, since no kubelet mounts it.
func (p provisioner) provision(t *testing.T, claim *objects.Claim, zone string) {
	t.Helper()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim.Name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName:              "zonal",
			ClaimRef:                      &corev1.ObjectReference{Namespace: p.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: claim.Name},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: zoneKey, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}}}}},
		},
	}
	if _, err := p.Client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// reschedule asks the scheduler for another node.
func (p provisioner) reschedule(t *testing.T, claim *objects.Claim) {
	t.Helper()
	_, err := p.Client.CoreV1().PersistentVolumeClaims(p.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+objects.SelectedNode+`":null}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (p provisioner) selected(t *testing.T, claim *objects.Claim) string {
	t.Helper()
	node := must.Get(claim.WaitSelected(p.soon(t)))(t)
	return node
}

func (p provisioner) running(t *testing.T, pod *objects.Pod) string {
	t.Helper()
	node := must.Get(pod.WaitRunning(p.soon(t)))(t)
	return node
}

// end deletes a pod and waits until its node has released it.
func (p provisioner) end(t *testing.T, pod *objects.Pod) {
	t.Helper()
	must.OK(t, pod.Delete(t.Context()))
	must.OK(t, pod.WaitGone(p.soon(t)))
}

func (p provisioner) soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}
