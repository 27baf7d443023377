//go:build unix

package deploy

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	records "github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	fencing "github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// served holds the metrics that a program answers with, and the labels of each.
type served map[string][]string

// page is a program's answer.
type page struct {
	served
	text string
}

// scrape returns both programs' metrics, by the program's name, with all features switched on. It causes the events
// without which some metrics do not exist.
func scrape(t *testing.T) map[string]page {
	t.Helper()
	buildBoth(t)
	forgetGuard(t)
	ctx := patiently(t)
	there := map[string]page{}
	must := mustOf(t)
	live := startBoth(t, mockdriver.Options{Name: "scrape.csi-reclaimer.io"}, "--brake-deletions=9",
		"--leak-check-interval=1m")
	car, keeper, driver, maker, namespace := live.car, live.keeper, live.driver, live.maker, live.maker.Namespace

	_, err := maker.MakeClass(ctx, objects.Class{Name: "scrape"})
	must(err)
	// One volume is made and deleted; one cannot be deleted; one cannot be made.
	made := waitBound(ctx, t, maker, "made")
	stays := waitBound(ctx, t, maker, "stays")
	must(driver.SetFaults(ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "CreateVolume", Action: faults.Fail, Code: "Internal"},
		{Method: "DeleteVolume", Volume: stays.Spec.CSI.VolumeHandle, Action: faults.Fail, Code: "Internal"},
	}}))
	for _, pv := range []*v1.PersistentVolume{made, stays} {
		must(client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, pv.Spec.ClaimRef.Name, metav1.DeleteOptions{}))
	}
	_, err = maker.MakeClaim(ctx, objects.ClaimSpec{Name: "never", Class: "scrape"})
	must(err)
	// One, of an in-tree plugin, is being deleted while its claim is there.
	makeInTree(ctx, t, namespace)
	makeHeld(ctx, t, maker, "none")
	makeScaledDown(ctx, t, namespace)
	makeGated(ctx, t, "a", "b")
	makeFence(ctx, t, "scrape-none", byHand()...) // of a node that is not there
	makeUnreachable(ctx, t, maker)

	for running, last := range map[*program.Program][]string{
		car: {
			"leader_election_master_status", "controller_persistentvolume_delete_total",
			"controller_persistentvolume_delete_failed_total", "csi_reclaimer_waiting_pvs",
			"csi_reclaimer_reports_total", "controller_persistentvolumeclaim_provision_total",
			"controller_persistentvolumeclaim_provision_failed_total",
		},
		keeper: {"leader_election_master_status", "csi_reclaimer_intree_waiting_pvs", "csi_reclaimer_protection_waiting",
			"csi_reclaimer_pod_safety_waiting_pods", "csi_reclaimer_gated_pods", "csi_reclaimer_claim_locks",
			"csi_reclaimer_statefulset_waiting_claims",
			"csi_reclaimer_statefulset_waiting_sets", "csi_reclaimer_fence_waiting_nodes",
			"csi_reclaimer_fence_policy_waiting_nodes"},
	} {
		there[map[*program.Program]string{car: "csi-reclaimer", keeper: guard}[running]] = waitMetrics(ctx, t, running, last)
	}
	must(driver.ClearFaults(ctx)) // so that all of it goes
	return there
}

// makeScaledDown makes a set with an annotation that is not valid, and a claim of it that was scaled away.
func makeScaledDown(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	set := makeSet(ctx, t, namespace, "scaled", 0, map[string]string{statefulset.GraceAnnotation: "long"})
	makeClaimOf(ctx, t, set, func(claim *v1.PersistentVolumeClaim) {
		claim.Annotations = map[string]string{statefulset.HoldAnnotation: ""}
	})
}

// makeSet creates a StatefulSet whose claims are deleted when it is scaled down.
func makeSet(ctx context.Context, t *testing.T, namespace, name string, replicas int32,
	annotations map[string]string) *appsv1.StatefulSet {
	t.Helper()
	labels := map[string]string{"app": name}
	set, err := client.AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "none"}}}},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{*unboundClaim("data")},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType},
		},
	}, metav1.CreateOptions{})
	mustOf(t)(err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		_ = client.AppsV1().StatefulSets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		_ = client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, "data-"+name+"-0", metav1.DeleteOptions{})
	})
	return set
}

// makeClaimOf makes the claim of the set's first replica.
func makeClaimOf(ctx context.Context, t *testing.T, set *appsv1.StatefulSet, change func(*v1.PersistentVolumeClaim)) {
	t.Helper()
	claim := unboundClaim("data-" + set.Name + "-0")
	change(claim)
	must, claims := mustOf(t), client.CoreV1().PersistentVolumeClaims(set.Namespace)
	claim, err := claims.Create(ctx, claim, metav1.CreateOptions{})
	must(err)
	mark := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%s/%s/0/Delete/%s"}}}`, statefulset.MarkAnnotation, set.Name,
		set.UID, claim.UID)
	_, err = claims.Patch(ctx, claim.Name, types.MergePatchType, []byte(mark), metav1.PatchOptions{})
	must(err)
}

// unboundClaim returns a claim without a provisioner.
func unboundClaim(name string) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: ptr.To("none"),
		Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
	}}
}

// makeGated makes pods that wait for one claim, in a namespace that asks for locks, which it returns.
func makeGated(ctx context.Context, t *testing.T, names ...string) (namespace string) {
	t.Helper()
	n, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "locks-", Labels: map[string]string{podsafety.NamespaceLabel: "enforce", singlenode.Label: "all"},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, claims := client.CoreV1().Pods(n.Name), client.CoreV1().PersistentVolumeClaims(n.Name)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		for _, name := range names {
			removePod(ctx, n.Name, name)
		}
		_, _ = claims.Patch(ctx, "c", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		_ = client.CoreV1().Namespaces().Delete(ctx, n.Name, metav1.DeleteOptions{})
	})
	_, err = claims.Create(ctx, unboundClaim("c"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, err := pods.Create(ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{records.RunningFinalizer}},
			Spec: v1.PodSpec{
				SchedulingGates: []v1.PodSchedulingGate{{Name: records.VolumeGate}},
				Containers:      []v1.Container{{Name: "c", Image: "none"}},
				Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}},
			},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return n.Name
}

// makeFence makes a fence of a node by these agents.
func makeFence(ctx context.Context, t *testing.T, node string, agents ...v1alpha1.Agent) *fencing.Client {
	t.Helper()
	fences, err := fencing.New(cluster.Admin())
	mustOf(t)(err)
	_, err = fences.Fences.Create(ctx, &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: v1alpha1.NodeFenceSpec{Reason: "a test", Agents: agents}}, metav1.CreateOptions{})
	mustOf(t)(err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		_, err := fences.Fences.Patch(ctx, node, types.MergePatchType, []byte(`{"spec":{"unfence":"Abandon"}}`),
			metav1.PatchOptions{})
		if err == nil {
			err = fences.Fences.Delete(ctx, node, metav1.DeleteOptions{})
		}
		for ; err == nil; time.Sleep(20 * time.Millisecond) { // volume-guard still runs
			_, err = fences.Fences.Get(ctx, node, metav1.GetOptions{})
		}
		if !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return fences
}

// makeUnreachable creates an unreachable node, with a pod that has a claim, a policy that fences it later, and a node
// with a renewed Lease.
func makeUnreachable(ctx context.Context, t *testing.T, maker objects.Maker) {
	t.Helper()
	must := mustOf(t)
	fences, err := fencing.New(cluster.Admin())
	must(err)
	const name = "scrape-away"
	leases := client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	makeAway(ctx, t, name)
	_, err = fences.Policies.Create(ctx, &v1alpha1.FencePolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.FencePolicySpec{DryRun: true, Agents: byHand(),
			UnreachableAfter: metav1.Duration{Duration: 40 * time.Second}}}, metav1.CreateOptions{})
	must(err)
	_, err = maker.MakePod(ctx, objects.PodSpec{Name: "away", Node: name, Claims: []string{"away"}})
	must(err)
	lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "scrape-lives"}},
		metav1.CreateOptions{})
	must(err)
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var renewals sync.WaitGroup
	renewals.Go(func() {
		for now := metav1.NowMicro(); renewing.Err() == nil; now = metav1.NowMicro() {
			lease.Spec.RenewTime = &now
			if renewed, err := leases.Update(renewing, lease, metav1.UpdateOptions{}); err == nil {
				lease = renewed
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		stop()
		renewals.Wait()
		ctx := context.WithoutCancel(ctx)
		_ = fences.Policies.Delete(ctx, name, metav1.DeleteOptions{})
		_ = client.CoreV1().Pods(maker.Namespace).Delete(ctx, "away", *metav1.NewDeleteOptions(0))
		_ = leases.Delete(ctx, lease.Name, metav1.DeleteOptions{})
	})
}

// removePod removes a held pod without a running kubelet.
func removePod(ctx context.Context, namespace, name string) {
	pods := client.CoreV1().Pods(namespace)
	_, _ = pods.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	_ = pods.Delete(ctx, name, *metav1.NewDeleteOptions(0))
}

// makeHeld makes a pod that is held and terminating, on a node that runs nothing.
func makeHeld(ctx context.Context, t *testing.T, maker objects.Maker, node string) {
	t.Helper()
	pod, err := maker.MakePod(ctx, objects.PodSpec{Name: "held", Node: node,
		Change: func(pod *v1.Pod) { pod.Finalizers = []string{records.RunningFinalizer} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removePod(context.WithoutCancel(ctx), maker.Namespace, pod.Name) })
	if err := pod.Delete(ctx); err != nil {
		t.Fatal(err)
	}
}

// waitMetrics returns the program's metrics, once they include these.
func waitMetrics(ctx context.Context, t *testing.T, running *program.Program, last []string) page {
	t.Helper()
	there := served{}
	line := regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)
	for {
		text, err := running.Get(ctx, "/metrics")
		for _, found := range line.FindAllStringSubmatch(text, -1) {
			there[found[1]] = nil
			for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(found[2], -1) {
				there[found[1]] = append(there[found[1]], label[1])
			}
		}
		missing := ""
		for _, name := range last {
			if _, is := there[name]; !is {
				missing += " " + name
			}
		}
		if missing == "" && err == nil {
			return page{there, text}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("without%s: %v\n%s", missing, err, running.LogTail(20))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// waitBound makes a claim and returns the PV that is made for it.
func waitBound(ctx context.Context, t *testing.T, maker objects.Maker, name string) *v1.PersistentVolume {
	t.Helper()
	claim, err := maker.MakeClaim(ctx, objects.ClaimSpec{Name: name, Class: "scrape"})
	if err != nil {
		t.Fatal(err)
	}
	var bound string
	if err := claim.Wait(ctx, "bound", func(c *v1.PersistentVolumeClaim) bool {
		if c == nil || c.Status.Phase != v1.ClaimBound {
			return false
		}
		bound = c.Spec.VolumeName
		return true
	}); err != nil {
		t.Fatal(err)
	}
	pv, err := client.CoreV1().PersistentVolumes().Get(ctx, bound, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pv
}

// makeInTree makes a bound PV of an in-tree plugin and deletes it, which lasts as long as its claim.
func makeInTree(ctx context.Context, t *testing.T, namespace string) {
	t.Helper()
	maker := objects.Maker{Client: client, Namespace: namespace}
	volume, err := maker.Make(ctx, objects.Spec{Name: "scrape-in-tree", Policy: v1.PersistentVolumeReclaimDelete,
		Handle: "none", Change: func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path"}
			pv.Finalizers = []string{"kubernetes.io/pv-controller"}
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/nowhere"}}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.CoreV1().PersistentVolumeClaims(namespace).Delete(context.WithoutCancel(ctx), volume.ClaimName,
			metav1.DeleteOptions{})
	})
	if err := client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func stopLater(t *testing.T, running *program.Program) {
	t.Helper()
	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Errorf("%v\n%s", err, strings.TrimSpace(running.LogTail(20)))
		}
	})
}
