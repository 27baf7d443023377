//go:build controlplane && unix

package singlenode

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/apiserver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m, nil)) }

// bench is a namespace of a real API server.
type bench struct {
	*apiserver.Bench
	apiServer
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{Bench: apiserver.New(t, "locks-", map[string]string{singlenode.Label: singlenode.AllValue,
		podsafety.NamespaceLabel: podsafety.EnforceValue})}
	clients, err := kube.NewClients(apiserver.Admin())
	b.Must(err)
	b.apiServer = apiServer{clients, nil}
	return b
}

// makePod creates a pod that uses a claim, with the gate and the hold from admission.
func (b *bench) makePod(name, claim string, alter ...func(*v1.Pod)) *v1.Pod {
	b.Helper()
	return b.CreatePod(name, claim, append([]func(*v1.Pod){func(o *v1.Pod) {
		o.Finalizers = []string{objects.RunningFinalizer}
		o.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: objects.VolumeGate}}
	}}, alter...)...)
}

// endPod removes a pod as after its release.
func (b *bench) endPod(name string) {
	b.Helper()
	pods := b.Client.CoreV1().Pods(b.Namespace)
	_, err := pods.Patch(b.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{})
	b.Must(err)
	b.Must(pods.Delete(b.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
}

func (b *bench) gates(pod string) (names []string) {
	b.Helper()
	o, err := b.Client.CoreV1().Pods(b.Namespace).Get(b.Context(), pod, metav1.GetOptions{})
	b.Must(err)
	for _, g := range o.Spec.SchedulingGates {
		names = append(names, g.Name)
	}
	return names
}

// data returns the claim of that name.
func (b *bench) data() *v1.PersistentVolumeClaim {
	b.Helper()
	o, err := b.Client.CoreV1().PersistentVolumeClaims(b.Namespace).Get(b.Context(), "data", metav1.GetOptions{})
	b.Must(err)
	return o
}

// start runs a controller until the test ends or stop is called.
func (b *bench) start(cfg Config) (c *Controller, stop func()) {
	b.Helper()
	return b.startWith(apiserver.Admin(), cfg)
}

// startWith does so with another client configuration.
func (b *bench) startWith(config *rest.Config, cfg Config) (c *Controller, stop func()) {
	b.Helper()
	c, err := New(config, cfg)
	b.Must(err)
	return c, b.Run(c)
}

// Two pods want one claim, and a release removes everything that is left.
func TestControllerAgainstAPIServer(t *testing.T) {
	b := newBench(t)
	recorder := record.NewFakeRecorder(100)
	c, stop := b.start(Config{Settings: controllers.Settings{Events: recorder}})
	b.CreateClaim("data")
	first := b.makePod("first", "data")
	b.Until("the first pod has no gate", func() bool { return len(b.gates("first")) == 0 })
	lock := singlenode.Lock{UID: first.UID, Name: "first"}
	if o := b.data(); o.Annotations[singlenode.LockAnnotation] != lock.String() ||
		!slices.Contains(o.Finalizers, singlenode.Finalizer) {
		t.Errorf("annotations %v, finalizers %v", o.Annotations, o.Finalizers)
	}
	second := b.makePod("second", "data")
	var said string
	b.Until("an Event of the second pod", func() bool {
		said += strings.Join(kubetest.Events(recorder), "\n")
		return strings.Contains(said, "Normal ClaimInUse") && strings.Contains(said, "first")
	})
	if len(b.gates("second")) == 0 {
		t.Error("two pods use the claim")
	}
	b.endPod("first")
	b.Until("the second pod has no gate", func() bool { return len(b.gates("second")) == 0 })
	lock = singlenode.Lock{UID: second.UID, Name: "second"}
	if o := b.data(); o.Annotations[singlenode.LockAnnotation] != lock.String() {
		t.Errorf("annotations %v", o.Annotations)
	}

	b.makePod("third", "data")
	b.Until("an Event of the third pod", func() bool {
		return strings.Contains(strings.Join(kubetest.Events(recorder), ""), "ClaimInUse")
	})
	stop()
	done, err := c.Release(t.Context())
	if err != nil || done.Pods != 1 || done.Claims != 1 || len(done.Left) > 0 || len(done.Unproven) != 1 ||
		!strings.Contains(done.Unproven[0], "third, which waited for pod second") {
		t.Errorf("released %+v, %v", done, err)
	}
	o := b.data()
	if _, locked := o.Annotations[singlenode.LockAnnotation]; locked ||
		slices.Contains(o.Finalizers, singlenode.Finalizer) ||
		len(b.gates("third")) > 0 {
		t.Errorf("annotations %v, finalizers %v, gates %v after the release", o.Annotations, o.Finalizers, b.gates("third"))
	}
}

// Of two pods that have read the same claim, one gets the lock. Foreign finalizers and annotations stay.
func TestLockIsWrittenByCompareAndSwap(t *testing.T) {
	b := newBench(t)
	c := claimOf(b.CreateClaim("data", func(o *v1.PersistentVolumeClaim) {
		o.Finalizers, o.Annotations = []string{"example.com/theirs"}, map[string]string{"theirs": "stays"}
	}))
	ask := func(o *claim, lock singlenode.Lock) singlenode.Ask {
		return singlenode.Ask{Namespace: b.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
			Lock: lock}
	}
	first, second := singlenode.Lock{UID: "1", Name: "first"}, singlenode.Lock{UID: "2", Name: "second"}
	locked, err := b.patchClaim(t.Context(), ask(c, first))
	b.Must(err)
	if _, err := b.patchClaim(t.Context(), ask(c, second)); !errors.Is(err, kube.ErrChanged) {
		t.Errorf("a second lock of the same version: %v", err)
	}
	other := ask(locked, second)
	other.UID = "00000000-0000-0000-0000-000000000000"
	if _, err := b.patchClaim(t.Context(), other); !errors.Is(err, kube.ErrGone) && !errors.Is(err, kube.ErrChanged) {
		t.Errorf("a lock of another UID: %v", err)
	}
	check := func(lock string, ours bool) {
		t.Helper()
		o := b.data()
		if o.Annotations[singlenode.LockAnnotation] != lock || o.Annotations["theirs"] != "stays" ||
			slices.Contains(o.Finalizers, singlenode.Finalizer) != ours ||
			!slices.Contains(o.Finalizers, "example.com/theirs") ||
			!slices.Contains(o.Finalizers, "kubernetes.io/pvc-protection") {
			t.Errorf("annotations %v, finalizers %v", o.Annotations, o.Finalizers)
		}
	}
	check(first.String(), true)
	if _, err := b.patchClaim(t.Context(), ask(c, singlenode.Lock{})); !errors.Is(err, kube.ErrChanged) {
		t.Errorf("the end of a lock by an old version: %v", err)
	}
	free, err := b.patchClaim(t.Context(), ask(locked, singlenode.Lock{}))
	b.Must(err)
	check("", false)
	if free.Locked || free.Kept {
		t.Errorf("%+v after the end of the lock", free)
	}

	// A release is bound to the UID alone.
	_, err = b.patchClaim(t.Context(), ask(free, second))
	b.Must(err)
	unbound := ask(free, singlenode.Lock{})
	unbound.ResourceVersion = ""
	_, err = b.patchClaim(t.Context(), unbound)
	b.Must(err)
	check("", false)

	// A claim that is being deleted takes no finalizer.
	b.Must(b.Client.CoreV1().PersistentVolumeClaims(b.Namespace).Delete(t.Context(), "data", metav1.DeleteOptions{}))
	terminating, found, err := b.readClaim(t.Context(), b.Namespace, "data")
	if err != nil || !found || !terminating.Terminating {
		t.Fatalf("%+v, %v, %v", terminating, found, err)
	}
	if _, err := b.patchClaim(t.Context(), ask(terminating, first)); !errors.Is(err, kube.ErrChanged) {
		t.Errorf("a lock of a claim that is being deleted: %v", err)
	}
}

// Other gates stay, a second removal changes nothing, and a removal with another UID is refused.
func TestOnlyOwnGateIsRemoved(t *testing.T) {
	b := newBench(t)
	o := b.makePod("pod", "data", func(o *v1.Pod) {
		o.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/first"},
			{Name: objects.VolumeGate}, {Name: "example.com/last"}}
	})
	ask := singlenode.Ask{Namespace: b.Namespace, Name: "pod", UID: "00000000-0000-0000-0000-000000000000"}
	if err := b.patchGate(t.Context(), ask); !errors.Is(err, kube.ErrGone) && !errors.Is(err, kube.ErrChanged) {
		t.Errorf("the gate of another UID: %v", err)
	}
	if !slices.Contains(b.gates("pod"), objects.VolumeGate) {
		t.Error("the gate of another pod is gone")
	}
	ask.UID = o.UID
	for range 2 {
		b.Must(b.patchGate(t.Context(), ask))
		if got := b.gates("pod"); !slices.Equal(got, []string{"example.com/first", "example.com/last"}) {
			t.Errorf("gates %v", got)
		}
	}
	b.endPod("pod")
	if err := b.patchGate(t.Context(), ask); !errors.Is(err, kube.ErrGone) {
		t.Errorf("the gate of a pod that is gone: %v", err)
	}
}

// Each pod gets the lock of its claim, and the pods share their lists.
func TestManyPodsShareLists(t *testing.T) {
	const count = 200
	b := newBench(t)
	for i := range count {
		name := fmt.Sprintf("pod-%d", i)
		b.CreateClaim(name)
		b.makePod(name, name)
	}
	c, _ := b.start(Config{})
	b.Until("no pod has a gate", func() bool {
		gated := 0
		b.Must(b.eachPod(t.Context(), b.Namespace, func(o *v1.Pod) {
			if objects.HasVolumeGate(o) {
				gated++
			}
		}))
		return gated == 0
	})
	if got := kubetest.Count(t, c.metrics.lists); got > count/4 {
		t.Errorf("%v lists for %d pods", got, count)
	} else {
		t.Logf("%v lists for %d pods", got, count)
	}
}

// One write takes the lock, one removes the gate, and one frees the lock. A lagging watch causes no repetition.
func TestWritesPerPod(t *testing.T) {
	const count = 100
	b := newBench(t)
	for i := range count {
		b.CreateClaim(fmt.Sprintf("pod-%d", i))
	}
	writes := writes{of: map[string]int{}}
	config := apiserver.Admin()
	config.Wrap(writes.count)
	b.startWith(config, Config{})
	var all sync.WaitGroup
	for worker := range 10 {
		all.Go(func() {
			for i := worker; i < count; i += 10 {
				name := fmt.Sprintf("pod-%d", i)
				b.makePod(name, name)
			}
		})
	}
	all.Wait()
	b.Until("no pod has a gate", func() bool {
		gated := 0
		b.Must(b.eachPod(t.Context(), b.Namespace, func(o *v1.Pod) {
			if objects.HasVolumeGate(o) {
				gated++
			}
		}))
		return gated == 0
	})
	for i := range count {
		b.endPod(fmt.Sprintf("pod-%d", i))
	}
	b.Until("no claim has a lock", func() bool {
		locked := 0
		b.Must(b.eachClaim(t.Context(), b.Namespace, func(c *claim) {
			if c.marked() {
				locked++
			}
		}))
		return locked == 0
	})
	b.Until("all writes are answered", func() bool {
		writes.mu.Lock()
		defer writes.mu.Unlock()
		for i := range count {
			name := fmt.Sprintf("pod-%d", i)
			if writes.of["pods/"+name] < 1 || writes.of["persistentvolumeclaims/"+name] < 2 {
				return false
			}
		}
		return true
	})
	writes.mu.Lock()
	defer writes.mu.Unlock()
	for i := range count {
		name := fmt.Sprintf("pod-%d", i)
		if pod, claim := writes.of["pods/"+name], writes.of["persistentvolumeclaims/"+name]; pod != 1 || claim != 2 {
			t.Errorf("%s: %d writes to the pod, want 1; %d to the claim, want 2", name, pod, claim)
		}
	}
}

// writes counts the answered writes of a client by resource and name, since an unanswered write is repeated.
type writes struct {
	mu sync.Mutex
	of map[string]int
}

func (w *writes) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil && r.Method != http.MethodGet {
			segments := strings.Split(r.URL.Path, "/")
			w.mu.Lock()
			w.of[strings.Join(segments[len(segments)-2:], "/")]++
			w.mu.Unlock()
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
