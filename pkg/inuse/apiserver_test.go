//go:build controlplane && unix

package inuse_test

import (
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
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/apiserver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m, nil)) }

// bench is a namespace that only the program under test protects.
type bench struct {
	*apiserver.Bench
	// lists counts the program's lists of pods in one namespace, and writes its writes.
	lists, writes atomic.Int32
}

func newBench(t *testing.T) (*bench, *rest.Config) {
	t.Helper()
	b, config := &bench{Bench: apiserver.New(t, "protect-", nil)}, apiserver.Admin()
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

func (b *bench) deleteClaim(name string) {
	b.Helper()
	b.Must(b.Client.CoreV1().PersistentVolumeClaims(b.Namespace).Delete(b.Context(), name, metav1.DeleteOptions{}))
}

func (b *bench) claimGone(name string) bool {
	b.Helper()
	_, err := b.Client.CoreV1().PersistentVolumeClaims(b.Namespace).Get(b.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		b.Fatal(err)
	}
	return err != nil
}

func (b *bench) goes(name string) {
	b.Helper()
	b.Until("the end of claim "+name, func() bool { return b.claimGone(name) })
}

// onNode has a pod be on a node.
func onNode(o *v1.Pod) { o.Spec.NodeName = "node" }

func full() inuse.Config { return inuse.Config{Mode: inuse.ModeFull, Patience: time.Second} }

func TestClaimProtection(t *testing.T) {
	b, config := newBench(t)
	claims := b.Client.CoreV1().PersistentVolumeClaims(b.Namespace)
	pods := b.Client.CoreV1().Pods(b.Namespace)
	for _, name := range []string{"unused", "used", "waited-for", "done", "bare"} {
		b.CreateClaim(name)
	}
	b.CreatePod("runs", "used", onNode)
	b.CreatePod("waits", "waited-for")
	b.CreatePod("ended", "done", onNode)
	_, err := pods.Patch(t.Context(), "ended", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`),
		metav1.PatchOptions{}, "status")
	b.Must(err)
	_, err = claims.Patch(t.Context(), "bare", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{})
	b.Must(err)
	p, err := pvc.New(config, pvc.Config{Config: full()})
	b.Must(err)
	b.Run(p)

	b.Until("the finalizer on a claim that has none", func() bool {
		c, err := claims.Get(t.Context(), "bare", metav1.GetOptions{})
		b.Must(err)
		return slices.Contains(c.Finalizers, pvc.Finalizer)
	})
	for _, name := range []string{"used", "unused", "waited-for", "done"} {
		b.deleteClaim(name)
	}
	for _, name := range []string{"unused", "waited-for", "done"} {
		b.goes(name)
	}
	if b.claimGone("used") {
		t.Error("a claim that a pod uses is gone")
	}
	b.Must(pods.Delete(t.Context(), "runs", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
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
				b.CreateClaim(fmt.Sprintf("claim-%d", i))
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
	b.Must(err)
	b.Run(p)
	claims := b.Client.CoreV1().PersistentVolumeClaims(b.Namespace)
	b.Must(claims.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	b.Until("the end of all claims", func() bool {
		left, err := claims.List(t.Context(), metav1.ListOptions{Limit: 1})
		b.Must(err)
		return len(left.Items) == 0
	})
	t.Logf("%d claims: %d lists of pods, %d writes", many, b.lists.Load(), b.writes.Load())
	if lists, writes := b.lists.Load(), b.writes.Load(); lists == 0 || lists > 20 || writes != many {
		t.Errorf("%d lists of pods, %d writes", lists, writes)
	}
}

func TestPVProtection(t *testing.T) {
	b, config := newBench(t)
	pvs := b.Client.CoreV1().PersistentVolumes()
	phase := func(name string, phase v1.PersistentVolumePhase) {
		t.Helper()
		_, err := pvs.Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"`+string(phase)+`"}}`),
			metav1.PatchOptions{}, "status")
		b.Must(err)
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
		b.Must(err)
	}
	phase("bound", v1.VolumeBound)
	_, err := pvs.Patch(t.Context(), "bare", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{})
	b.Must(err)
	p, err := pv.New(config, full())
	b.Must(err)
	b.Run(p)
	gone := func(name string) bool {
		_, err := pvs.Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}

	b.Until("the finalizer on a PV that has none", func() bool {
		o, err := pvs.Get(t.Context(), "bare", metav1.GetOptions{})
		b.Must(err)
		return slices.Contains(o.Finalizers, pv.Finalizer)
	})
	for _, name := range []string{"bound", "free", "bare"} {
		b.Must(pvs.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	for _, name := range []string{"free", "bare"} {
		b.Until("the end of PV "+name, func() bool { return gone(name) })
	}
	if gone("bound") {
		t.Error("a PV that is bound is gone")
	}
	phase("bound", v1.VolumeReleased)
	b.Until("the end of the PV that was bound", func() bool { return gone("bound") })
}

// The test plays another controller that removes the finalizer from claims.
func TestNoWritesBesideAnotherController(t *testing.T) {
	b, config := newBench(t)
	cfg := full()
	cfg.Patience = 2 * time.Minute // far above the other controller's time, also on a slow machine
	p, err := pvc.New(config, pvc.Config{Config: cfg})
	b.Must(err)
	b.Run(p)
	b.Must(p.WaitSynced(t.Context()))
	claims := b.Client.CoreV1().PersistentVolumeClaims(b.Namespace)
	for i := range 20 {
		name := fmt.Sprintf("claim-%d", i)
		b.CreateClaim(name)
		b.deleteClaim(name)
		_, err := claims.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		b.Must(err)
		b.goes(name)
	}
	if n := b.writes.Load(); n != 0 {
		t.Errorf("%d writes where others do the work", n)
	}
}
