//go:build controlplane && unix

package admission

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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/admission/certs"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/apiserver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

var (
	admin  *rest.Config
	client *kubernetes.Clientset
)

func TestMain(m *testing.M) {
	os.Exit(apiserver.Main(m, func(context.Context) (err error) {
		admin = apiserver.Admin()
		client, err = kubernetes.NewForConfig(admin)
		return err
	}))
}

// makePV creates the PV of a case, as far as the API server accepts it.
func makePV(t *testing.T, change func(*v1.PersistentVolume)) *v1.PersistentVolume {
	t.Helper()
	return makeNamedPV(t, "pv-"+rand.String(8), change)
}

func makeNamedPV(t *testing.T, name string, change func(*v1.PersistentVolume)) *v1.PersistentVolume {
	t.Helper()
	pv := bound()
	change(pv)
	pv.Name, pv.UID, pv.Status = name, "", v1.PersistentVolumeStatus{}
	pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	made, err := client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	must(t, err)
	return made
}

func patchPV(t *testing.T, name, patch string) *v1.PersistentVolume {
	t.Helper()
	pv, err := client.CoreV1().PersistentVolumes().Patch(t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	must(t, err)
	return pv
}

// until waits for a condition, because admission follows its configuration with a delay.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	// This also runs in a cleanup, after the end of the test's own context.
	apiserver.Until(context.WithoutCancel(t.Context()), t, what, is)
}

func protects(t *testing.T) bool {
	t.Helper()
	return slices.Contains(makePV(t, func(*v1.PersistentVolume) {}).Finalizers, finalizer)
}

// judgePVs checks the results of a policy or webhook that adds the finalizer.
func judgePVs(t *testing.T) {
	for sentence, c := range pvCases {
		t.Run(sentence, func(t *testing.T) {
			var sent []string
			pv := makePV(t, func(pv *v1.PersistentVolume) { c.change(pv); sent = pv.Finalizers })
			want := append([]string{"kubernetes.io/pv-protection"}, sent...) // the API server adds this one
			want = append(want, strings.Fields(c.want)...)
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
		pv = patchPV(t, pv.Name, `{"metadata":{"labels":{"a":"b"}}}`) // a terminating PV can still be written to
		if pv.DeletionTimestamp == nil || !slices.Contains(pv.Finalizers, finalizer) {
			t.Errorf("finalizers %q of a PV that is terminating since %v", pv.Finalizers, pv.DeletionTimestamp)
		}
		pv = patchPV(t, pv.Name, `{"metadata":{"finalizers":["kubernetes.io/pv-protection"]}}`)
		if slices.Contains(pv.Finalizers, finalizer) {
			t.Error("the finalizer cannot be removed from a PV that is terminating")
		}
	})
}

// install creates the policies and bindings of these drivers. The returned function deletes them, bindings first, and
// waits until they are no longer in force.
func install(t *testing.T, drivers Drivers) (remove func()) {
	t.Helper()
	ctx, admission := context.WithoutCancel(t.Context()), client.AdmissionregistrationV1()
	for role, names := range drivers {
		if finalizerOf(role) == "" {
			continue
		}
		// The API server refuses an expression that does not compile.
		_, err := admission.MutatingAdmissionPolicies().Create(ctx, Policy(role, names...), metav1.CreateOptions{})
		must(t, err)
		_, err = admission.MutatingAdmissionPolicyBindings().Create(ctx, Binding(role), metav1.CreateOptions{})
		must(t, err)
	}
	remove = sync.OnceFunc(func() {
		for role := range drivers {
			if finalizerOf(role) != "" {
				must(t, admission.MutatingAdmissionPolicyBindings().Delete(ctx, policyName(role), metav1.DeleteOptions{}))
				must(t, admission.MutatingAdmissionPolicies().Delete(ctx, policyName(role), metav1.DeleteOptions{}))
			}
		}
		for role, names := range drivers {
			if finalizerOf(role) != "" {
				last := names[len(names)-1]
				//nolint:contextcheck // the requests have the test's own context
				until(t, "the end of the policy", func() bool { return !protectsDriver(t, last) })
			}
		}
	})
	t.Cleanup(remove)
	return remove
}

// protectsDriver reports whether a new PV of the driver gets its finalizer, in a dry run.
func protectsDriver(t *testing.T, driver string) bool {
	t.Helper()
	return len(finalizersAt(t, driver)) > 1
}

func finalizersAt(t *testing.T, driver string) []string {
	t.Helper()
	pv := bound()
	pv.Name, pv.UID, pv.Status = "probe-"+rand.String(8), "", v1.PersistentVolumeStatus{}
	pv.Annotations, pv.Spec.CSI.Driver = nil, driver
	pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	ctx := context.WithoutCancel(t.Context())
	made, err := client.CoreV1().PersistentVolumes().Create(ctx, pv,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	must(t, err)
	return made.Finalizers
}

func TestThePolicy(t *testing.T) {
	install(t, known)
	until(t, "the policies to be in force", func() bool {
		return protects(t) &&
			protectsDriver(t, "other.csi.example.com")
	})
	judgePVs(t)

	// A removed finalizer comes back in the same write, without an error.
	pv := makePV(t, func(*v1.PersistentVolume) {})
	if pv = patchPV(t, pv.Name,
		`{"metadata":{"finalizers":["kubernetes.io/pv-protection"]}}`); !slices.Contains(pv.Finalizers, finalizer) {
		t.Errorf("finalizers %q: a release would not have to remove the driver from the policy first", pv.Finalizers)
	}
	// A removed driver is not protected, but the others are, and no write is refused. The first PV in the list also
	// belongs to another driver, whose finalizer comes back, so it does not show whether the removal is observed.
	makeNamedPV(t, "a-pv-of-two-drivers-"+rand.String(8), pvCases["migrated to another than provisioned it"].change)
	ctx := t.Context()
	done, err := RemoveDrivers(ctx, admin, []string{driver})
	must(t, err)
	if want := []string{"mutatingadmissionpolicy/" + PolicyName}; !slices.Equal(done.Objects, want) {
		t.Errorf("removed from %q, want %q", done.Objects, want)
	}
	must(t, WaitUntilRemoved(ctx, admin, []string{driver}))
	if protects(t) || !protectsDriver(t, "second.csi.example.com") || !protectsDriver(t, "other.csi.example.com") {
		t.Error("one driver was removed: it is still protected, or another one is not any more")
	}
	if done, err = RemoveDrivers(ctx, admin, []string{driver}); err != nil || len(done.Objects) > 0 {
		t.Errorf("a second time: removed from %q, %v", done.Objects, err)
	}
	done, err = RemoveDrivers(ctx, admin, []string{allDrivers})
	must(t, err)
	if want := []string{"other.csi.example.com", "second.csi.example.com"}; !slices.Equal(done.Drivers, want) {
		t.Errorf("removed all: %q, want %q", done.Drivers, want)
	}
	until(t, "the end of the protection", func() bool {
		return !protectsDriver(t, "second.csi.example.com") && !protectsDriver(t, "other.csi.example.com")
	})
}

// A reinstallation may list another driver than before. With a ConfigMap as the policy's parameter this failed: an API
// server that has seen the deletion of the last binding with one ignores ConfigMaps until its restart
// (kubernetes/kubernetes#130887).
func TestUninstallAndReinstallProtects(t *testing.T) {
	for _, driver := range []string{"first.csi.example.com", "another.csi.example.com"} {
		remove := install(t, Drivers{volume.RoleOwner: {driver}})
		until(t, "the policy for "+driver+" to be in force", func() bool { return protectsDriver(t, driver) })
		remove() // and waits for the end of the protection
	}
}

// A hundred drivers with names of maximum length stay within the API server's limits for the size and the cost of an
// expression, and the last one is protected like the first.
func TestPolicyOfManyDrivers(t *testing.T) {
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf("%s-%03d.csi.example.com", strings.Repeat("d", 63-len("-000.csi.example.com")), i)
	}
	install(t, Drivers{volume.RoleOwner: many, volume.RoleCompanion: {"other.csi.example.com"}})
	for _, driver := range []string{many[0], many[99]} {
		until(t, driver+" to be protected", func() bool { return protectsDriver(t, driver) })
	}
	if protectsDriver(t, "unlisted.csi.example.com") {
		t.Error("a driver is protected that is not listed")
	}
	service := Service{Namespace: "ns", Name: "volume-guard"}
	_, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(),
		PVWebhooks(service, Drivers{volume.RoleOwner: many}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	must(t, err)
}

// A name of any characters is only a string to the policy.
func TestDriverNamesAreNoExpressions(t *testing.T) {
	install(t, Drivers{volume.RoleOwner: {`x"]) || true || (d in ["`, "\\", `"`, "\n", "é\u2028<", driver}})
	until(t, "the policy to be in force", func() bool { return protectsDriver(t, driver) })
	if protectsDriver(t, "unlisted.csi.example.com") {
		t.Error("a driver is protected that is not listed")
	}
}

// serve runs the webhooks, with frequent rotations of the certificates, and returns a function that makes a client
// config point to them.
func serve(t *testing.T) (at func(*admissionregv1.WebhookClientConfig), keeper *certs.Rotator, stop func()) {
	t.Helper()
	reader, err := NewReader(admin)
	must(t, err)
	keeper, err = certs.New(admin, certs.Config{
		Namespace: metav1.NamespaceDefault, Secret: "webhooks", Names: []string{"localhost"},
		Webhooks: []string{WebhooksName},
		// An API server that is delayed by so much does not know the next certificate when it is presented.
		PollInterval: 500 * time.Millisecond, PropagationDelay: 15 * time.Second, Lifetime: time.Hour,
		RenewBefore: time.Hour - time.Second,
	})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan struct{})
	go func() { defer close(kept); keeper.Run(ctx) }()
	server := NewServer(Handler(func() Drivers { return known }, reader), keeper.Certificate)
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

// presented returns the serial number of the presented certificate.
func presented(t *testing.T, keeper *certs.Rotator) string {
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
	pvHooks, podHooks := PVWebhooks(service, known), PodWebhooks(service)
	// The API server also accepts the unchanged configurations.
	_, err := admission.MutatingWebhookConfigurations().Create(ctx, pvHooks,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	must(t, err)
	// The longest timeout: a write whose webhook is too late is neither refused nor changed.
	longest := ptr.To[int32](30)
	for i := range pvHooks.Webhooks {
		at(&pvHooks.Webhooks[i].ClientConfig)
		pvHooks.Webhooks[i].TimeoutSeconds = longest
	}
	for i := range podHooks.Webhooks {
		at(&podHooks.Webhooks[i].ClientConfig)
		podHooks.Webhooks[i].TimeoutSeconds = longest
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
	t.Run("each write is seen while certificates are exchanged", func(t *testing.T) {
		suite.Deep(t, suite.WaitsForClock)
		for exchanges, last := 0, presented(t, keeper); exchanges < 2; {
			if !protects(t) {
				t.Fatalf("a write was not seen after %d exchanges", exchanges)
			}
			if now := presented(t, keeper); now != last {
				exchanges, last = exchanges+1, now
			}
		}
	})

	namespace := namespaceWithClaims(t, "alive", "going")
	const refused = "PVC (going) is in scheduled for deletion state"
	place := func(claim, how string) error {
		node := ""
		if how == "made on a node" {
			node = "node"
		}
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
		binding := &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: made.Name},
			Target:     v1.ObjectReference{Kind: "Node", Name: "node"},
		}
		if how == "bound by the legacy resource" {
			return client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("bindings").Body(binding).Do(ctx).Error()
		}
		return client.CoreV1().Pods(namespace).Bind(ctx, binding, metav1.CreateOptions{})
	}
	ways := []string{"bound", "bound by the legacy resource", "made on a node"}
	until(t, "the webhook of pods to be asked", func() bool { return place("going", "made on a node") != nil })
	for _, how := range ways {
		if err := place("going", how); err == nil || !strings.Contains(err.Error(), refused) || !apierrors.IsForbidden(err) {
			t.Errorf("%s with a claim that is being deleted: %v, want %q", how, err, refused)
		}
		if err := place("alive", how); err != nil {
			t.Errorf("%s with a claim that is not: %v", how, err)
		}
	}
	stop()
	for _, how := range ways {
		if err := place("going", how); err != nil {
			t.Errorf("%s while the webhook is down: %v", how, err)
		}
	}
	if protects(t) {
		t.Error("protected by a webhook that is down")
	}
}

// namespaceWithClaims creates claims and deletes "going".
func namespaceWithClaims(t *testing.T, names ...string) string {
	t.Helper()
	b := apiserver.New(t, "admit-", nil)
	for _, name := range names {
		b.CreateClaim(name)
	}
	must(t, client.CoreV1().PersistentVolumeClaims(b.Namespace).Delete(t.Context(), "going", metav1.DeleteOptions{}))
	return b.Namespace
}
