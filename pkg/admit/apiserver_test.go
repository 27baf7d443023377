//go:build controlplane && unix

package admit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admit/certs"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
)

var (
	admin  *rest.Config
	client *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		cp, err := controlplane.Start(context.Background(), controlplane.V1_36, controlplane.Options{
			NoControllerManager: true, Progress: os.Stderr,
			// Nobody makes the accounts that pods need.
			APIServerArgs: []string{"--disable-admission-plugins=ServiceAccount"},
		})
		if err == nil {
			admin = cp.Admin()
			admin.QPS = -1
			client, err = kubernetes.NewForConfig(admin)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = cp.Stop() }()
		return m.Run()
	}())
}

// makePV makes a PV as the case describes, as far as the API server lets one be made.
func makePV(t *testing.T, change func(*v1.PersistentVolume)) *v1.PersistentVolume {
	t.Helper()
	pv := bound()
	change(pv)
	pv.Name, pv.UID, pv.Status = "pv-"+rand.String(8), "", v1.PersistentVolumeStatus{}
	pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	made, err := client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	must(t, err)
	return made
}

func patchPV(t *testing.T, name, patch string) *v1.PersistentVolume {
	t.Helper()
	pv, err := client.CoreV1().PersistentVolumes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
	return pv
}

// until waits for a condition, as admission follows what it is told with a delay.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func protects(t *testing.T) bool {
	t.Helper()
	return slices.Contains(makePV(t, func(*v1.PersistentVolume) {}).Finalizers, finalizer)
}

// judgePVs holds what is true whoever puts the finalizer on.
func judgePVs(t *testing.T) {
	for sentence, c := range pvCases {
		t.Run(sentence, func(t *testing.T) {
			var sent []string
			pv := makePV(t, func(pv *v1.PersistentVolume) { c.change(pv); sent = pv.Finalizers })
			want := append([]string{"kubernetes.io/pv-protection"}, sent...) // the API server adds this one
			if c.want != "" {
				want = append(want, c.want)
			}
			slices.Sort(want)
			slices.Sort(pv.Finalizers)
			if want = slices.Compact(want); !slices.Equal(pv.Finalizers, want) {
				t.Errorf("finalizers %q, want %q", pv.Finalizers, want)
			}
		})
	}
	t.Run("turned to Delete and deleted at once", func(t *testing.T) {
		pv := makePV(t, func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		})
		if slices.Contains(pv.Finalizers, finalizer) {
			t.Fatal("protected before")
		}
		patchPV(t, pv.Name, `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
		must(t, client.CoreV1().PersistentVolumes().Delete(t.Context(), pv.Name, metav1.DeleteOptions{}))
		pv = patchPV(t, pv.Name, `{"metadata":{"labels":{"a":"b"}}}`) // terminating, it can still be written to
		if pv.DeletionTimestamp == nil || !slices.Contains(pv.Finalizers, finalizer) {
			t.Errorf("finalizers %q of a PV that is terminating since %v", pv.Finalizers, pv.DeletionTimestamp)
		}
		pv = patchPV(t, pv.Name, `{"metadata":{"finalizers":["kubernetes.io/pv-protection"]}}`)
		if slices.Contains(pv.Finalizers, finalizer) {
			t.Error("the finalizer cannot be taken off a PV that is terminating")
		}
	})
}

func TestThePolicy(t *testing.T) {
	ctx := t.Context()
	const namespace = metav1.NamespaceDefault
	admission := client.AdmissionregistrationV1()
	maps := client.CoreV1().ConfigMaps(namespace)
	_, err := maps.Create(ctx, Parameters(namespace, known), metav1.CreateOptions{})
	must(t, err)
	// An expression that does not compile is refused here.
	_, err = admission.MutatingAdmissionPolicies().Create(ctx, Policy(), metav1.CreateOptions{})
	must(t, err)
	_, err = admission.MutatingAdmissionPolicyBindings().Create(ctx, Binding(namespace), metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		after := context.WithoutCancel(ctx)
		must(t, admission.MutatingAdmissionPolicyBindings().Delete(after, PolicyName, metav1.DeleteOptions{}))
		must(t, admission.MutatingAdmissionPolicies().Delete(after, PolicyName, metav1.DeleteOptions{}))
	})
	until(t, "the policy to be in force", func() bool { return protects(t) })
	judgePVs(t)

	// What is taken off comes back in the same write, and the write is no error.
	pv := makePV(t, func(*v1.PersistentVolume) {})
	if pv = patchPV(t, pv.Name, `{"metadata":{"finalizers":["kubernetes.io/pv-protection"]}}`); !slices.Contains(pv.Finalizers, finalizer) {
		t.Errorf("finalizers %q: a release would not have to take the driver's key away first", pv.Finalizers)
	}
	// A driver whose key is gone is not protected, nor is anybody when all is gone; no write is refused.
	_, err = maps.Patch(ctx, PolicyName, types.MergePatchType, []byte(`{"data":null}`), metav1.PatchOptions{})
	must(t, err)
	until(t, "the end of the protection", func() bool { return !protects(t) })
	_, err = maps.Patch(ctx, PolicyName, types.MergePatchType, []byte(`{"data":{"`+driver+`":"`+finalizer+`"}}`), metav1.PatchOptions{})
	must(t, err)
	until(t, "the protection", func() bool { return protects(t) })
	must(t, maps.Delete(ctx, PolicyName, metav1.DeleteOptions{}))
	until(t, "the end of the protection without the ConfigMap", func() bool { return !protects(t) })
}

// serve runs the webhooks, with certificates that are exchanged all the time, and returns what points the
// API server there.
func serve(t *testing.T) (at func(*admissionregv1.WebhookClientConfig), keeper *certs.Keeper, stop func()) {
	t.Helper()
	reader, err := NewReader(admin)
	must(t, err)
	keeper, err = certs.New(admin, certs.Config{
		Namespace: metav1.NamespaceDefault, Secret: "webhooks", Names: []string{"localhost"}, Webhooks: []string{WebhooksName},
		Look: 500 * time.Millisecond, Settle: 4 * time.Second, Lifetime: time.Hour, RenewBefore: time.Hour - time.Second,
	})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan struct{})
	go func() { defer close(kept); keeper.Run(ctx) }()
	server := NewServer(Handler(func() map[string]string { return known }, reader), keeper.Certificate)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	stop = sync.OnceFunc(func() {
		cancel()
		<-kept
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	must(t, err)
	return func(c *admissionregv1.WebhookClientConfig) {
		c.URL, c.Service = ptr.To("https://localhost:"+port+*c.Service.Path), nil
	}, keeper, stop
}

// presented returns which certificate is presented.
func presented(t *testing.T, keeper *certs.Keeper) string {
	t.Helper()
	pair, err := keeper.Certificate(nil)
	must(t, err)
	return pair.Leaf.SerialNumber.String()
}

func TestTheWebhooks(t *testing.T) {
	ctx := t.Context()
	at, keeper, stop := serve(t)
	admission := client.AdmissionregistrationV1()
	service := Service{Namespace: "ns", Name: "volume-guard"}
	pvHooks, podHooks := PVWebhooks(service), PodWebhooks(service)
	// As they are, they are accepted too.
	_, err := admission.MutatingWebhookConfigurations().Create(ctx, pvHooks, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	must(t, err)
	for i := range pvHooks.Webhooks {
		at(&pvHooks.Webhooks[i].ClientConfig)
	}
	for i := range podHooks.Webhooks {
		at(&podHooks.Webhooks[i].ClientConfig)
	}
	_, err = admission.MutatingWebhookConfigurations().Create(ctx, pvHooks, metav1.CreateOptions{})
	must(t, err)
	_, err = admission.ValidatingWebhookConfigurations().Create(ctx, podHooks, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		after := context.WithoutCancel(ctx)
		must(t, admission.MutatingWebhookConfigurations().Delete(after, WebhooksName, metav1.DeleteOptions{}))
		must(t, admission.ValidatingWebhookConfigurations().Delete(after, WebhooksName, metav1.DeleteOptions{}))
	})
	until(t, "the webhook to be asked", func() bool { return protects(t) })
	judgePVs(t)
	// Certificates are exchanged meanwhile, and each write is still seen.
	for exchanges, last := 0, presented(t, keeper); exchanges < 2; {
		if !protects(t) {
			t.Fatalf("a write was not seen after %d exchanges", exchanges)
		}
		if now := presented(t, keeper); now != last {
			exchanges, last = exchanges+1, now
		}
	}

	namespace := namespaceWithClaims(t, "alive", "going")
	const refused = "PVC (going) is in scheduled for deletion state"
	place := func(claim, node string) error {
		pod := pod()
		pod.Name, pod.Namespace, pod.UID = "pod-"+rand.String(8), namespace, ""
		pod.Spec.NodeName = node
		pod.Spec.Containers = []v1.Container{{Name: "c", Image: "none"}}
		pod.Spec.Volumes = pod.Spec.Volumes[1:]
		pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = claim
		made, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil || node != "" {
			return err
		}
		return client.CoreV1().Pods(namespace).Bind(ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: made.Name}, Target: v1.ObjectReference{Kind: "Node", Name: "node"},
		}, metav1.CreateOptions{})
	}
	until(t, "the webhook of pods to be asked", func() bool { return place("going", "node") != nil })
	for how, node := range map[string]string{"bound": "", "made on a node": "node"} {
		if err := place("going", node); err == nil || !strings.Contains(err.Error(), refused) || !apierrors.IsForbidden(err) {
			t.Errorf("%s with a claim that is being deleted: %v, want %q", how, err, refused)
		}
		if err := place("alive", node); err != nil {
			t.Errorf("%s with a claim that is not: %v", how, err)
		}
	}
	stop()
	for how, node := range map[string]string{"bound": "", "made on a node": "node"} {
		if err := place("going", node); err != nil {
			t.Errorf("%s while the webhook is down: %v", how, err)
		}
	}
	if protects(t) {
		t.Error("protected by a webhook that is down")
	}
}

// namespaceWithClaims makes claims, of which "going" is being deleted.
func namespaceWithClaims(t *testing.T, names ...string) string {
	t.Helper()
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "admit-"}}, metav1.CreateOptions{})
	must(t, err)
	claims := client.CoreV1().PersistentVolumeClaims(namespace.Name)
	for _, name := range names {
		_, err := claims.Create(t.Context(), &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: ptr.To("none"),
				Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
			},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	must(t, claims.Delete(t.Context(), "going", metav1.DeleteOptions{}))
	return namespace.Name
}
