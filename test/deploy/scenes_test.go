//go:build unix

package deploy

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	records "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	fencing "github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	shipped "github.com/csi-reclaimer/csi-reclaimer/test/framework/manifests"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// Scenes make the objects of commands on the pages, and of recorded runs. The objects are gone after the test.

// creator is a client for objects of one kind.
type creator[O metav1.Object] interface {
	Create(ctx context.Context, o O, options metav1.CreateOptions) (O, error)
	Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions,
		subresources ...string) (O, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// create creates an object. It is gone after the test, also with finalizers and without a kubelet.
func create[O metav1.Object](t *testing.T, in creator[O], o O) O {
	t.Helper()
	made, err := in.Create(patiently(t), o, metav1.CreateOptions{})
	must(t, err)
	forget(t, func(ctx context.Context) error { return remove(ctx, in, made.GetName()) })
	return made
}

// remove deletes an object, if it exists, and its finalizers. Kubernetes would add them again before the deletion.
func remove[O metav1.Object](ctx context.Context, in creator[O], name string) error {
	err := in.Delete(ctx, name, *metav1.NewDeleteOptions(0))
	if err == nil {
		_, err = in.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// The objects in the pages' commands.
const (
	docsPV     = "pvc-8a5c"
	docsHome   = "shop"
	docsDriver = "disk.csi.example.com"
	// docsNode and docsPolicy are a node and a FencePolicy.
	docsNode   = "worker-2"
	docsPolicy = "workers"
	// docsSet is a StatefulSet. It has no pods, so no claim is created for it.
	docsSet = "web"
	// docsHolder is the pod that has the lock of docsClaim, and docsOther the name of other objects of single-node.
	docsClaim  = "data"
	docsHolder = "web-5f7c"
	docsOther  = "single-node-docs"
)

func makeKustomizeHomes(t *testing.T) {
	t.Helper()
	makeGuardHome(t)
	must(t, makeNamespace(patiently(t), "csi-driver"))
}

func makeHomes(t *testing.T) {
	t.Helper()
	makeGuardHome(t)
	installExample(t)
}

func makeHome(t *testing.T) {
	t.Helper()
	must(t, makeNamespace(patiently(t), docsHome))
}

func makeViewer(t *testing.T) {
	t.Helper()
	makeHomes(t)
	_, err := cluster.ServiceAccount(patiently(t), guardHome, "web-viewer")
	must(t, err)
}

func makeSecret(t *testing.T) {
	t.Helper()
	makeGuardHome(t)
	create(t, client.CoreV1().Secrets(guardHome), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "volume-guard-webhooks"}})
}

// makePV creates the pages' PV, bound to its claim, of a driver that does not run. It stays for all commands, because
// the PV controller may take 15 seconds to notice a reused name.
func makePV(t *testing.T) {
	t.Helper()
	makeDocsPV(t, objects.Spec{Name: docsPV,
		Change: func(pv *v1.PersistentVolume) { pv.Finalizers = []string{volume.Finalizer} }})
}

// makeLeavingPV makes one of a node that is gone, which is being deleted.
func makeLeavingPV(t *testing.T) {
	t.Helper()
	makeDocsPV(t, objects.Spec{Name: "pvc-77f0", Unclaimed: true, Change: func(pv *v1.PersistentVolume) {
		pv.Finalizers = []string{volume.Finalizer}
		pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: "example.com/node", Operator: v1.NodeSelectorOpIn,
				Values: []string{"node-7"}}},
		}}}}
	}})
	must(t, client.CoreV1().PersistentVolumes().Delete(patiently(t), "pvc-77f0", metav1.DeleteOptions{}))
}

func makeDocsPV(t *testing.T, spec objects.Spec) {
	t.Helper()
	makeHome(t)
	spec.Policy, spec.Handle = v1.PersistentVolumeReclaimRetain, "vol-of-"+spec.Name
	vol, err := objects.Maker{Client: client, Driver: docsDriver, Namespace: docsHome}.Make(patiently(t), spec)
	must(t, err)
	forget(t, func(ctx context.Context) error {
		if vol.Claimed {
			if err := vol.DeleteClaim(ctx); err != nil {
				return err
			}
		}
		return remove(ctx, client.CoreV1().PersistentVolumes(), spec.Name)
	})
}

// podWith returns a pod that uses these claims.
func podWith(name string, claims ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}}}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	return pod
}

// unboundClaim returns a claim without a provisioner.
func unboundClaim(name string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: ptr.To("none"),
		Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
	}}
}

func makeDocsPod(t *testing.T, pod *v1.Pod) *v1.Pod {
	t.Helper()
	makeHome(t)
	return create(t, client.CoreV1().Pods(docsHome), pod)
}

// makePod creates the pages' pod. No scheduler binds it to a node.
func makePod(t *testing.T) {
	t.Helper()
	makeDocsPod(t, podWith("db-0"))
}

// makeGatedPod makes a pod with the gate.
func makeGatedPod(t *testing.T) {
	t.Helper()
	pod := podWith(docsOther, docsClaim)
	pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: records.VolumeGate}}
	makeDocsPod(t, pod)
}

// heldPod returns a pod that is held, with the claim of the pages.
func heldPod() *v1.Pod {
	pod := podWith(docsHolder, docsClaim)
	pod.Finalizers = []string{records.RunningFinalizer}
	return pod
}

// makeLock makes a claim, and a pod that has its lock, is held, and was deleted.
func makeLock(t *testing.T) {
	t.Helper()
	pod, claim := makeDocsPod(t, heldPod()), unboundClaim(docsClaim)
	claim.Finalizers = []string{singlenode.Finalizer}
	claim.Annotations = map[string]string{singlenode.LockAnnotation: fmt.Sprintf("%s %s", pod.UID, pod.Name)}
	create(t, client.CoreV1().PersistentVolumeClaims(docsHome), claim)
	must(t, client.CoreV1().Pods(docsHome).Delete(patiently(t), pod.Name, metav1.DeleteOptions{}))
}

// makeBrake makes a Lease with the brake on.
func makeBrake(t *testing.T) {
	t.Helper()
	makeHome(t)
	create(t, client.CoordinationV1().Leases(docsHome), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: "disk-csi-example-com", Annotations: map[string]string{reclaim.BrakeAnnotation: "on"}}})
}

func makeClass(t *testing.T) {
	t.Helper()
	create(t, client.StorageV1().StorageClasses(),
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: docsOther}, Provisioner: docsDriver})
}

func makeDeployment(t *testing.T) {
	t.Helper()
	makeHome(t)
	labels := map[string]string{"app": docsOther}
	create(t, client.AppsV1().Deployments(docsHome), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: docsOther},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: podWith(docsHolder, docsClaim).Spec}}})
}

func makeStatefulSet(t *testing.T) {
	t.Helper()
	makeHome(t)
	makeSet(t, docsHome, docsSet, 0, func(set *appsv1.StatefulSet) { set.Spec.PersistentVolumeClaimRetentionPolicy = nil })
}

// makeSet creates a StatefulSet whose claims are deleted when it is scaled down.
func makeSet(t *testing.T, namespace, name string, replicas int32,
	changes ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	t.Helper()
	labels := map[string]string{"app": name}
	forget(t, func(ctx context.Context) error {
		return remove(ctx, client.CoreV1().PersistentVolumeClaims(namespace), "data-"+name+"-0")
	})
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: name,
			Template:             v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podWith(name).Spec},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{*unboundClaim("data")},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType},
		},
	}
	for _, change := range changes {
		change(set)
	}
	return create(t, client.AppsV1().StatefulSets(namespace), set)
}

// makeScaledDown makes a set with an annotation that is not valid, and a claim of it that was scaled away.
func makeScaledDown(t *testing.T, namespace string) {
	t.Helper()
	set := makeSet(t, namespace, "scaled", 0, func(set *appsv1.StatefulSet) {
		set.Annotations = map[string]string{statefulset.GraceAnnotation: "long"}
	})
	makeClaimOf(t, set, func(claim *v1.PersistentVolumeClaim) {
		claim.Annotations = map[string]string{statefulset.HoldAnnotation: ""}
	})
}

// makeClaimOf makes the claim of the set's first replica.
func makeClaimOf(t *testing.T, set *appsv1.StatefulSet, change func(*v1.PersistentVolumeClaim)) {
	t.Helper()
	claim := unboundClaim("data-" + set.Name + "-0")
	change(claim)
	claims := client.CoreV1().PersistentVolumeClaims(set.Namespace)
	claim, err := claims.Create(patiently(t), claim, metav1.CreateOptions{})
	must(t, err)
	mark := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%s/%s/0/Delete/%s"}}}`, statefulset.MarkAnnotation, set.Name,
		set.UID, claim.UID)
	_, err = claims.Patch(patiently(t), claim.Name, types.MergePatchType, []byte(mark), metav1.PatchOptions{})
	must(t, err)
}

// makeGated makes pods that wait for one claim, in a namespace that asks for locks, which it returns.
func makeGated(t *testing.T, names ...string) (namespace string) {
	t.Helper()
	namespace = create(t, client.CoreV1().Namespaces(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "locks-", Labels: map[string]string{podsafety.NamespaceLabel: "enforce", singlenode.Label: "all"},
	}}).Name
	create(t, client.CoreV1().PersistentVolumeClaims(namespace), unboundClaim("c"))
	for _, name := range names {
		pod := podWith(name, "c")
		pod.Finalizers = []string{records.RunningFinalizer}
		pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: records.VolumeGate}}
		create(t, client.CoreV1().Pods(namespace), pod)
	}
	return namespace
}

// waitUngated returns the pod of the namespace that has lost its gate.
func waitUngated(t *testing.T, namespace string) (name string) {
	t.Helper()
	until(t, "a pod has no gate", func() bool {
		list, err := client.CoreV1().Pods(namespace).List(patiently(t), metav1.ListOptions{})
		must(t, err)
		for _, pod := range list.Items {
			if len(pod.Spec.SchedulingGates) == 0 {
				name = pod.Name
			}
		}
		return name != ""
	})
	return name
}

// makeUnschedulable makes a pod that has the lock of a claim and fits no node, and one that waits for the lock.
func makeUnschedulable(t *testing.T) {
	t.Helper()
	namespace := makeGated(t, "a", "b")
	_, err := client.CoreV1().Pods(namespace).Patch(patiently(t), waitUngated(t, namespace),
		types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}}`),
		metav1.PatchOptions{}, "status")
	must(t, err)
}

// makeHeld makes a pod that is held and terminating, on a node that runs nothing.
func makeHeld(t *testing.T, maker objects.Maker, node string) {
	t.Helper()
	pod := podWith("held")
	pod.Spec.NodeName, pod.Finalizers = node, []string{records.RunningFinalizer}
	pods := client.CoreV1().Pods(maker.Namespace)
	must(t, pods.Delete(patiently(t), create(t, pods, pod).Name, metav1.DeleteOptions{}))
}

// makeAway makes a node that is unreachable.
func makeAway(t *testing.T, name string) {
	t.Helper()
	nodes := client.CoreV1().Nodes()
	create(t, nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	// Controllers write to the Node as well, which an update would collide with.
	_, err := nodes.Patch(patiently(t), name, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}`),
		metav1.PatchOptions{}, "status")
	must(t, err)
}

func fenceClient(t *testing.T) *fencing.Client {
	t.Helper()
	fences, err := fencing.New(cluster.Admin())
	must(t, err)
	return fences
}

func byHand() []v1alpha1.Agent {
	return []v1alpha1.Agent{{Name: "by-hand", Covers: v1alpha1.CoversUntilUnfenced, Manual: &v1alpha1.ManualAgent{}}}
}

// makePolicy makes a FencePolicy, which is a dry run.
func makePolicy(t *testing.T, name string, after time.Duration, alter ...func(*v1alpha1.FencePolicySpec)) {
	t.Helper()
	o := &v1alpha1.FencePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FencePolicySpec{DryRun: true,
		Agents: byHand(), UnreachableAfter: metav1.Duration{Duration: after}}}
	for _, change := range alter {
		change(&o.Spec)
	}
	create(t, fenceClient(t).Policies, o)
}

// cannotSelect gives a policy a selector that the API server accepts and that is not valid.
func cannotSelect(s *v1alpha1.FencePolicySpec) {
	s.NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "not a label", Operator: "Exists"}}
}

// makeUnfenced makes the pages' node, which is unreachable, and their policy.
func makeUnfenced(t *testing.T) {
	t.Helper()
	must(t, shipped.Apply(patiently(t), cluster.Admin(), shipped.NodeFencingCRD))
	makeAway(t, docsNode)
	makePolicy(t, docsPolicy, 0)
	fences := fenceClient(t).Fences
	forget(t, func(ctx context.Context) error { return remove(ctx, fences, docsNode) })
}

// makeDocsFence also creates a fence of the node.
func makeDocsFence(t *testing.T) {
	t.Helper()
	makeUnfenced(t)
	create(t, fenceClient(t).Fences, newFence(docsNode, byHand()...))
}

// newFence returns a fence of a node by these agents.
func newFence(node string, agents ...v1alpha1.Agent) *v1alpha1.NodeFence {
	return &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: v1alpha1.NodeFenceSpec{Reason: "a test", Agents: agents}}
}

// makeFence makes a fence, which volume-guard works on. It is abandoned after the test.
func makeFence(t *testing.T, node string, agents ...v1alpha1.Agent) *fencing.Client {
	t.Helper()
	fences := fenceClient(t)
	_, err := fences.Fences.Create(patiently(t), newFence(node, agents...), metav1.CreateOptions{})
	must(t, err)
	forget(t, func(ctx context.Context) error {
		_, err := fences.Fences.Patch(ctx, node, types.MergePatchType, []byte(`{"spec":{"unfence":"Abandon"}}`),
			metav1.PatchOptions{})
		if err == nil {
			err = fences.Fences.Delete(ctx, node, metav1.DeleteOptions{})
		}
		for ; err == nil; time.Sleep(20 * time.Millisecond) { // volume-guard still runs
			_, err = fences.Fences.Get(ctx, node, metav1.GetOptions{})
		}
		return ignoreNotFound(err)
	})
	return fences
}

// makeUnreachable creates an unreachable node, with a pod that has a claim, a policy that fences it later, and a node
// with a renewed Lease.
func makeUnreachable(t *testing.T, maker objects.Maker) {
	t.Helper()
	const name = "scrape-away"
	makeAway(t, name)
	makePolicy(t, name, 40*time.Second)
	pod := podWith("away", "away")
	pod.Spec.NodeName = name
	create(t, client.CoreV1().Pods(maker.Namespace), pod)
	leases := client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	lease := create(t, leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "scrape-lives"}})
	ctx, stop := context.WithCancel(context.WithoutCancel(patiently(t)))
	var renewals sync.WaitGroup
	renewals.Go(func() {
		for now := metav1.NowMicro(); ctx.Err() == nil; now = metav1.NowMicro() {
			lease.Spec.RenewTime = &now
			if renewed, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err == nil {
				lease = renewed
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	t.Cleanup(func() { stop(); renewals.Wait() })
}

// makeInTree makes a bound PV of an in-tree plugin and deletes it, which lasts as long as its claim.
func makeInTree(t *testing.T, namespace string) {
	t.Helper()
	maker := objects.Maker{Client: client, Namespace: namespace}
	vol, err := maker.Make(patiently(t), objects.Spec{Name: "scrape-in-tree", Policy: v1.PersistentVolumeReclaimDelete,
		Handle: "none", Change: func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path"}
			pv.Finalizers = []string{"kubernetes.io/pv-controller"}
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/nowhere"}}
		}})
	must(t, err)
	t.Cleanup(func() {
		_ = client.CoreV1().PersistentVolumeClaims(namespace).Delete(context.Background(), vol.ClaimName,
			metav1.DeleteOptions{})
	})
	must(t, client.CoreV1().PersistentVolumes().Delete(patiently(t), vol.Name, metav1.DeleteOptions{}))
}

const scrapeClass = "scrape"

func makeClassFor(t *testing.T, r live, name string) {
	t.Helper()
	_, err := r.maker.MakeClass(patiently(t), objects.Class{Name: name})
	must(t, err)
	forget(t, func(ctx context.Context) error { return remove(ctx, client.StorageV1().StorageClasses(), name) })
}

// waitBound makes a claim of the scraped class and returns the PV that is made for it.
func waitBound(t *testing.T, maker objects.Maker, name string) *v1.PersistentVolume {
	t.Helper()
	claim, err := maker.MakeClaim(patiently(t), objects.ClaimSpec{Name: name, Class: scrapeClass})
	must(t, err)
	vol, err := claim.WaitBound(patiently(t))
	must(t, err)
	pv, err := vol.PV(patiently(t))
	must(t, err)
	return pv
}

func deleteClaimOf(t *testing.T, pv *v1.PersistentVolume) {
	t.Helper()
	must(t, client.CoreV1().PersistentVolumeClaims(pv.Spec.ClaimRef.Namespace).Delete(patiently(t), pv.Spec.ClaimRef.Name,
		metav1.DeleteOptions{}))
}
