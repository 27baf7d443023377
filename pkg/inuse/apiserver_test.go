//go:build controlplane && unix

package inuse_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

var admin *rest.Config

func TestMain(m *testing.M) {
	os.Exit(func() int {
		cp, err := controlplane.Start(context.Background(), controlplane.Newest, controlplane.Options{
			NoControllerManager: true, Progress: os.Stderr,
			// No controller creates the service accounts that pods need.
			APIServerArgs: []string{"--disable-admission-plugins=ServiceAccount"},
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = cp.Stop() }()
		admin = cp.Admin()
		admin.QPS = -1
		return m.Run()
	}())
}

// bench is a namespace that only the program under test protects.
type bench struct {
	*testing.T
	client    *kubernetes.Clientset
	namespace string
	// lists counts the program's lists of pods in one namespace, and writes its writes.
	lists, writes atomic.Int32
}

func newBench(t *testing.T) (*bench, *rest.Config) {
	t.Helper()
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := client.CoreV1().Namespaces().Create(t.Context(),
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "protect-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, client: client, namespace: ns.Name}
	config := rest.CopyConfig(admin)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{b, next} })
	return b, config
}

type counting struct {
	*bench
	next http.RoundTripper
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.writes.Add(1)
	} else if strings.Contains(r.URL.Path, "/namespaces/") && strings.HasSuffix(r.URL.Path, "/pods") {
		c.lists.Add(1)
	}
	return c.next.RoundTrip(r)
}

type runner interface {
	Run(ctx context.Context) error
}

func (b *bench) run(r runner, err error) {
	b.Helper()
	b.must(err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	b.Cleanup(func() { cancel(); b.must(<-ended) })
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) claim(name string) {
	b.Helper()
	_, err := b.client.CoreV1().PersistentVolumeClaims(b.namespace).Create(b.Context(), &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: ptr.To("none"),
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}, metav1.CreateOptions{})
	b.must(err)
}

func (b *bench) pod(name, node, claim string) {
	b.Helper()
	_, err := b.client.CoreV1().Pods(b.namespace).Create(b.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			NodeName: node, Containers: []v1.Container{{Name: "c", Image: "none"}},
			Volumes: []v1.Volume{{Name: "v",
				VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}},
		},
	}, metav1.CreateOptions{})
	b.must(err)
}

func (b *bench) deleteClaim(name string) {
	b.Helper()
	b.must(b.client.CoreV1().PersistentVolumeClaims(b.namespace).Delete(b.Context(), name, metav1.DeleteOptions{}))
}

func (b *bench) until(what string, is func(context.Context) (bool, error)) {
	b.Helper()
	if err := wait.PollUntilContextTimeout(b.Context(), 20*time.Millisecond, 2*time.Minute, true, is); err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

func (b *bench) claimGone(ctx context.Context, name string) bool {
	b.Helper()
	_, err := b.client.CoreV1().PersistentVolumeClaims(b.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		b.Fatal(err)
	}
	return err != nil
}

func (b *bench) goes(name string) {
	b.Helper()
	b.until("the end of claim "+name, func(ctx context.Context) (bool, error) { return b.claimGone(ctx, name), nil })
}

func full() inuse.Config { return inuse.Config{Mode: inuse.ModeFull, Patience: time.Second} }

func TestClaimProtection(t *testing.T) {
	b, config := newBench(t)
	claims := b.client.CoreV1().PersistentVolumeClaims(b.namespace)
	pods := b.client.CoreV1().Pods(b.namespace)
	for _, name := range []string{"unused", "used", "waited-for", "done", "bare"} {
		b.claim(name)
	}
	b.pod("runs", "node", "used")
	b.pod("waits", "", "waited-for")
	b.pod("ended", "node", "done")
	_, err := pods.Patch(t.Context(), "ended", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`),
		metav1.PatchOptions{}, "status")
	b.must(err)
	_, err = claims.Patch(t.Context(), "bare", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{})
	b.must(err)
	p, err := pvc.New(config, pvc.Config{Config: full()})
	b.run(p, err)

	b.until("the finalizer on a claim that has none", func(ctx context.Context) (bool, error) {
		c, err := claims.Get(ctx, "bare", metav1.GetOptions{})
		return err == nil && slices.Contains(c.Finalizers, pvc.Finalizer), err
	})
	for _, name := range []string{"used", "unused", "waited-for", "done"} {
		b.deleteClaim(name)
	}
	for _, name := range []string{"unused", "waited-for", "done"} {
		b.goes(name)
	}
	if b.claimGone(t.Context(), "used") {
		t.Error("a claim that a pod uses is gone")
	}
	b.must(pods.Delete(t.Context(), "runs", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	b.goes("used")
}

// TestManyClaimsAtOnce deletes thousands of claims of one namespace with one request.
func TestManyClaimsAtOnce(t *testing.T) {
	suite.Deep(t, suite.Load)
	const many = 2000
	b, config := newBench(t)
	work, made := make(chan int), make(chan struct{})
	for range 8 {
		go func() {
			for i := range work {
				b.claim(fmt.Sprintf("claim-%d", i))
			}
			made <- struct{}{}
		}()
	}
	for i := range many {
		work <- i
	}
	close(work)
	for range 8 {
		<-made
	}
	p, err := pvc.New(config, pvc.Config{Config: full()})
	b.run(p, err)
	claims := b.client.CoreV1().PersistentVolumeClaims(b.namespace)
	b.must(claims.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	b.until("the end of all claims", func(ctx context.Context) (bool, error) {
		left, err := claims.List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil && len(left.Items) == 0, err
	})
	t.Logf("%d claims: %d lists of pods, %d writes", many, b.lists.Load(), b.writes.Load())
	if lists, writes := b.lists.Load(), b.writes.Load(); lists == 0 || lists > 20 || writes != many {
		t.Errorf("%d lists of pods, %d writes", lists, writes)
	}
}

func TestPVProtection(t *testing.T) {
	b, config := newBench(t)
	pvs := b.client.CoreV1().PersistentVolumes()
	phase := func(name string, phase v1.PersistentVolumePhase) {
		t.Helper()
		_, err := pvs.Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"`+string(phase)+`"}}`),
			metav1.PatchOptions{}, "status")
		b.must(err)
	}
	for _, name := range []string{"free", "bound", "bare"} {
		_, err := pvs.Create(t.Context(), &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.PersistentVolumeSpec{
				Capacity:    v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")},
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d.example.com",
					VolumeHandle: name}},
			},
		}, metav1.CreateOptions{})
		b.must(err)
	}
	phase("bound", v1.VolumeBound)
	_, err := pvs.Patch(t.Context(), "bare", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{})
	b.must(err)
	p, err := pv.New(config, full())
	b.run(p, err)
	gone := func(name string) bool {
		_, err := pvs.Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}

	b.until("the finalizer on a PV that has none", func(ctx context.Context) (bool, error) {
		o, err := pvs.Get(ctx, "bare", metav1.GetOptions{})
		return err == nil && slices.Contains(o.Finalizers, pv.Finalizer), err
	})
	for _, name := range []string{"bound", "free", "bare"} {
		b.must(pvs.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	for _, name := range []string{"free", "bare"} {
		b.until("the end of PV "+name, func(context.Context) (bool, error) { return gone(name), nil })
	}
	if gone("bound") {
		t.Error("a PV that is bound is gone")
	}
	phase("bound", v1.VolumeReleased)
	b.until("the end of the PV that was bound", func(context.Context) (bool, error) { return gone("bound"), nil })
}

// The test plays another controller that removes the finalizer from claims.
func TestNoWritesBesideAnotherController(t *testing.T) {
	b, config := newBench(t)
	cfg := full()
	cfg.Patience = 2 * time.Minute // far above the other controller's time, also on a slow machine
	p, err := pvc.New(config, pvc.Config{Config: cfg})
	b.run(p, err)
	b.must(p.WaitSynced(t.Context()))
	claims := b.client.CoreV1().PersistentVolumeClaims(b.namespace)
	for i := range 20 {
		name := fmt.Sprintf("claim-%d", i)
		b.claim(name)
		b.deleteClaim(name)
		_, err := claims.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		b.must(err)
		b.goes(name)
	}
	if n := b.writes.Load(); n != 0 {
		t.Errorf("%d writes where others do the work", n)
	}
}
