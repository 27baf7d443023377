//go:build unix

package fakenode_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

const (
	timeout = 3 * time.Minute
	volume  = corev1.UniqueVolumeName("kubernetes.io/csi/driver.test^volume-1")
)

// One test covers a node's life from its registration to its silence, because each part would need a control plane.
func TestNode(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Newest, controlplane.Options{Scheduler: true})
	client, err := kubernetes.NewForConfig(cp.Admin())
	if err != nil {
		t.Fatal(err)
	}
	node, end := fakenode.ForTest(t, cp, "node-1", fakenode.Config{
		Drivers: map[string]fakenode.Driver{
			"driver.test":  {NodeID: "node-1-id", Place: map[string]string{"driver.test/zone": "a", "driver.test/rack": "7"}},
			"another.test": {},
		},
		Heartbeat: 100 * time.Millisecond,
		BootID:    "first",
	})

	t.Run("is registered with its drivers", func(t *testing.T) {
		csiNode, err := client.StorageV1().CSINodes().Get(t.Context(), node.Name(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := []storagev1.CSINodeDriver{
			{Name: "another.test", NodeID: "node-1"},
			{Name: "driver.test", NodeID: "node-1-id", TopologyKeys: []string{"driver.test/rack", "driver.test/zone"}},
		}
		if got := csiNode.Spec.Drivers; !cmp.Equal(got, want) {
			t.Errorf("drivers: %s", cmp.Diff(want, got))
		}
		labelled, err := client.CoreV1().Nodes().Get(t.Context(), node.Name(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if labels := labelled.Labels; labels["driver.test/zone"] != "a" || labels["driver.test/rack"] != "7" {
			t.Errorf("labels %v", labels)
		}
		if got := labelled.Status.NodeInfo.BootID; got != "first" {
			t.Errorf("boot ID %q, want that of the configuration", got)
		}
		if err := node.SetDrivers(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("says which volumes are in use, and that it is not ready", func(t *testing.T) {
		if err := node.SetVolumesInUse(t.Context(), volume); err != nil {
			t.Fatal(err)
		}
		if err := node.SetReady(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		got, err := client.CoreV1().Nodes().Get(t.Context(), node.Name(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if in := got.Status.VolumesInUse; len(in) != 1 || in[0] != volume {
			t.Errorf("volumes in use %q", in)
		}
		for _, condition := range got.Status.Conditions {
			if want := corev1.ConditionFalse; condition.Status != want { // nothing is wrong but the readiness
				t.Errorf("condition %s is %s, want %s", condition.Type, condition.Status, want)
			}
		}
		if err := node.SetVolumesInUse(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := node.SetReady(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		got, err = client.CoreV1().Nodes().Get(t.Context(), node.Name(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if in := got.Status.VolumesInUse; len(in) > 0 {
			t.Errorf("volumes in use %q, want none", in)
		}
	})
	t.Run("corrects the conditions of the node lifecycle controller", func(t *testing.T) {
		testUnreachable(t, client, node)
	})
	t.Run("runs a scheduled pod and releases it when it is deleted", func(t *testing.T) {
		testPod(t, cp, client)
	})
	t.Run("lets pods take their time to end", func(t *testing.T) {
		testEnding(t, cp, client)
	})
	t.Run("repeats a deletion of a pod that the API server does not find", func(t *testing.T) {
		testDeletionNotFound(t, cp, client)
	})
	t.Run("has volumes attached, until it says that they are not in use", func(t *testing.T) {
		testAttach(t, cp, client, node)
	})
	t.Run("starts no pod without its claims, where it waits for them", func(t *testing.T) {
		testWaitForClaims(t, cp, client)
	})
	t.Run("survives its API server", func(t *testing.T) {
		if err := cp.APIServer.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		testPod(t, cp, client)
	})
	t.Run("falls silent at its end and keeps its objects", func(t *testing.T) {
		renewed := func() time.Time {
			lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), node.Name(),
				metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return lease.Spec.RenewTime.Time
		}
		before := renewed()
		eventually(t, "a heartbeat", func(context.Context) error {
			if !renewed().After(before) {
				return errors.New("none yet")
			}
			return nil
		})
		end()
		if _, err := client.CoreV1().Nodes().Get(t.Context(), node.Name(), metav1.GetOptions{}); err != nil {
			t.Errorf("node after its end: %v", err)
		}
		if err := fakenode.Remove(t.Context(), client, node.Name()); err != nil {
			t.Error(err)
		}
		if err := fakenode.Remove(t.Context(), client, node.Name()); err != nil {
			t.Errorf("again: %v", err)
		}
		if _, err := client.CoreV1().Nodes().Get(t.Context(), node.Name(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("node after its removal: %v, want NotFound", err)
		}
	})
}

// testPod runs a pod from its creation to its end.
func testPod(t *testing.T, cp *controlplane.ControlPlane, client kubernetes.Interface) {
	t.Helper()
	namespace := ""
	eventually(t, "namespace", func(ctx context.Context) (err error) { // a restarted API server may refuse for a moment
		namespace, err = cp.CreateNamespace(ctx, "pods")
		return err
	})
	pods := client.CoreV1().Pods(namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "none"}}},
	}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "pod runs", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := false
		for _, c := range pod.Status.Conditions {
			ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}
		if pod.Status.Phase != corev1.PodRunning || !ready || pod.Status.PodIP == "" ||
			len(pod.Status.ContainerStatuses) != 1 {
			return fmt.Errorf("status %+v", pod.Status)
		}
		return nil
	})
	if err := pods.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "pod gone", func(ctx context.Context) error {
		_, err := pods.Get(ctx, "web", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get: %w", errors.Join(err, errors.New("not gone")))
	})
}

// testUnreachable waits until a node is found unreachable, as if it could not renew its Lease in time.
func testUnreachable(t *testing.T, client kubernetes.Interface, node *fakenode.Node) {
	t.Helper()
	for _, ready := range []bool{false, true} {
		if err := node.SetReady(t.Context(), ready); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Nodes().PatchStatus(t.Context(), node.Name(),
			[]byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`)); err != nil {
			t.Fatal(err)
		}
		want := corev1.ConditionFalse
		if ready {
			want = corev1.ConditionTrue
		}
		eventually(t, "condition Ready is "+string(want), func(ctx context.Context) error {
			now, err := client.CoreV1().Nodes().Get(ctx, node.Name(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range now.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == want {
					return nil
				}
			}
			return fmt.Errorf("conditions %+v", now.Status.Conditions)
		})
	}
}

// forgetful is a cluster whose API server answers the first deletion of a pod with NotFound.
type forgetful struct {
	*controlplane.ControlPlane
	answered *atomic.Bool
}

func (f forgetful) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	config, err := f.ControlPlane.ConfigFor(user, groups...)
	if err != nil {
		return nil, err
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return notFound{next, f.answered} })
	return config, nil
}

type notFound struct {
	http.RoundTripper
	answered *atomic.Bool
}

func (n notFound) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodDelete || !n.answered.CompareAndSwap(false, true) {
		return n.RoundTripper.RoundTrip(r)
	}
	answer := httptest.NewRecorder()
	answer.WriteHeader(http.StatusNotFound)
	return answer.Result(), nil
}

func testDeletionNotFound(t *testing.T, cp *controlplane.ControlPlane, client kubernetes.Interface) {
	t.Helper()
	cluster := forgetful{cp, new(atomic.Bool)}
	fakenode.ForTest(t, cluster, "forgetful-node", fakenode.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	maker := objects.Maker{Client: client, Namespace: metav1.NamespaceDefault}
	pod, err := maker.MakePod(ctx, objects.PodSpec{Name: "not-found", Node: "forgetful-node"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pod.WaitRunning(ctx); err != nil {
		t.Fatal(err)
	}
	if err := pod.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if err := pod.WaitGone(ctx); err != nil {
		t.Fatal(err)
	}
	if !cluster.answered.Load() {
		t.Error("the node deleted no pod")
	}
}

// testEnding deletes a pod of a node on which pods end late. API objects have times of whole seconds.
func testEnding(t *testing.T, cp *controlplane.ControlPlane, client kubernetes.Interface) {
	t.Helper()
	const ending = 3 * time.Second
	fakenode.ForTest(t, cp, "slow-node", fakenode.Config{Ending: ending})
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	maker := objects.Maker{Client: client, Namespace: metav1.NamespaceDefault}
	pod, err := maker.MakePod(ctx, objects.PodSpec{Name: "ends-late", Node: "slow-node"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pod.WaitRunning(ctx); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	if err := pod.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if err := pod.WaitGone(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(deleted); took < ending-time.Second {
		t.Errorf("the pod has ended after %s, want %s, a second more or less", took, ending)
	}
}

// testWaitForClaims creates a pod whose claim is missing at first. Another pod shows that the node has seen it.
func testWaitForClaims(t *testing.T, cp *controlplane.ControlPlane, client kubernetes.Interface) {
	t.Helper()
	const careful = "careful-node"
	fakenode.ForTest(t, cp, careful, fakenode.Config{WaitForClaims: true})
	namespace, err := cp.CreateNamespace(t.Context(), "claims")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	maker := objects.Maker{Client: client, Driver: "driver.test", Namespace: namespace}
	var pods []*objects.Pod
	for _, spec := range []objects.PodSpec{{Name: "user", Claims: []string{"late"}, Node: careful},
		{Name: "other", Node: careful}} {
		pod, err := maker.MakePod(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, pod)
	}
	if _, err := pods[1].WaitRunning(ctx); err != nil {
		t.Fatal(err)
	}
	if now, err := pods[0].Get(ctx); err != nil || now.Status.Phase != corev1.PodPending {
		t.Fatalf("%v: a pod without its claim is %s", err, now.Status.Phase)
	}
	if _, err := maker.Make(ctx, objects.Spec{Name: "late", Handle: "late",
		Policy: corev1.PersistentVolumeReclaimRetain}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods[0].WaitRunning(ctx); err != nil {
		t.Fatal(err)
	}
}

// testAttach has the attach-detach controller attach a volume for a pod, and detach it when the node no longer uses it.
// No volume is really attached: the test writes external-attacher's status.
func testAttach(t *testing.T, cp *controlplane.ControlPlane, client kubernetes.Interface, node *fakenode.Node) {
	t.Helper()
	namespace, err := cp.CreateNamespace(t.Context(), "attach")
	if err != nil {
		t.Fatal(err)
	}
	maker := objects.Maker{Client: client, Driver: "driver.test", Namespace: namespace}
	bound, err := maker.Make(t.Context(), objects.Spec{Name: "data", Handle: "volume-1",
		Policy: corev1.PersistentVolumeReclaimRetain})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := maker.MakePod(t.Context(),
		objects.PodSpec{Name: "web", Claims: []string{bound.ClaimName}, Node: node.Name()})
	if err != nil {
		t.Fatal(err)
	}
	attachments := client.StorageV1().VolumeAttachments()
	eventually(t, "the volume is to be attached", func(ctx context.Context) error {
		list, err := attachments.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || list.Items[0].Spec.NodeName != node.Name() {
			return fmt.Errorf("%v: attachments %+v", err, list) //nolint:errorlint // it may be nil
		}
		_, err = attachments.Patch(ctx, list.Items[0].Name, types.MergePatchType, []byte(`{"status":{"attached":true}}`),
			metav1.PatchOptions{}, "status")
		return err
	})
	eventually(t, "the node learns that it is attached", func(ctx context.Context) error {
		got, err := client.CoreV1().Nodes().Get(ctx, node.Name(), metav1.GetOptions{})
		if err != nil || len(got.Status.VolumesAttached) != 1 || got.Status.VolumesAttached[0].Name != volume {
			return fmt.Errorf("%v: attached %+v", err, got.Status.VolumesAttached) //nolint:errorlint // it may be nil
		}
		return nil
	})
	if err := node.SetVolumesInUse(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
	if err := pod.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pod.WaitGone(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list, err := attachments.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("%v: attachments of a volume in use %+v", err, list)
	}
	if err := node.SetVolumesInUse(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the volume is detached", func(ctx context.Context) error {
		list, err := attachments.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) > 0 {
			return fmt.Errorf("%v: attachments %+v", err, list) //nolint:errorlint // it may be nil
		}
		return nil
	})
}

func eventually(t *testing.T, what string, question func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	var last error // from before ctx ended: later errors say only that
	for {
		err := question(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, last)
		case <-ticker.C:
		}
	}
}
